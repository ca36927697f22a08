"""Augmentation of training images: uint8 NHWC in, one or more views as float32 NHWC in [0, 255] out."""

from collections.abc import Callable
from typing import Literal

import numpy as np

from covshift.support.arrays import Array
from covshift.training import augmix
from covshift.training import loops as kernels

Augment = Literal["crop", "augmix", "noise", "mixup"]

PADDING = 4
SIGMA = 0.1
"""Largest standard deviation of the noise, where white is 1; it is drawn uniformly from 0 to this for each image."""


def crop(images: Array, rng: np.random.Generator) -> Array:
    """Move each image by up to four pixels and mirror every other one, at random.

    >>> crop(np.ones((2, 32, 32, 3), np.uint8), np.random.default_rng(0)).shape
    (2, 32, 32, 3)
    """
    down, right = rng.integers(-PADDING, PADDING + 1, size=(2, len(images)))
    out = np.empty(images.shape, np.uint8)
    kernels.crop_and_flip(images, down, right, rng.random(len(images)) < 0.5, out)
    return out


def _plain(images: Array, rng: np.random.Generator) -> list[Array]:
    return [crop(images, rng).astype(np.float32)]


def _noise(images: Array, rng: np.random.Generator) -> list[Array]:
    sigma = rng.uniform(0, 255 * SIGMA, (len(images), 1, 1, 1)).astype(np.float32)
    noise = rng.standard_normal(images.shape, np.float32)
    return [(crop(images, rng) + sigma * noise).clip(0, 255)]


def _augmix(images: Array, rng: np.random.Generator) -> list[Array]:
    moved = crop(images, rng)
    return [moved.astype(np.float32), augmix.mix(moved, rng), augmix.mix(moved, rng)]


AUGMENTS: dict[Augment, Callable[[Array, np.random.Generator], list[Array]]] = {
    "crop": _plain,
    "augmix": _augmix,
    "noise": _noise,
    "mixup": _plain,  # and blended when they are a batch
}
