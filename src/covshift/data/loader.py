"""The parts of `Data.loader`: samples from images in any condition, and batches of a model's input."""

from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from covshift.data.condition import CLEAN, Condition, parse_condition
from covshift.data.readable import Readable
from covshift.data.selection import ImageBatch, Selection
from covshift.support.arrays import Array
from covshift.support.checks import check_kind
from covshift.support.errors import CovshiftError
from covshift.support.images import rgb
from covshift.support.pixels import MakeInput, to_nchw


@runtime_checkable
class PreparesPictures(Protocol):
    """An object that resizes and crops pictures and normalises batches of them, such as a `Preprocess`."""

    def picture(self, image: Image.Image) -> Array:
        """Return a picture as uint8 HWC, resized and cropped."""

    def tensor(self, images: Array) -> Tensor:
        """Return a batch of pixels, uint8 NHWC, as the model's input."""


class LabelledImages(NamedTuple):
    """Images as uint8 NHWC, and their labels as int64; None where these are not known."""

    images: Array
    labels: Array | None


class Sample(NamedTuple):
    """An image as uint8 HWC, resized and cropped, and its class; -1 where that is not known."""

    image: Array
    label: int


class Prepared(Dataset[Sample]):
    """The images of a selection in one condition, resized and cropped; a batch is decoded by several threads."""

    def __init__(self, selection: Selection, condition: Condition) -> None:
        self._selection = selection
        self._condition = condition

    def __len__(self) -> int:
        return len(self._selection)

    def __getitem__(self, place: int) -> Sample:
        return self.__getitems__([range(len(self))[place]])[0]

    def __getitems__(self, places: list[int]) -> list[Sample]:
        """Return the images at these places; torch calls this for every batch."""
        chunks = self._selection.part(places).make(self._condition)
        return [
            Sample(image, int(label))
            for chunk in chunks
            for image, label in zip(chunk.images, chunk.labels, strict=True)
        ]


def find_preprocess(model: object, preprocess: PreparesPictures | MakeInput | None) -> PreparesPictures | MakeInput:
    """Return the preprocessing that was given, else the model's own."""
    chosen = preprocess if preprocess is not None else getattr(model, "preprocess", None)
    if isinstance(chosen, PreparesPictures) or callable(chosen):
        return chosen
    given = "nothing" if model is None else f"a {type(model).__name__} without it"
    raise CovshiftError(
        f"expected the preprocessing of the model, got {given}; give what open_model returns, or preprocess=, a "
        "covshift.models.Preprocess or a function of uint8 images, torch NCHW"
    )


def read_pixels(loader: DataLoader[Any], *, labelled: bool) -> LabelledImages:
    """Return what `Data.pixels` documents, of a loader that `Data.loader` returned."""
    samples = loader.dataset.__getitems__(list(range(len(loader.dataset))))  # type: ignore[attr-defined,arg-type]
    batch = ImageBatch.stack([sample.image for sample in samples], [sample.label for sample in samples])
    return LabelledImages(batch.images, batch.labels if labelled else None)


def check_condition(data: Readable, condition: str | Condition | None) -> Condition:
    """Return the condition if the data have it or it can be made; None stands for clean images."""
    check_kind(condition, (str, Condition, type(None)), "condition", 'a Condition, or a text such as "fog/3"')
    wanted = CLEAN if condition is None else parse_condition(str(condition))
    if not data.has(wanted):
        some = ", ".join(map(str, sorted(data.stored)[:3]))
        raise CovshiftError(
            f"expected a condition that {data.uri} holds, such as {some}, got {wanted}; it has no clean images to make "
            "others of"
        )
    return wanted


def collate(samples: list[Sample], preprocess: PreparesPictures | MakeInput, labelled: bool) -> Any:
    """Return the model's input for the images of a batch, with their labels where these are known."""
    if not samples:
        raise CovshiftError("expected pictures that can be read, got a whole batch of others; repair or remove them")
    batch = ImageBatch.stack([sample.image for sample in samples], [sample.label for sample in samples])
    if isinstance(preprocess, PreparesPictures):
        images = preprocess.tensor(batch.images)
    else:
        images = preprocess(to_nchw(batch.images))
    return (images, torch.from_numpy(batch.labels)) if labelled else images


def as_stored(picture: Image.Image) -> Array:
    """Return a picture as it is, for preprocessing that takes pictures of any size."""
    return np.asarray(rgb(picture))
