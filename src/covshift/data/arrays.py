"""Images in arrays: `npz:FILE` and the published CIFAR-10-C, `cifar10-c:DIR`."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covshift.corruptions import names
from covshift.data import cifar10
from covshift.data.base import ArrayData, Labels, check_images, check_labels, digest_of
from covshift.data.condition import SEVERITIES, Condition
from covshift.data.npy import read_npy, read_npz
from covshift.data.unlabelled import Unlabelled
from covshift.support.arrays import Array
from covshift.support.errors import CovshiftError, unknown
from covshift.support.uri import Uri

_SAMPLES = 64  # images that a digest looks at


class CleanArray(ArrayData):
    """Clean images from one array."""

    def __init__(self, uri: str, images: NDArray[Any], labels: NDArray[Any], classes: int | None = None) -> None:
        self.uri = uri
        self._images = check_images(images, uri)
        self.labels = check_labels(labels, len(images), f"the labels of {uri}")
        self.classes = check_classes(self.labels, classes, uri)
        self.digest = digest_of([_sample(self._images), self.labels.tolist()])

    def array(self, condition: Condition) -> Array:
        """Return all images."""
        return self._images


class UnlabelledArray(ArrayData, Unlabelled):
    """Images from one array, without labels."""

    remedy = "name their labels: npz:IMAGES.npy?labels=LABELS.npy, or an npz file with `labels`"

    def __init__(self, uri: str, images: NDArray[Any]) -> None:
        self.uri = uri
        self._images = check_images(images, uri)
        self.digest = digest_of([_sample(self._images)])

    def __len__(self) -> int:
        return len(self._images)

    def array(self, condition: Condition) -> Array:
        """Return all images."""
        return self._images


class Cifar10C(ArrayData):
    """One npy file for each corruption, with the 10,000 images at severity 1, then at severity 2, and so on."""

    classes = 10
    class_names = cifar10.CLASSES

    def __init__(self, uri: str, root: Path) -> None:
        self.uri = uri
        self.root = root
        found = [name for name in names("all") if self._file(name).is_file()]
        if not found:
            raise CovshiftError(f"expected files such as {self._file('fog')}, found none")
        self.stored = frozenset(Condition(name, severity) for name in found for severity in SEVERITIES)
        every = np.atleast_1d(read_npy(root / "labels.npy"))
        each = len(every) // len(SEVERITIES)
        self.labels: Labels = check_labels(every[:each], each, f"{root / 'labels.npy'}")
        check_classes(self.labels, self.classes, uri)
        for name in found:
            images = check_images(self._map(name), str(self._file(name)))
            if len(images) != len(every):
                raise CovshiftError(f"expected {self._file(name)} to hold {len(every)} images, got {len(images)}")
        self.digest = digest_of([*(f"{name} {_sample(self._map(name))}" for name in found), self.labels.tolist()])

    def array(self, condition: Condition) -> Array:
        """Return all images in a condition, mapped from the file."""
        start = (condition.severity - 1) * len(self)
        return self._map(condition.corruption)[start : start + len(self)]

    def _file(self, name: str) -> Path:
        return self.root / f"{name}.npy"

    def _map(self, name: str) -> NDArray[Any]:
        return read_npy(self._file(name))


def open_builtin(uri: Uri) -> CleanArray:
    """Open `builtin:cifar10`, the test images; `?folder=DIR` names a folder to take them from the first time."""
    uri.check_query("folder")
    if uri.name != "cifar10":
        raise unknown("built-in data set", uri.name, ["cifar10"])
    folder = uri.query.get("folder")
    images, labels = cifar10.load("test", Path(folder).expanduser() if folder else None)
    data = CleanArray(uri.text, images, labels, len(cifar10.CLASSES))
    data.class_names = cifar10.CLASSES
    return data


def open_npz(uri: Uri) -> CleanArray | UnlabelledArray:
    """Open `npz:FILE.npz`, with arrays `images` and `labels`, or `npz:IMAGES.npy?labels=LABELS.npy`.

    Either may come without labels, as an npz file with `images` alone or as `npz:IMAGES.npy`.
    """
    uri.check_query("labels", "classes")
    file = Path(uri.name).expanduser()
    labels: NDArray[Any] | None = None
    if "labels" in uri.query:
        images, labels = read_npy(file), read_npy(Path(uri.query["labels"]).expanduser())
    elif file.suffix == ".npy":
        images = read_npy(file)
    else:
        arrays = read_npz(file, ("images",), optional=("labels",))
        images, labels = arrays["images"], arrays.get("labels")
    if labels is None:
        return UnlabelledArray(uri.text, images)
    return CleanArray(uri.text, images, labels, uri.whole("classes"))


def open_cifar10_c(uri: Uri) -> Cifar10C:
    """Open `cifar10-c:DIR`."""
    uri.check_query("clean")
    return Cifar10C(uri.text, Path(uri.name).expanduser())


def check_classes(labels: Labels, classes: int | None, what: str) -> int:
    """Return the number of classes: the given one, which must exceed all labels, or else one more than the highest."""
    highest = int(labels.max(initial=0)) + 1
    if classes is not None and classes < highest:
        raise CovshiftError(f"expected labels below {classes} in {what}, got {highest - 1}")
    return classes or highest


def _sample(images: NDArray[Any]) -> str:
    """Return a digest of some of the images, evenly spaced: mapped files are too large to read for it."""
    some = images[:: max(1, len(images) // _SAMPLES)]
    return digest_of([images.shape, np.ascontiguousarray(some).tobytes().hex()])
