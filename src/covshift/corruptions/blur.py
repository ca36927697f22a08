"""Blur: out of focus, through glass, in motion, while zooming."""

import math
from functools import lru_cache
from typing import NamedTuple

import cv2
import numpy as np

from covshift.corruptions.kernels import disk as kernels_of_disk
from covshift.corruptions.kernels import filters, quantise
from covshift.corruptions.seeding import Rng, integers
from covshift.support.arrays import Array


@lru_cache
def half_gaussian(sigma: float, truncate: float = 4.0) -> Array:
    """Return a Gaussian kernel from its centre outwards; the whole kernel sums to 1."""
    radius = int(truncate * sigma + 0.5)
    if radius == 0:
        return np.ones(1)
    weights: Array = np.exp(-0.5 / (sigma * sigma) * np.arange(-radius, radius + 1) ** 2)
    return np.ascontiguousarray((weights / weights.sum())[radius::-1])


def smooth(image: Array, sigma: float) -> Array:
    """Return the Gaussian blur of a float image (H, W, C), in its own precision."""
    out = np.empty_like(image)
    filters.gaussian(image, half_gaussian(sigma), out)
    return out


def gaussian_blur(image: Array, sigma: float, rng: Rng, out: Array) -> None:
    """Blur the image with a Gaussian."""
    filters.gaussian_levels(image, half_gaussian(sigma), out)


def glass_blur(image: Array, constants: tuple[float, int, int], rng: Rng, out: Array) -> None:
    """Show the image through frosted glass: blur, let every pixel copy a near one, blur."""
    sigma, reach, passes = constants
    height, width = image.shape[:2]
    panes = np.empty_like(image)
    gaussian_blur(image, sigma, rng, panes)
    size = (passes, max(height - 2 * reach, 0), max(width - 2 * reach, 0), 2)
    filters.shuffle(panes, integers(rng, -reach, reach, size), reach)
    gaussian_blur(panes, sigma, rng, out)


@lru_cache
def disk(radius: float, rim: float) -> Array:
    """Return a disk with a soft rim that sums to 1."""
    reach, window = (8, 3) if radius <= 8 else (int(radius), 5)
    line = np.arange(-reach, reach + 1)
    flat: Array = (line**2 + line[:, None] ** 2 <= radius**2).astype(np.float32)
    soft: Array = cv2.GaussianBlur(flat / flat.sum(), (window, window), rim)
    return soft


class Taps(NamedTuple):
    """A disk, without what is too small to count, for `kernels.disk.defocus`; its arguments explain the parts."""

    disk: Array
    values: Array
    parts: Array
    taps: Array
    close: float


_AT_ONCE = 128
"""Number of taps of two values each whose sum is sure to fit into 16 bits."""
_FEW = 8
"""Number of different weights up to which double precision costs little; sums of few are close to whole ones often."""


@lru_cache
def taps(radius: float, rim: float) -> Taps:
    """Return a disk as lists of the places that have the same weight."""
    whole = disk(radius, rim).astype(np.float64)
    middle = len(whole) // 2
    reach = int(np.abs(np.argwhere(whole > 1e-17) - middle).max())
    part = np.ascontiguousarray(whole[middle - reach : middle + reach + 1, middle - reach : middle + reach + 1])
    half = part[reach:]
    few = len(np.unique(half)) <= _FEW
    alike = half if few else half.round(9)
    places = [np.argwhere(alike == value) - (0, reach) for value in np.unique(alike[alike > 0])]
    pieces = [each[i : i + _AT_ONCE] for each in places for i in range(0, len(each), _AT_ONCE)]
    values = np.array([half[row, column + reach] for row, column in (piece[0] for piece in pieces)])
    edges = np.cumsum([0, *map(len, pieces)])
    if few:
        return Taps(part, values, edges, np.concatenate(pieces), kernels_of_disk.UNSURE)
    # A term and each sum are wrong by half of the last of 24 bits of at most 255, and each weight by its rounding.
    close = 255 * (2.0**-24 * (len(values) + 2) + 1e-9 * part.size)
    return Taps(part, values.astype(np.float32), edges, np.concatenate(pieces), close)


