"""Digital: contrast, elastic warps, big pixels, JPEG, saturation."""

from functools import lru_cache
from typing import NamedTuple

import cv2
import numpy as np
from scipy import fft

from covshift.corruptions.blur import half_gaussian
from covshift.corruptions.kernels import quantise, sampling, weather
from covshift.corruptions.seeding import Rng
from covshift.support.arrays import Array

LEVELS = np.arange(256).reshape(1, 256, 1) / 255.0


def contrast(image: Array, factor: float, rng: Rng) -> Array:
    """Move each channel towards its mean."""
    means = sampling.channel_means(image)
    table = np.empty((1, 256, 3), np.uint8)
    quantise((LEVELS - means) * factor + means, table)
    return cv2.LUT(image, table)


def saturate(image: Array, constants: tuple[float, float], rng: Rng) -> Array:
    """Make colours paler or stronger."""
    factor, added = constants
    out = np.empty_like(image)
    weather.shift_hsv(image, float(factor), float(added), 0.0, out)
    return out


@lru_cache(maxsize=8)
def gain(height: int, width: int, sigma: float) -> Array:
    """Return the factor by which a Gaussian cut at three sigma damps each cosine of a field with mirrored rims."""
    weights = half_gaussian(sigma, 3.0)

    def along(size: int) -> Array:
        angles = np.pi / size * np.outer(np.arange(size), np.arange(1, weights.size))
        return np.asarray(weights[0] + 2 * np.cos(angles) @ weights[1:])

    return np.outer(along(height), along(width))


def smooth_field(noise: Array, sigma: float) -> Array:
    """Return the Gaussian blur of (N, H, W) with mirrored rims, as a product in cosine space: as fast for any sigma."""
    cosines = fft.dctn(noise, axes=(1, 2)) * gain(*noise.shape[1:], sigma)
    return np.asarray(fft.idctn(cosines, axes=(1, 2)))


def invert(affine: Array) -> Array:
    """Return the inverse of an affine map; all zeros where there is none."""
    linear, shift = affine[:, :2], affine[:, 2]
    determinant = linear[0, 0] * linear[1, 1] - linear[0, 1] * linear[1, 0]
    scale = 1 / determinant if determinant else 0.0
    back = scale * np.array([[linear[1, 1], -linear[0, 1]], [-linear[1, 0], linear[0, 0]]])
    return np.column_stack([back, -(back * shift).sum(axis=1)])


def elastic_transform(image: Array, constants: tuple[float, float, float], rng: Rng) -> Array:
    """Apply a random affine map, then a smooth random displacement."""
    strength, sigma, jitter = constants
    height, width = image.shape[:2]
    arm = min(height, width) // 3
    corners = np.array([width // 2, height // 2]) + arm * np.array([[1, 1], [1, -1], [-1, -1]])
    moved = corners.astype(np.float32) + rng.uniform(-jitter, jitter, (3, 2)).astype(np.float32)
    warped = np.empty(image.shape, np.float32)
    sampling.warp(image / np.float32(255), invert(cv2.getAffineTransform(corners.astype(np.float32), moved)), warped)
    field = (smooth_field(rng.uniform(-1, 1, (2, height, width)), sigma) * strength).astype(np.float32)
    out = np.empty_like(warped)
    sampling.displace(warped, field[0], field[1], out)
    return out


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


def resize(image: Array, height: int, width: int) -> Array:
    """Resample a uint8 image with a box filter."""
    out = np.empty((height, width, image.shape[2]), np.uint8)
    sampling.resample(image, *boxes(image.shape[1], width), *boxes(image.shape[0], height), out)
    return out


def pixelate(image: Array, scale: float, rng: Rng) -> Array:
    """Shrink the image and enlarge it again."""
    height, width = image.shape[:2]
    return resize(resize(image, int(height * scale), int(width * scale)), height, width)


def jpeg_compression(image: Array, quality: int, rng: Rng) -> Array:
    """Save the image as a JPEG of low quality and decode it again."""
    return jpeg(image, quality)


def jpeg(image: Array, quality: int) -> Array:
    """Return the image after encoding as a baseline JPEG with halved chroma."""
    _, data = cv2.imencode(".jpg", cv2.cvtColor(image, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_JPEG_QUALITY, quality])
    decoded: Array | None = cv2.imdecode(data, cv2.IMREAD_COLOR)
    assert decoded is not None, "OpenCV cannot read its own JPEG"
    return np.asarray(cv2.cvtColor(decoded, cv2.COLOR_BGR2RGB))
