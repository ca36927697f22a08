"""Loops that fetch pixels from elsewhere."""

import numpy as np

from covshift.support.arrays import Array
from covshift.support.jit import kernel


@kernel
def reflect(position: float, size: int) -> float:
    """Fold a coordinate back into [-0.5, size - 0.5], the rim pixel counted twice."""
    if position < -0.5 or position > size - 0.5:
        position = (position + 0.5) % (2.0 * size) - 0.5
        if position > size - 0.5:
            position = 2.0 * size - 1.0 - position
    return position


@kernel
def mirror(index: int, size: int) -> int:
    """Fold an index back into the axis, the rim pixel counted once."""
    index = abs(index) % max(2 * size - 2, 1)
    return 2 * size - 2 - index if index >= size else index


@kernel
def warp(image: Array, inverse: Array, out: Array) -> None:
    """Apply an affine map with mirrored rims, sampled on a grid of 1/32 pixel in fixed point, as OpenCV 4 does.

    OpenCV 5 samples exactly, which moves what a benchmark made with OpenCV 4 shows by up to four levels.
    """
    height, width = image.shape[:2]
    across, along = np.empty(width, np.int64), np.empty(width, np.int64)
    for x in range(width):
        across[x], along[x] = np.rint(inverse[0, 0] * x * 1024), np.rint(inverse[1, 0] * x * 1024)
    for y in range(height):
        x0 = np.int64(np.rint((inverse[0, 1] * y + inverse[0, 2]) * 1024)) + 16
        y0 = np.int64(np.rint((inverse[1, 1] * y + inverse[1, 2]) * 1024)) + 16
        for x in range(width):
            u, v = (x0 + across[x]) >> 5, (y0 + along[x]) >> 5
            left, top, right, bottom = u >> 5, v >> 5, (u >> 5) + 1, (v >> 5) + 1
            if left < 0 or top < 0 or right >= width or bottom >= height:
                left, right = mirror(left, width), mirror(right, width)
                top, bottom = mirror(top, height), mirror(bottom, height)
            a, b = np.float32(u & 31) / np.float32(32), np.float32(v & 31) / np.float32(32)
            c, d = np.float32(1) - a, np.float32(1) - b
            for k in range(3):
                out[y, x, k] = (
                    image[top, left, k] * (d * c)
                    + image[top, right, k] * (d * a)
                    + image[bottom, left, k] * (b * c)
                    + image[bottom, right, k] * (b * a)
                )


@kernel
def displace(image: Array, dx: Array, dy: Array, out: Array) -> None:
    """Sample the image bilinearly at each pixel's own place plus (dy, dx)."""
    height, width = image.shape[:2]
    for y in range(height):
        for x in range(width):
            v, u = reflect(y + np.float64(dy[y, x]), height), reflect(x + np.float64(dx[y, x]), width)
            i, j = int(np.floor(v)), int(np.floor(u))
            b, a = v - i, u - j
            top, bottom = max(i, 0), min(i + 1, height - 1)
            left, right = max(j, 0), min(j + 1, width - 1)
            for c in range(3):
                out[y, x, c] = (
                    image[top, left, c] * (1.0 - b) * (1.0 - a)
                    + image[top, right, c] * (1.0 - b) * a
                    + image[bottom, left, c] * b * (1.0 - a)
                    + image[bottom, right, c] * b * a
                )


@kernel
def channel_means(image: Array) -> Array:
    """Return the mean of each channel, white being 1, summed pixel by pixel as NumPy does over the first two axes."""
    units, sums = np.arange(256) / 255.0, np.zeros(3)
    for y in range(image.shape[0]):
        for x in range(image.shape[1]):
            for c in range(3):
                sums[c] += units[image[y, x, c]]
    means: Array = sums / (image.shape[0] * image.shape[1])
    return means


@kernel
def resample_rows(image: Array, first: Array, weights: Array, out: Array) -> None:
    """Resample the rows of a table in 22-bit fixed point, as Pillow does it.

    Output row y is the sum of input rows from `first[y]` on, weighted by `weights[y]`.
    """
    size, taps = image.shape[1], weights.shape[1]
    sums = np.empty(size, np.int32)
    for y in range(first.size):
        line, weight = image[first[y]], weights[y, 0]
        for i in range(size):
            sums[i] = np.int32(1 << 21) + weight * np.int32(line[i])
        for k in range(1, taps - 1):
            line, weight = image[first[y] + k], weights[y, k]
            for i in range(size):
                sums[i] += weight * np.int32(line[i])
        line, weight = image[first[y] + taps - 1], weights[y, taps - 1] if taps > 1 else np.int32(0)
        target = out[y]
        for i in range(size):
            target[i] = np.uint8((sums[i] + weight * np.int32(line[i])) >> 22)
