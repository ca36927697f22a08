"""`Deployed`: a classifier with one input and one output, as a file holds it; with its preprocessing if wanted."""

from typing import NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from covshift.core.calling import logits_of
from covshift.models.preprocess import FILTERS, Preprocess
from covshift.support.errors import CovshiftError
from covshift.support.images import margin, short_side


class Frame(NamedTuple):
    """The size of the pictures that a deployed model is given, in pixels."""

    height: int
    width: int


class Deployed(nn.Module):
    """A classifier that returns its logits alone or, with `pixels`, the probabilities of uint8 pictures."""

    def __init__(self, model: nn.Module, pixels: "PixelInput | None") -> None:
        super().__init__()
        self.model = model
        self.pixels = pixels

    def forward(self, images: Tensor) -> Tensor:
        """Return logits for the model's input, NCHW, or probabilities for uint8 pictures, NHWC."""
        if self.pixels is None:
            return logits_of(self.model(images))
        return logits_of(self.model(self.pixels(images))).softmax(1)


class PixelInput(nn.Module):
    """A model's preprocessing for pictures of one size, as operations that a graph can hold.

    A resize is two products with matrices, of Pillow's own weights for the columns and the rows, rounded after each as
    Pillow does; the crop leaves out some of their rows.
    """

    def __init__(self, preprocess: Preprocess, frame: Frame, dtype: torch.dtype) -> None:
        super().__init__()
        for name, values in (("mean", preprocess.mean), ("std", preprocess.std)):
            self.register_buffer(name, torch.tensor(values).view(3, 1, 1))
        columns, rows = _matrices(preprocess, frame)
        self.register_buffer("columns", columns)
        self.register_buffer("rows", rows)
        self._dtype = dtype
        self._rows_first = columns is not None and rows is not None and self._is_rows_first(preprocess, frame)

    def forward(self, pictures: Tensor) -> Tensor:
        """Return the model's input, NCHW, for uint8 pictures, NHWC."""
        x = self._resized(pictures.float().permute(0, 3, 1, 2), rows_first=self._rows_first)
        assert isinstance(self.mean, Tensor)
        assert isinstance(self.std, Tensor)
        return ((x / 255 - self.mean) / self.std).to(self._dtype)

    def _resized(self, x: Tensor, *, rows_first: bool) -> Tensor:
        return self._by_columns(self._by_rows(x)) if rows_first else self._by_rows(self._by_columns(x))

    def _by_rows(self, x: Tensor) -> Tensor:
        return _rounded(torch.matmul(self.rows, x)) if isinstance(self.rows, Tensor) else x

    def _by_columns(self, x: Tensor) -> Tensor:
        return _rounded(torch.matmul(x, self.columns)) if isinstance(self.columns, Tensor) else x

    def _is_rows_first(self, preprocess: Preprocess, frame: Frame) -> bool:
        """Return whether Pillow resizes pictures of this size by rows first, which depends on its version."""
        noise = np.random.default_rng(0).integers(0, 256, (*frame, 3), dtype=np.uint8)
        wanted = torch.from_numpy(preprocess.picture(Image.fromarray(noise)).copy()).permute(2, 0, 1)
        picture = torch.from_numpy(noise).permute(2, 0, 1).float()
        by_rows, by_columns = (
            (self._resized(picture, rows_first=first) - wanted).abs().mean().item() for first in (True, False)
        )
        return by_rows < by_columns


def _rounded(x: Tensor) -> Tensor:
    return (x + 0.5).floor().clamp(0, 255)


def _matrices(preprocess: Preprocess, frame: Frame) -> tuple[Tensor | None, Tensor | None]:
    """Return the matrices from columns and from rows of a picture to those of the input; None to leave them."""
    size, picture = preprocess.size, Image.new("1", (frame.width, frame.height))
    if frame == (size, size) or (size is None and preprocess.resize is None):
        return None, None
    if size is None:
        assert preprocess.resize is not None
        wide, high = short_side(picture, preprocess.resize)
    elif preprocess.squash:
        wide = high = preprocess.resize or size
    else:
        wide, high = short_side(picture, preprocess.resize or max(size, min(frame)))
    columns = _matrix(frame.width, wide, size or wide, preprocess.interpolation)
    rows = _matrix(frame.height, high, size or high, preprocess.interpolation)
    return columns, None if rows is None else rows.T.contiguous()


def _matrix(length: int, resized: int, side: int, interpolation: str) -> Tensor | None:
    """Return the weights [length, side] of each pixel of a line in the middle of the resized line."""
    if length == resized == side:
        return None
    if max(length, resized) > 1 << 14:
        raise CovshiftError(
            f"expected pictures of at most {1 << 14} px a side, as they are and resized, got {length} and {resized}; "
            "resize them before"
        )
    line = Image.fromarray(np.eye(length, dtype=np.float32)).resize((resized, length), FILTERS[interpolation])
    left = margin(resized, side)
    return torch.from_numpy(np.array(line.crop((left, 0, left + side, length))))
