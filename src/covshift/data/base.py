"""What a source of labelled images is: the part that every `open_data(uri)` gives."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from covshift.data.condition import CLEAN, MIXED, TEST, Condition
from covshift.support.device import cores
from covshift.support.errors import CovshiftError
from covshift.support.images import open_rgb

Array = NDArray[np.uint8]
Labels = NDArray[np.int64]
Preparing = Callable[[Image.Image], Array]
"""What makes a model's input, up to normalisation, of a picture: resize and crop."""


class Data(ABC):
    """Labelled images, each known by its index; a source says where they are, and how to read some of them.

    Attributes:
        uri: how it was opened.
        labels: the class of each image.
        classes: how many classes the labels are from: what a model must tell apart.
        stored: the conditions that are on disk. What else is asked for is made of the clean images.
        imagenet: whether these are all of ImageNet's classes, so that AlexNet's errors are a yardstick.
        digest: changes when the images do.
        among: the classes that a model's logits are compared among, where not all count.
        remark: what a user should know of these images.
        caution: what a user should know before adapting to them.
    """

    uri: str
    labels: Labels
    classes: int
    stored: frozenset[Condition] = frozenset([CLEAN])
    imagenet: bool = False
    digest: str
    among: tuple[int, ...] | None = None
    remark: str = ""
    caution: str = ""

    def __len__(self) -> int:
        return len(self.labels)

    def has(self, condition: Condition) -> bool:
        """Whether images in this condition are there or can be made."""
        if condition == MIXED:
            return any(self.has(each) for each in TEST)
        return condition in self.stored or CLEAN in self.stored

    @abstractmethod
    def read(self, condition: Condition, indices: Sequence[int], prepare: Preparing) -> Sequence[Array | CovshiftError]:
        """Images in a stored condition, each as uint8 HWC, or the error that reading it gave."""


class FileData(Data):
    """Images that are files of their own."""

    @abstractmethod
    def file(self, condition: Condition, index: int) -> Path:
        """Where an image is."""

    def picture(self, path: Path) -> Image.Image:
        """A file, decoded."""
        return open_rgb(path)

    def read(self, condition: Condition, indices: Sequence[int], prepare: Preparing) -> Sequence[Array | CovshiftError]:
        """Decode files, as many at a time as there are cores: decoding leaves the interpreter free."""

        def decode(index: int) -> Array | CovshiftError:
            try:
                return prepare(self.picture(self.file(condition, index)))
            except CovshiftError as error:
                return error

        with ThreadPoolExecutor(cores()) as pool:
            return list(pool.map(decode, indices))


class ArrayData(Data):
    """Images that are rows of arrays, in memory or mapped from a file."""

    @abstractmethod
    def array(self, condition: Condition) -> Array:
        """All images in a stored condition, NHWC."""

    def read(self, condition: Condition, indices: Sequence[int], prepare: Preparing) -> Sequence[Array | CovshiftError]:
        """Take rows of an array; `prepare` is only called when it would change them."""
        images = self.array(condition)[np.asarray(indices, np.intp)]
        if len(images) and prepare(Image.fromarray(images[0])).shape == images[0].shape:
            return list(images)
        return [prepare(Image.fromarray(image)) for image in images]


def check_images(images: NDArray[np.generic], what: str) -> Array:
    """The array, where it holds RGB images as uint8 NHWC; else an error that says what it is."""
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[3] != 3 or not len(images):
        raise CovshiftError(
            f"expected {what} to hold uint8 RGB images of shape (number, height, width, 3), "
            f"got {images.dtype} of shape {images.shape}"
        )
    return images  # type: ignore[return-value]


def check_labels(labels: NDArray[np.generic], images: int, what: str) -> Labels:
    """The labels as int64, where there is one whole number from 0 for each image; else an error."""
    flat = labels.reshape(-1) if labels.shape in ((images,), (images, 1)) else None
    if flat is None or flat.dtype.kind not in "iu" or flat.min(initial=0) < 0:
        raise CovshiftError(
            f"expected {what} to hold a class index from 0 for each of {images} images, "
            f"got {labels.dtype} of shape {labels.shape}"
        )
    return flat.astype(np.int64)


def digest_of(parts: Iterable[object]) -> str:
    """A short digest over anything that prints the same when it is the same."""
    sha = hashlib.sha256()
    for part in parts:
        sha.update(f"{part}\n".encode())
    return sha.hexdigest()[:16]
