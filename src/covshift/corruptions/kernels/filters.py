"""Loops that mix a pixel with its neighbours."""

import numpy as np

from covshift.corruptions.kernels import level
from covshift.support.arrays import Array
from covshift.support.jit import kernel


@kernel
def gaussian(image: Array, weights: Array, out: Array) -> None:
    """Apply a separable Gaussian over rows, then columns, of an (H, W, C) array; the rim is repeated outwards.

    `weights` is half a kernel, the centre first. Terms are added from the rim of the kernel inwards, and between the
    two directions a value is rounded to the type of `out`.
    """
    height, width, channels = image.shape
    source, target = image.reshape(height, width * channels), out.reshape(height, width * channels)
    total, line = np.empty(width * channels), _line(width, channels, weights)
    for y in range(height):
        down(source, y, height, weights, total)
        for i in range(total.size):
            target[y, i] = total[i]
        across(target[y], weights, channels, line, total)
        for i in range(total.size):
            target[y, i] = total[i]


@kernel
def gaussian_levels(image: Array, weights: Array, out: Array) -> None:
    """Apply a Gaussian to an image of uint8 as `gaussian` does to one on the scale where white is 1; write levels."""
    height, width, channels = image.shape
    source, target = image.reshape(height, width * channels), out.reshape(height, width * channels)
    total, line = np.empty(width * channels), _line(width, channels, weights)
    ready, units = 0, np.empty((height, width * channels))
    for y in range(height):
        # Rows are made just before they are needed, and are still in the cache then.
        for row in range(ready, min(y + weights.size, height)):
            for i in range(total.size):
                units[row, i] = source[row, i] / 255.0
        ready = max(ready, min(y + weights.size, height))
        down(units, y, height, weights, total)
        across(total, weights, channels, line, total)
        for i in range(total.size):
            target[y, i] = level(total[i])


@kernel
def _line(width: int, channels: int, weights: Array) -> Array:
    """Return room for a row and the rims around it."""
    return np.empty((width + 2 * (weights.size - 1)) * channels)


@kernel
def down(source: Array, y: int, height: int, weights: Array, total: Array) -> None:
    """Write the weighted sum of the rows around row `y`."""
    centre, weight = source[y], weights[0]
    for i in range(total.size):
        total[i] = centre[i] * weight
    j = weights.size - 1
    while j >= 4:
        add_four(
            *(source[max(y - j, 0)], source[min(y + j, height - 1)]),
            *(source[max(y - j + 1, 0)], source[min(y + j - 1, height - 1)]),
            *(source[max(y - j + 2, 0)], source[min(y + j - 2, height - 1)]),
            *(source[max(y - j + 3, 0)], source[min(y + j - 3, height - 1)]),
            *(weights[j - 3 : j + 1], total),
        )
        j -= 4
    for k in range(j, 0, -1):
        add_pair(source[max(y - k, 0)], source[min(y + k, height - 1)], weights[k], total)


@kernel
def across(row: Array, weights: Array, channels: int, line: Array, total: Array) -> None:
    """Write the weighted sums of the pixels along a row, which may be `total` itself."""
    radius, size = weights.size - 1, total.size
    left, middle, right = line[: radius * channels], line[radius * channels :], line[radius * channels + size :]
    for i in range(size):
        middle[i] = row[i]
    for j in range(0, radius * channels, channels):
        for c in range(channels):
            left[j + c], right[j + c] = middle[c], middle[size - channels + c]
    weight = weights[0]
    for i in range(size):
        total[i] = middle[i] * weight
    j = radius
    while j >= 4:
        left, right = line[(radius - j) * channels :], line[(radius + j - 3) * channels :]
        add_four(
            *(left, right[3 * channels :], left[channels:], right[2 * channels :]),
            *(left[2 * channels :], right[channels:], left[3 * channels :], right),
            *(weights[j - 3 : j + 1], total),
        )
        j -= 4
    for k in range(j, 0, -1):
        add_pair(line[(radius - k) * channels :], line[(radius + k) * channels :], weights[k], total)


@kernel
def add_pair(a: Array, b: Array, weight: float, total: Array) -> None:
    """Add two rows, weighted."""
    for i in range(total.size):
        total[i] += (a[i] + b[i]) * weight


@kernel
def add_four(
    a: Array, b: Array, c: Array, d: Array, e: Array, f: Array, g: Array, h: Array, weights: Array, total: Array
) -> None:
    """Add four pairs of rows, the first of which has the last weight, one after the other; sums stay in registers."""
    first, second, third, fourth = weights[3], weights[2], weights[1], weights[0]
    for i in range(total.size):
        value = total[i] + (a[i] + b[i]) * first
        value = value + (c[i] + d[i]) * second
        value = value + (e[i] + f[i]) * third
        total[i] = value + (g[i] + h[i]) * fourth


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
