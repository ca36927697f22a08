"""`video:FILE?every=10`: frames of a video, without labels, decoded by OpenCV one after the other."""

import hashlib
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from covshift.data.base import digest_of
from covshift.data.condition import Condition
from covshift.data.readable import Pixels, Preparing
from covshift.data.unlabelled import Unlabelled
from covshift.support.errors import CovshiftError
from covshift.support.images import check_pixel_count
from covshift.support.uri import Uri

_SAMPLE = 1 << 20  # bytes of the file, at its start and its end, that the digest looks at


class Video(Unlabelled):
    """Every so many frames of a video; reading them in order decodes the file once, and holds one frame in memory.

    Attributes:
        path: the file.
        every: the distance between two frames that are taken.
    """

    remedy = "write its frames to a folder for each class"

    def __init__(self, uri: str, path: Path, every: int) -> None:
        self.uri, self.path, self.every = uri, path, every
        self._lock = threading.Lock()
        self._capture: Any = None
        self._next = 0
        self._length = -(-self._count() // every)
        self.digest = digest_of([path.stat().st_size, self._sample(), every])

    def __len__(self) -> int:
        return self._length

    def __getstate__(self) -> dict[str, Any]:
        """Return all that another process needs, which opens the file for itself."""
        return {name: value for name, value in vars(self).items() if name not in ("_lock", "_capture", "_next")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=threading.Lock(), _capture=None, _next=0)

    def read(
        self, condition: Condition, indices: Sequence[int], prepare: Preparing
    ) -> Sequence[Pixels | CovshiftError]:
        """Decode frames; going back begins again at the start, since not all files can be searched exactly."""
        with self._lock:
            return [self._frame(index, prepare) for index in indices]

    def _frame(self, index: int, prepare: Preparing) -> Pixels | CovshiftError:
        wanted = index * self.every
        if self._capture is None or wanted < self._next:
            self._open()
        while self._next < wanted and self._capture.grab():
            self._next += 1
        import cv2  # here, so that users without videos do not wait for it

        found, frame = self._capture.read()
        self._next += 1
        if not found:
            return CovshiftError(f"cannot decode frame {wanted} of {self.path}")
        return prepare(Image.fromarray(cv2.cvtColor(frame, cv2.COLOR_BGR2RGB)))

    def _open(self) -> None:
        import cv2

        if self._capture is not None:
            self._capture.release()
        self._capture, self._next = cv2.VideoCapture(str(self.path)), 0
        if not self._capture.isOpened():
            raise CovshiftError(f"cannot read the video {self.path}; is it one that OpenCV can decode?")
        check_pixel_count(
            int(self._capture.get(cv2.CAP_PROP_FRAME_WIDTH)), int(self._capture.get(cv2.CAP_PROP_FRAME_HEIGHT))
        )

    def _count(self) -> int:
        """Return the number of frames, by going through all: what a file says of itself is often wrong."""
        self._open()
        while self._capture.grab():
            self._next += 1
        if self._next == 0:
            raise CovshiftError(f"cannot read the video {self.path}: it has no frames that OpenCV can decode")
        return self._next

    def _sample(self) -> str:
        with self.path.open("rb") as file:
            start = file.read(_SAMPLE)
            file.seek(max(0, self.path.stat().st_size - _SAMPLE))
            return hashlib.sha256(start + file.read(_SAMPLE)).hexdigest()


def open_video(uri: Uri) -> Video:
    """Open `video:FILE`; with `?every=10` only every tenth frame counts."""
    uri.check_query("every")
    every = uri.whole("every")
    if every == 0:
        raise CovshiftError("expected every as a number of frames from 1, got 0")
    path = Path(uri.name).expanduser()
    if not path.is_file():
        raise CovshiftError(f"there is no video at {path}")
    return Video(uri.text, path, every or 1)