def defocus_blur(image: Array, constants: tuple[float, float], rng: Rng, out: Array) -> None:
    """Put the image out of focus: every point becomes a disk."""
    spread = taps(*constants)
    reach = len(spread.disk) // 2
    wide = cv2.copyMakeBorder(image, *(reach,) * 4, cv2.BORDER_REFLECT_101)
    if not kernels_of_disk.defocus(wide, *spread, out):
        quantise(cv2.filter2D(image / 255.0, -1, disk(*constants)), out)


class Trail(NamedTuple):
    """The offsets of the copies of a moving image, and their weights."""

    weights: Array
    dx: Array
    dy: Array


def trail(radius: float, sigma: float, angle: float) -> Trail:
    """Return the one-sided Gaussian trail that ImageMagick draws at an angle in degrees.

    Steps are one pixel long; a step halfway between two pixels goes to the lower one.
    """
    weights = trail_weights(radius, sigma)
    across, down = weights.size * math.cos(math.radians(angle)), weights.size * math.sin(math.radians(angle))
    length = math.hypot(across, down)
    dx, dy = np.empty(weights.size, np.int64), np.empty(weights.size, np.int64)
    filters.steps(across, length, dx)
    filters.steps(down, length, dy)
    return Trail(weights, dx, dy)


@lru_cache
def trail_weights(radius: float, sigma: float) -> Array:
    """Return the weights of the copies along a trail."""
    steps = np.arange(2 * math.ceil(radius) + 1)
    weights: Array = np.exp(-(steps**2) / (2.0 * sigma * sigma))
    return np.asarray(weights / weights.sum())


def move(image: Array, radius: float, sigma: float, angle: float, out: Array) -> None:
    """Write the motion blur of a uint8 image (H, W, C)."""
    filters.motion(image, *trail(radius, sigma, angle), out)


def motion_blur(image: Array, constants: tuple[float, float], rng: Rng, out: Array) -> None:
    """Move the camera while the shutter is open."""
    radius, sigma = constants
    move(image, radius, sigma, float(rng.uniform(-45, 45)), out)


class Zoom(NamedTuple):
    """For each output pixel of an enlarged axis: the input pixel before it, and how far behind that it lies."""

    before: Array
    behind: Array


@lru_cache
def zoom_axis(size: int, factor: float) -> Zoom:
    """Enlarge the middle of an axis to its old size: first and last pixels of crop and result coincide."""
    crop = math.ceil(size / factor)
    enlarged = round(crop * factor)
    at = (crop - 1) / (enlarged - 1) * (np.arange(size) + (enlarged - size) // 2)
    before = np.minimum(np.floor(at).astype(np.int64), crop - 1)
    return Zoom((size - crop) // 2 + before, np.maximum(at - before, 0))


@lru_cache
def zoom_axes(size: int, factors: tuple[float, ...], dtype: str) -> Zoom:
    """Return the results of `zoom_axis` for several factors, stacked."""
    axes = [zoom_axis(size, factor) for factor in factors]
    return Zoom(np.stack([a.before for a in axes]), np.stack([a.behind for a in axes]).astype(dtype))


def enlarge(image: Array, factors: tuple[float, ...]) -> Array:
    """Return the sum of the image's middle enlarged by each factor, in the image's own precision."""
    out = np.zeros_like(image)
    height, width = image.shape[:2]
    dtype = str(image.dtype)
    filters.zoom(image, *zoom_axes(height, factors, dtype), *zoom_axes(width, factors, dtype), out)
    return out


def zoom_blur(image: Array, constants: tuple[float, float], rng: Rng, out: Array) -> None:
    """Zoom in while the shutter is open."""
    stop, step = constants
    factors = tuple(np.arange(1, stop, step).tolist())
    unit = image / np.float32(255)
    quantise((unit + enlarge(unit, factors)) / np.float32(len(factors) + 1), out)
