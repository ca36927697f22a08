"""The board: the last that is known of every camera, and its last minutes, for the live page and for metrics."""

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from covshift.serve.events import Answered

CAMERAS = 2_000
"""Number of cameras on the board; those unused longest leave it."""

POINTS, SPACING = 240, 1.0
"""Number of points in a history, and the seconds between two of them, at least."""

_PICTURES = 1.0  # seconds between two pictures of a camera


class History:
    """Shift and predicted error of a camera over time, in memory that does not grow.

    >>> history = History()
    >>> for second in range(3):
    ...     history.add(second, 0.1, 0.2)
    >>> history.points
    [[0.0, 0.1, 0.2], [1.0, 0.1, 0.2], [2.0, 0.1, 0.2]]
    """

    def __init__(self) -> None:
        self._rows: NDArray[np.float64] = np.empty((POINTS, 3))
        self._count = 0

    def add(self, moment: float, shift: float | None, error: float | None) -> None:
        """Add a point, or replace the values of the last one if it is too close."""
        if not self._count or moment - self._rows[(self._count - 1) % POINTS, 0] >= SPACING:
            self._rows[self._count % POINTS, 0] = moment
            self._count += 1
        self._rows[(self._count - 1) % POINTS, 1:] = [math.nan if v is None else v for v in (shift, error)]

    @property
    def points(self) -> list[list[float | None]]:
        """The points from the first to the last: time, shift, predicted error; None for what is not known."""
        kept = min(self._count, POINTS)
        rows = np.roll(self._rows, -self._count, axis=0)[-kept:] if self._count > POINTS else self._rows[:kept]
        return [[None if math.isnan(value) else round(value, 4) for value in row] for row in rows.tolist()]


@dataclass
class Seen:
    """What is known of a camera.

    Attributes:
        last: its last event.
        version: the number of the change on the board that was its last one.
        images: the number of its images since the server started.
        resets: the number of times that it started anew.
        history: its last minutes.
        picture: a small JPEG of one of its last images; None where pictures are not kept.
        pictured: the version at which it got the picture.
        alarms: the alarms that are on: a sentence for each kind.
    """

    last: Answered
    version: int = 0
    images: int = 0
    resets: int = 0
    history: History = field(default_factory=History)
    picture: bytes | None = None
    pictured: int = 0
    alarms: dict[str, str] = field(default_factory=dict)


class Board:
    """The last that is known of every camera that has sent images since the server started.

    All methods are called in the thread of the event loop.

    Attributes:
        version: the number of changes so far.
        on_drop: called with the name of each camera that leaves the board; None for nothing.

    >>> board = Board()
    >>> board.note(Answered("gate", 0.0, 2, 0.01, 0.0, 8, "holding", "", 0.1, 20))
    >>> board["gate"].images, [name for name, seen in board.since(0)]
    (2, ['gate'])
    """

    def __init__(self) -> None:
        self.version = 0
        self.on_drop: Callable[[str], object] | None = None
        self._cameras: OrderedDict[str, Seen] = OrderedDict()
        self._taken: dict[str, float] = {}

    def note(self, event: Answered) -> None:
        """Write down an event."""
        if not event.camera:
            return
        seen = self._cameras.get(event.camera)
        if seen is None:
            seen = self._cameras[event.camera] = Seen(event)
        seen.last = event
        seen.images += event.images
        seen.resets += event.reset
        seen.history.add(event.time, event.shift, None if event.predicted is None else event.predicted.error)
        self._changed(event.camera)
        now = time.monotonic()
        if event.thumbnail is not None and now - self._taken.get(event.camera, -math.inf) >= _PICTURES:
            seen.picture, seen.pictured = event.thumbnail, self.version
            self._taken[event.camera] = now
        if len(self._cameras) > CAMERAS:
            self._drop(next(iter(self._cameras)))

    def set_alarm(self, camera: str, kind: str, text: str) -> None:
        """Write down in words that an alarm of a camera is on; "" if it is off."""
        if camera in self._cameras:
            alarms = self._cameras[camera].alarms
            alarms.pop(kind, None)
            if text:
                alarms[kind] = text
            self._changed(camera)

    def since(self, version: int) -> Iterator[tuple[str, Seen]]:
        """Yield the cameras that have changed after a version, the last one first."""
        for name in reversed(self._cameras):
            seen = self._cameras[name]
            if seen.version <= version:
                return
            yield name, seen

    def keep(self, known: Callable[[str], bool]) -> None:
        """Drop the cameras that are not known any more."""
        for name in [name for name in self._cameras if not known(name)]:
            self._drop(name)

    def _changed(self, name: str) -> None:
        self.version += 1
        self._cameras[name].version = self.version
        self._cameras.move_to_end(name)

    def _drop(self, name: str) -> None:
        del self._cameras[name]
        self._taken.pop(name, None)
        if self.on_drop is not None:
            self.on_drop(name)

    def __getitem__(self, name: str) -> Seen:
        return self._cameras[name]

    def __contains__(self, name: object) -> bool:
        return name in self._cameras

    def __iter__(self) -> Iterator[str]:
        return iter(self._cameras)

    def __len__(self) -> int:
        return len(self._cameras)
