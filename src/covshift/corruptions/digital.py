"""Digital: contrast, elastic warps, big pixels, JPEG, saturation."""

from functools import lru_cache
from typing import NamedTuple

import cv2
import numpy as np
from scipy import fft

from covshift.corruptions.blur import half_gaussian
from covshift.corruptions.kernels import jpeg as codec
from covshift.corruptions.kernels import quantise, sampling, weather
from covshift.corruptions.seeding import Rng
from covshift.support.arrays import Array

LEVELS = np.arange(256).reshape(1, 256, 1) / 255.0

LUMA = np.array(
    [
        *(16, 11, 10, 16, 24, 40, 51, 61),
        *(12, 12, 14, 19, 26, 58, 60, 55),
        *(14, 13, 16, 24, 40, 57, 69, 56),
        *(14, 17, 22, 29, 51, 87, 80, 62),
        *(18, 22, 37, 56, 68, 109, 103, 77),
        *(24, 35, 55, 64, 81, 104, 113, 92),
        *(49, 64, 78, 87, 103, 121, 120, 101),
        *(72, 92, 95, 98, 112, 100, 103, 99),
    ]
)
"""The JPEG standard's divisors for luma at quality 50, by frequency."""
CHROMA = np.full(64, 99)
CHROMA.reshape(8, 8)[:4, :4] = [(17, 18, 24, 47), (18, 21, 26, 66), (24, 26, 56, 99), (47, 66, 99, 99)]
"""Those for chroma."""

_SMALL = 48
"""Number of pixels a side up to which a product of matrices is faster than cosine transforms."""


def contrast(image: Array, factor: float, rng: Rng, out: Array) -> None:
    """Move each channel towards its mean."""
    means = sampling.channel_means(image)
    table = np.empty((1, 256, 3), np.uint8)
    quantise((LEVELS - means) * factor + means, table)
    cv2.LUT(image, table, out)


def saturate(image: Array, constants: tuple[float, float], rng: Rng, out: Array) -> None:
    """Make colours paler or stronger."""
    factor, added = constants
    weather.shift_hsv(image, float(factor), float(added), 0.0, out)


@lru_cache(maxsize=8)
def damping(size: int, sigma: float) -> Array:
    """Return the factor by which a Gaussian cut at three sigma damps each cosine of an axis with mirrored rims."""
    weights = half_gaussian(sigma, 3.0)
    angles = np.pi / size * np.outer(np.arange(size), np.arange(1, weights.size))
    return np.asarray(weights[0] + 2 * np.cos(angles) @ weights[1:])


@lru_cache(maxsize=8)
def gain(height: int, width: int, sigma: float) -> Array:
    """Return the factor by which it damps each cosine of a field."""
    return np.outer(damping(height, sigma), damping(width, sigma))


@lru_cache(maxsize=8)
def blur_matrix(size: int, sigma: float) -> Array:
    """Return the matrix, which is symmetric, of the same blur of an axis."""
    return np.asarray(fft.idct(damping(size, sigma)[:, None] * fft.dct(np.eye(size), axis=0), axis=0))


def smooth_field(noise: Array, sigma: float) -> Array:
    """Return the Gaussian blur of (N, H, W) with mirrored rims, as a product in cosine space: as fast for any sigma."""
    height, width = noise.shape[1:]
    if max(height, width) <= _SMALL:
        return np.asarray(blur_matrix(height, sigma) @ noise @ blur_matrix(width, sigma))
    cosines = fft.dctn(noise, axes=(1, 2)) * gain(height, width, sigma)
    return np.asarray(fft.idctn(cosines, axes=(1, 2)))


def invert(affine: Array) -> Array:
    """Return the inverse of an affine map; all zeros where there is none."""
    (a, b, x), (c, d, y) = affine.tolist()  # plain numbers, which are faster than arrays of four
    determinant = a * d - b * c
    scale = 1 / determinant if determinant else 0.0
    a, b, c, d = scale * d, scale * -b, scale * -c, scale * a
    return np.array([[a, b, -(a * x + b * y)], [c, d, -(c * x + d * y)]])


