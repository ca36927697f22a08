"""`Data`: a source of images with or without labels, which is what `open_data` returns."""

import hashlib
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch.utils.data import DataLoader

from covshift.data.condition import Condition
from covshift.data.loader import (
    LabelledImages,
    Prepared,
    PreparesPictures,
    as_stored,
    check_condition,
    collate,
    find_preprocess,
    read_pixels,
)
from covshift.data.orders import Order
from covshift.data.readable import Labels, Pixels, Preparing, Readable
from covshift.data.selection import Selection, choose
from covshift.support.checks import check_number
from covshift.support.device import cores
from covshift.support.errors import CovshiftError
from covshift.support.images import open_rgb
from covshift.support.pixels import MakeInput

__all__ = ["ArrayData", "Data", "FileData", "Labels", "Preparing", "check_images", "check_labels", "digest_of"]


class Data(Readable):
    """Images that `open_data` opened; see `Readable` for their attributes."""

    def loader(
        self,
        model: object = None,
        *,
        preprocess: PreparesPictures | MakeInput | None = None,
        condition: str | Condition | None = None,
        batch_size: int = 64,
        limit: int | None = None,
        order: Order = "source",
        seed: int = 0,
        workers: int = 0,
        skip_broken: bool | None = None,
    ) -> DataLoader[Any]:
        """Return a torch `DataLoader` of the model's input: (images, labels) batches, or images of unlabelled data.

        It gives the same images in the same order each time, and holds no more than a batch in memory.

        Args:
            model: what `open_model` returned, whose own preprocessing is used; or any module, with `preprocess`.
            preprocess: a `covshift.models.Preprocess`; or a function that returns the model's input for a batch of
                uint8 images, torch NCHW, which all have one size.
            condition: such as "fog/3" or `Condition("fog", 3)`; by default clean. What is not stored is made.
            batch_size: the number of images in a batch; the last one may have fewer.
            limit: the number of images to take, as many of each class as can be; by default all.
            order: "source" (as the data are ordered), "shuffled", "label", or in runs of a class as in a stream:
                "dirichlet:0.1" or "runs:20".
            seed: chooses the images of `limit` and shuffles them.
            workers: the number of processes that make batches ahead of time; by default this process makes them,
                decoding with a thread for each core.
            skip_broken: whether to leave out pictures that cannot be read; by default the first one raises an error.
        """
        check_number(batch_size, "batch_size", 1, whole=True)
        check_number(workers, "workers", 0, whole=True)
        chosen, wanted = find_preprocess(model, preprocess), check_condition(self, condition)
        known = self.labels if self.labelled else np.zeros(len(self), np.int64)
        indices = choose(known, limit=limit, order=order, seed=seed)
        prepare = chosen.picture if isinstance(chosen, PreparesPictures) else as_stored
        # Iterating over a loader twice reads the files twice: memory stays that of a batch.
        images = Prepared(Selection(self, indices, prepare, memory=0, skip_broken=skip_broken), wanted)
        make_batch = partial(collate, preprocess=chosen, labelled=self.labelled)
        return DataLoader(images, batch_size, num_workers=workers, collate_fn=make_batch)

    def pixels(
        self,
        model: object = None,
        *,
        preprocess: PreparesPictures | None = None,
        condition: str | Condition | None = None,
        limit: int | None = None,
        order: Order = "source",
        seed: int = 0,
        skip_broken: bool | None = None,
    ) -> LabelledImages:
        """Return images in memory, resized and cropped for a model but not yet normalised, with their labels.

        This is what `covshift.shift.Predictor.fit` and `covshift.shift.prior.search` take. The arguments are those of
        `loader`.
        """
        loader = self.loader(
            model,
            preprocess=preprocess,
            condition=condition,
            limit=limit,
            order=order,
            seed=seed,
            skip_broken=skip_broken,
        )
        return read_pixels(loader, labelled=self.labelled)


class FileData(Data):
    """Images that are files of their own."""

    @abstractmethod
    def file(self, condition: Condition, index: int) -> Path:
        """Return the path of an image's file."""

    def picture(self, path: Path) -> Image.Image:
        """Decode a file."""
        return open_rgb(path)

    def read(
        self, condition: Condition, indices: Sequence[int], prepare: Preparing
    ) -> Sequence[Pixels | CovshiftError]:
        """Decode files, as many at a time as there are cores: decoding leaves the interpreter free."""

        def decode(index: int) -> Pixels | CovshiftError:
            try:
                return prepare(self.picture(self.file(condition, index)))
            except CovshiftError as error:
                return error

        with ThreadPoolExecutor(cores()) as pool:
            return list(pool.map(decode, indices))


class ArrayData(Data):
    """Images that are rows of arrays, in memory or mapped from a file."""

    @abstractmethod
    def array(self, condition: Condition) -> Pixels:
        """Return all images in a stored condition, NHWC."""

    def read(
        self, condition: Condition, indices: Sequence[int], prepare: Preparing
    ) -> Sequence[Pixels | CovshiftError]:
        """Take rows of an array; `prepare` is only called when it would change them."""
        images = self.array(condition)[np.asarray(indices, np.intp)]
        if len(images) and prepare(Image.fromarray(images[0])).shape == images[0].shape:
            return list(images)
        return [prepare(Image.fromarray(image)) for image in images]


def check_images(images: NDArray[np.generic], what: str) -> Pixels:
    """Return the array if it holds RGB images as uint8 NHWC, else raise a `CovshiftError`."""
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[3] != 3 or not images.size:
        raise CovshiftError(
            f"expected {what} to hold uint8 RGB images of shape (number, height, width, 3), "
            f"got {images.dtype} of shape {images.shape}"
        )
    return images  # type: ignore[return-value]


def check_labels(labels: NDArray[np.generic], images: int, what: str) -> Labels:
    """Return the labels as int64 if there is one whole number from 0 for each image, else raise a `CovshiftError`."""
    flat = labels.reshape(-1) if labels.shape in ((images,), (images, 1)) else None
    if flat is None or flat.dtype.kind not in "iu" or flat.min(initial=0) < 0:
        raise CovshiftError(
            f"expected {what} to hold a class index from 0 for each of {images} images, "
            f"got {labels.dtype} of shape {labels.shape}"
        )
    if flat.max(initial=0) > np.iinfo(np.int64).max:
        raise CovshiftError(f"expected {what} to hold class indices below 2^63, got {flat.max()}")
    return flat.astype(np.int64)


def digest_of(parts: Iterable[object]) -> str:
    """Return a short digest of anything that prints the same when it is the same."""
    sha = hashlib.sha256()
    for part in parts:
        sha.update(f"{part}\n".encode())
    return sha.hexdigest()[:16]
