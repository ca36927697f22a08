"""Loops that mix a pixel with its neighbours."""

import numpy as np

from covshift.support.arrays import Array
from covshift.support.jit import kernel


@kernel
def gaussian(image: Array, weights: Array, out: Array) -> None:
    """Apply a separable Gaussian over rows, then columns, of an (H, W, C) array; the rim is repeated outwards.

    `weights` is half a kernel, the centre first. Terms are added from the rim of the kernel inwards, and between the
    two directions a value is rounded to the type of `out`.
    """
    height, width, channels = image.shape
    radius, row = weights.size - 1, width * channels
    source, target = image.reshape(height, row), out.reshape(height, row)
    line = np.empty(row + 2 * radius * channels, np.float64)
    total = np.empty(row, np.float64)
    middle = radius * channels
    for y in range(height):
        centre = source[y]
        for i in range(row):
            total[i] = centre[i] * weights[0]
        for j in range(radius, 0, -1):
            above, below, weight = source[max(y - j, 0)], source[min(y + j, height - 1)], weights[j]
            for i in range(row):
                total[i] += (above[i] + below[i]) * weight
        for i in range(row):
            target[y, i] = total[i]
            line[middle + i] = target[y, i]
        for j in range(radius):
            for c in range(channels):
                line[j * channels + c] = line[middle + c]
                line[middle + row + j * channels + c] = line[middle + row - channels + c]
        for i in range(row):
            total[i] = line[middle + i] * weights[0]
        for j in range(radius, 0, -1):
            left, right, weight = line[middle - j * channels :], line[middle + j * channels :], weights[j]
            for i in range(row):
                total[i] += (left[i] + right[i]) * weight
        for i in range(row):
            target[y, i] = total[i]


@kernel
def shuffle(image: Array, offsets: Array, reach: int) -> None:
    """Give each pixel, from the last to the first, the colour of a near one; the first axis of offsets is the pass."""
    passes, rows, columns = offsets.shape[:3]
    height, width = image.shape[:2]
    for k in range(passes):
        for i in range(rows):
            y = height - reach - i
            for j in range(columns):
                x = width - reach - j
                near = image[y + offsets[k, i, j, 1], x + offsets[k, i, j, 0]]
                for c in range(image.shape[2]):
                    image[y, x, c] = near[c]


@kernel
def steps(part: float, length: float, out: Array) -> None:
    """Write how far each step of one pixel along a line has gone in one direction; halves go to the lower pixel."""
    for i in range(out.size):
        out[i] = np.int64(np.ceil(i * part / length - 0.5))


@kernel
def motion(image: Array, weights: Array, dx: Array, dy: Array, out: Array) -> None:
    """Apply ImageMagick's motion blur: a weighted sum of shifted copies, rounded to 16 bits and truncated to 8."""
    height, width, channels = image.shape
    row, reach = width * channels, weights.size
    wide = np.empty((height, row + 2 * reach * channels), np.float64)
    for y in range(height):
        for i in range(-reach, width + reach):
            x = min(max(i, 0), width - 1)
            for c in range(channels):
                wide[y, (i + reach) * channels + c] = 257.0 * image[y, x, c]
    total = np.empty(row, np.float64)
    for y in range(height):
        total[:] = 0.0
        for k in range(weights.size):
            shifted = wide[min(max(y + dy[k], 0), height - 1), (reach + dx[k]) * channels :]
            weight = weights[k]
            for i in range(row):
                total[i] += weight * shifted[i]
        target = out[y].reshape(-1)
        for i in range(row):
            target[i] = np.uint8(np.uint32(min(total[i], 65535.0) + 0.5) // np.uint32(257))


@kernel
def zoom(image: Array, rows: Array, down: Array, columns: Array, right: Array, out: Array) -> None:
    """Add enlarged copies of an (H, W, C) image to `out`.

    Of copy k, output pixel (y, x) lies between input rows `rows[k, y]` and the next, at the share `down[k, y]` of the
    way, and between columns `columns[k, x]` and the next, at `right[k, x]`.
    """
    height, width, channels = image.shape
    row = width * channels
    source, target = image.reshape(height, row), out.reshape(height, row)
    line = np.zeros(row + channels, image.dtype)
    index, part = np.empty(row, np.uint64), np.empty(row, image.dtype)
    for k in range(rows.shape[0]):
        for x in range(width):
            for c in range(channels):
                index[x * channels + c] = columns[k, x] * channels + c
                part[x * channels + c] = right[k, x]
        for y in range(height):
            first, second = source[rows[k, y]], source[min(rows[k, y] + 1, height - 1)]
            share = down[k, y]
            for i in range(row):
                line[i] = first[i] + share * (second[i] - first[i])
            for i in range(row):
                value = line[index[i]]
                target[y, i] += value + part[i] * (line[index[i] + np.uint64(channels)] - value)