def elastic_transform(image: Array, constants: tuple[float, float, float], rng: Rng, out: Array) -> None:
    """Apply a random affine map, then a smooth random displacement."""
    strength, sigma, jitter = constants
    height, width = image.shape[:2]
    arm = min(height, width) // 3
    corners = np.array([width // 2, height // 2]) + arm * np.array([[1, 1], [1, -1], [-1, -1]])
    moved = corners.astype(np.float32) + rng.uniform(-jitter, jitter, (3, 2)).astype(np.float32)
    warped = np.empty(image.shape, np.float32)
    sampling.warp(image / np.float32(255), invert(cv2.getAffineTransform(corners.astype(np.float32), moved)), warped)
    field = (smooth_field(rng.uniform(-1, 1, (2, height, width)), sigma) * strength).astype(np.float32)
    displaced = np.empty_like(warped)
    sampling.displace(warped, field[0], field[1], displaced)
    quantise(displaced, out)


class Boxes(NamedTuple):
    """For each output pixel of a resampled axis: its first input pixel, and fixed-point weights from there on."""

    first: Array
    weights: Array


@lru_cache
def boxes(size: int, target: int) -> Boxes:
    """Return Pillow's box filter from one length to another, in 22-bit fixed point."""
    scale = size / target
    support, centre = max(scale, 1.0) / 2, (np.arange(target) + 0.5) * scale
    first = np.maximum((centre - support + 0.5).astype(np.int64), 0)
    last = np.minimum((centre + support + 0.5).astype(np.int64), size)
    taps = np.arange((last - first).max())
    # Rows shorter than the longest one start earlier, with weight zero, so as not to read beyond the image.
    first = np.minimum(first, size - taps.size)
    offset = (first[:, None] + taps - centre[:, None] + 0.5) / max(scale, 1.0)
    inside = (offset > -0.5) & (offset <= 0.5)
    weights = inside / inside.sum(axis=1, keepdims=True)
    return Boxes(first, (0.5 + weights * (1 << 22)).astype(np.int32))


def resize(image: Array, out: Array) -> None:
    """Resample a uint8 image to the size of another one with a box filter, columns first."""
    # Rows are resampled many values at once, columns are not; and to transpose an image takes little.
    wide = np.empty((out.shape[1], image.shape[0], 3), np.uint8)
    _resize_rows(cv2.transpose(image), wide)
    _resize_rows(cv2.transpose(wide), out)


def _resize_rows(image: Array, out: Array) -> None:
    first, weights = boxes(len(image), len(out))
    if weights.shape[1] == 1:
        image.take(first, axis=0, out=out, mode="clip")  # in another mode NumPy takes a detour
    else:
        sampling.resample_rows(image.reshape(len(image), -1), first, weights, out.reshape(len(out), -1))


def pixelate(image: Array, scale: float, rng: Rng, out: Array) -> None:
    """Shrink the image and enlarge it again."""
    height, width = int(image.shape[0] * scale), int(image.shape[1] * scale)
    small = np.empty((height, width, 3), np.uint8)
    resize(image, small)
    resize(small, out)


def jpeg_compression(image: Array, quality: int, rng: Rng, out: Array) -> None:
    """Save the image as a JPEG of low quality and decode it again."""
    jpeg(image, quality, out)


def jpeg(image: Array, quality: int, out: Array) -> None:
    """Write what is left of an image after encoding as a baseline JPEG with halved chroma; `out` may be the image."""
    codec.recompress(image, *divisors(quality), out)


@lru_cache
def divisors(quality: int) -> tuple[Array, Array]:
    """Return the tables of luma and chroma that a JPEG of this quality divides by, column by column."""
    scale = 5000 // quality if quality < 50 else 200 - 2 * quality
    tables = (table.reshape(8, 8).T.ravel() for table in (LUMA, CHROMA))
    luma, chroma = (((table * scale + 50) // 100).clip(1, 255).astype(np.int32) for table in tables)
    return luma, chroma
