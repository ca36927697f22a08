"""Batches of images in memory: uint8, NumPy NHWC or torch NCHW; the two layouts that every function takes."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covshift.support.checks import check_dense, check_kind
from covshift.support.errors import CovshiftError

Images = NDArray[np.uint8] | Tensor
"""RGB images as uint8: a NumPy array (number, height, width, 3) or a torch tensor (number, 3, height, width)."""


MakeInput = Callable[[Tensor], Tensor]
"""A function that turns a batch of uint8 images, torch NCHW, into a model's input."""


def is_pixels(images: object) -> bool:
    """Return whether these are images as uint8, and not a model's input yet.

    >>> is_pixels(np.zeros((1, 8, 8, 3), np.uint8)), is_pixels(torch.zeros(1, 3, 8, 8))
    (True, False)
    """
    return isinstance(images, np.ndarray) or (isinstance(images, Tensor) and images.dtype == torch.uint8)


def to_nhwc(images: Images) -> NDArray[np.uint8]:
    """Return images as a NumPy array, NHWC; an array is returned as it is.

    >>> to_nhwc(torch.zeros(2, 3, 8, 9, dtype=torch.uint8)).shape
    (2, 8, 9, 3)
    """
    check_pixels(images)
    if isinstance(images, Tensor):
        return np.ascontiguousarray(np.moveaxis(images.detach().cpu().numpy(), 1, -1))
    return images


def to_nchw(images: Images) -> Tensor:
    """Return images as a torch tensor, NCHW; a tensor is returned as it is.

    >>> to_nchw(np.zeros((2, 8, 9, 3), np.uint8)).shape
    torch.Size([2, 3, 8, 9])
    """
    check_pixels(images)
    if isinstance(images, Tensor):
        return images
    return torch.from_numpy(np.moveaxis(images, -1, 1).copy())


class PixelBatches:
    """Images in memory as batches of a model's input, made one at a time, as often as they are asked for.

    Args:
        images: uint8, NumPy NHWC or torch NCHW; or, as a torch tensor of floats, the model's input itself.
        preprocess: makes the model's input of uint8 images, torch NCHW; None where the model does.
        size: the number of images in a batch.
    """

    def __init__(self, images: Any, preprocess: MakeInput | None, size: int) -> None:
        if not (isinstance(images, Tensor) and images.is_floating_point() and images.ndim == 4):
            check_pixels(images)
        self._images: Images = images
        self._preprocess = preprocess
        self._size = size

    def __len__(self) -> int:
        return -(-len(self._images) // self._size)

    def __iter__(self) -> Iterator[Tensor]:
        for start in range(0, len(self._images), self._size):
            part = self._images[start : start + self._size]
            if isinstance(part, Tensor) and part.is_floating_point():
                yield part
            else:
                made = to_nchw(part) if self._preprocess is None else self._preprocess(to_nchw(part))
                check_kind(made, Tensor, "what preprocess returns", "a tensor")
                yield made


def check_pixels(images: object) -> None:
    """Raise a `CovshiftError` unless these are uint8 RGB images in one of the two layouts."""
    layouts = "NumPy (number, height, width, 3) or torch (number, 3, height, width)"
    if not isinstance(images, np.ndarray | Tensor):
        raise CovshiftError(f"expected uint8 images, {layouts}, got {type(images).__name__}")
    if isinstance(images, Tensor):
        check_dense(images, "images")
    channels = 1 if isinstance(images, Tensor) else -1
    if images.dtype not in (np.uint8, torch.uint8) or images.ndim != 4 or images.shape[channels] != 3:
        moved = images.ndim == 4 and images.shape[-1 if channels == 1 else 1] == 3
        advice = "; move the axis of the channels" if moved else ""
        got = f"{images.dtype} of shape {tuple(images.shape)}"
        raise CovshiftError(f"expected uint8 images, {layouts}, got {got}{advice}")
