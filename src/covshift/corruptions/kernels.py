"""The loops that NumPy cannot say, compiled by numba and cached on disk.

Where the published code works in double precision, so do these, one operation at a time and in the same order: an image
of one colour sits exactly on the edge that the final truncation cuts at, and there one rounding decides a whole level.
That is also why none of them may be compiled with fast math.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np

F = TypeVar("F", bound=Callable[..., Any])
Array = np.ndarray[Any, Any]


def kernel(function: F) -> F:
    """Compile for the machine at the first call; runs without the interpreter lock."""
    return cast(F, numba.njit(cache=True, nogil=True, error_model="numpy")(function))


@kernel
def quantise(values: Array, out: Array) -> None:
    """Clip to [0, 1], scale to levels and cut off what is behind the point, into a uint8 array."""
    flat, target = values.reshape(-1), out.reshape(-1)
    low, high = values.dtype.type(0), values.dtype.type(1)
    scale = values.dtype.type(255)
    for i in range(flat.size):
        target[i] = np.uint8(np.int32(min(max(flat[i], low), high) * scale))


@kernel
def add_noise(image: Array, noise: Array, scale: float, out: Array) -> None:
    """Image plus scaled noise, on the scale where white is 1."""
    for i in range(image.size):
        out[i] = image[i] / 255.0 + scale * noise[i]


@kernel
def speckle(image: Array, noise: Array, scale: float, out: Array) -> None:
    """Image plus noise in proportion to it."""
    for i in range(image.size):
        x = image[i] / 255.0
        out[i] = x + x * (scale * noise[i])


@kernel
def salt_and_pepper(image: Array, hit: Array, salt: Array, amount: float, out: Array) -> None:
    """White or black where `hit` is below `amount`, the image elsewhere."""
    for i in range(image.size):
        out[i] = image[i] / 255.0
        if hit[i] < amount:
            out[i] = 1.0 if salt[i] < 0.5 else 0.0


@kernel
def invert_poisson(image: Array, chance: Array, cumulative: Array, starts: Array, out: Array) -> None:
    """The least count whose distribution function is above the chance, for each value's own rate."""
    last = cumulative.shape[1] - 1
    for i in range(image.size):
        level, u = image[i], chance[i]
        count = starts[level, int(u * 256)]
        while count < last and cumulative[level, count] <= u:
            count += 1
        out[i] = count


@kernel
def gaussian(image: Array, weights: Array, out: Array) -> None:
    """Separable Gaussian over rows, then columns, of an (H, W, C) array; the rim is repeated outwards.

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
    """Glass: each pixel, from the last to the first, takes the colour of a near one; passes are offsets' first axis."""
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
def motion(image: Array, weights: Array, dx: Array, dy: Array, out: Array) -> None:
    """ImageMagick's motion blur: a weighted sum over shifted copies, rounded to 16-bit levels and cut to 8 bits."""
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


@kernel
def plasma(noise: Array, side: int, decay: float) -> Array:
    """Fractal clouds in [0, 1] by diamonds and squares on a torus, from side * side - 1 numbers in [0, 1)."""
    cloud = np.zeros((side, side), np.float64)
    amplitude, step, used = 100.0, side, 0
    while step >= 2:
        half, cells = step // 2, side // step
        for i in range(cells):
            for j in range(cells):
                y, x, down, right = i * step, j * step, (i + 1) % cells * step, (j + 1) % cells * step
                total = (cloud[y, x] + cloud[down, x]) + (cloud[y, right] + cloud[down, right])
                wobble = -amplitude + (amplitude + amplitude) * noise[used]
                cloud[y + half, x + half] = total / 4 + amplitude * wobble
                used += 1
        for i in range(cells):
            for j in range(cells):
                y, x, up, right = i * step, j * step, (i - 1) % cells * step, (j + 1) % cells * step
                total = (cloud[y + half, x + half] + cloud[up + half, x + half]) + (cloud[y, x] + cloud[y, right])
                wobble = -amplitude + (amplitude + amplitude) * noise[used]
                cloud[y, x + half] = total / 4 + amplitude * wobble
                used += 1
        for i in range(cells):
            for j in range(cells):
                y, x, left, down = i * step, j * step, (j - 1) % cells * step, (i + 1) % cells * step
                total = (cloud[y + half, x + half] + cloud[y + half, left + half]) + (cloud[y, x] + cloud[down, x])
                wobble = -amplitude + (amplitude + amplitude) * noise[used]
                cloud[y + half, x] = total / 4 + amplitude * wobble
                used += 1
        step = half
        amplitude /= decay
    cloud -= cloud.min()
    cloud /= cloud.max()
    return cloud


@kernel
def add_fog(image: Array, cloud: Array, strength: float, out: Array) -> None:
    """Image plus clouds, scaled back so that its brightest value stays what it was."""
    brightest = image.max() / 255.0
    for y in range(image.shape[0]):
        for x in range(image.shape[1]):
            grey = strength * cloud[y, x]
            for c in range(image.shape[2]):
                out[y, x, c] = (image[y, x, c] / 255.0 + grey) * brightest / (brightest + strength)


@kernel
def shift_hsv(image: Array, factor: float, saturation: float, value: float, out: Array) -> None:
    """Scale and shift the saturation, shift the value, in hue, saturation and value."""
    for y in range(image.shape[0]):
        for x in range(image.shape[1]):
            r, g, b = image[y, x, 0] / 255.0, image[y, x, 1] / 255.0, image[y, x, 2] / 255.0
            top = max(r, g, b)
            spread = top - min(r, g, b)
            h, s, v = 0.0, 0.0, top
            if spread > 0.0:
                s = spread / top
                # Of equal largest channels the last one gives the hue.
                if b == top:
                    h = 4.0 + (r - g) / spread
                elif g == top:
                    h = 2.0 + (b - r) / spread
                else:
                    h = (g - b) / spread
                h = h / 6.0
                if h < 0.0:
                    h += 1.0
            s = min(max(s * factor + saturation, 0.0), 1.0)
            v = min(max(v + value, 0.0), 1.0)
            sector = np.floor(h * 6.0)
            f = h * 6.0 - sector
            p, q, t = v * (1.0 - s), v * (1.0 - f * s), v * (1.0 - (1.0 - f) * s)
            side = int(sector) % 6
            if side == 0:
                r, g, b = v, t, p
            elif side == 1:
                r, g, b = q, v, p
            elif side == 2:
                r, g, b = p, v, t
            elif side == 3:
                r, g, b = p, q, v
            elif side == 4:
                r, g, b = t, p, v
            else:
                r, g, b = v, p, q
            out[y, x, 0], out[y, x, 1], out[y, x, 2] = r, g, b


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
    """Affine map with mirrored rims, sampled on a grid of 1/32 pixel in fixed point, as OpenCV 4 does it.

    OpenCV 5 samples exactly, which moves what a benchmark made with OpenCV 4 shows by up to four levels.
    """
    height, width, channels = image.shape
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
            for k in range(channels):
                out[y, x, k] = (
                    image[top, left, k] * (d * c)
                    + image[top, right, k] * (d * a)
                    + image[bottom, left, k] * (b * c)
                    + image[bottom, right, k] * (b * a)
                )


@kernel
def displace(image: Array, dx: Array, dy: Array, out: Array) -> None:
    """Bilinear samples of the image at each pixel's own place plus (dy, dx)."""
    height, width, channels = image.shape
    for y in range(height):
        for x in range(width):
            v, u = reflect(y + np.float64(dy[y, x]), height), reflect(x + np.float64(dx[y, x]), width)
            i, j = int(np.floor(v)), int(np.floor(u))
            b, a = v - i, u - j
            top, bottom = max(i, 0), min(i + 1, height - 1)
            left, right = max(j, 0), min(j + 1, width - 1)
            for c in range(channels):
                out[y, x, c] = (
                    image[top, left, c] * (1.0 - b) * (1.0 - a)
                    + image[top, right, c] * (1.0 - b) * a
                    + image[bottom, left, c] * b * (1.0 - a)
                    + image[bottom, right, c] * b * a
                )


@kernel
def resample(image: Array, left: Array, across: Array, top: Array, down: Array, out: Array) -> None:
    """Resample columns, then rows, in 22-bit fixed point with 8 bits in between, as Pillow does it.

    Output column x is the sum of input columns from `left[x]` on, weighted by `across[x]`; rows likewise.
    """
    height, width, channels = image.shape[0], left.size, image.shape[2]
    half, row = np.int32(1 << 21), width * channels
    wide = np.empty((height, row), np.uint8)
    for y in range(height):
        for x in range(width):
            for c in range(channels):
                total = half
                for k in range(across.shape[1]):
                    total += across[x, k] * np.int32(image[y, left[x] + k, c])
                wide[y, x * channels + c] = np.uint8(total >> 22)
    sums = np.empty(row, np.int32)
    for y in range(top.size):
        sums[:] = half
        for k in range(down.shape[1]):
            line, weight = wide[top[y] + k], down[y, k]
            for i in range(row):
                sums[i] += weight * np.int32(line[i])
        target = out[y].reshape(-1)
        for i in range(row):
            target[i] = np.uint8(sums[i] >> 22)


@kernel
def blend(image: Array, ice: Array, kept: float, added: float, out: Array) -> None:
    """A weighted sum of two uint8 images, cut at white and to whole levels."""
    for y in range(image.shape[0]):
        for x in range(image.shape[1]):
            for c in range(image.shape[2]):
                out[y, x, c] = np.uint8(np.int32(min(kept * image[y, x, c] + added * ice[y, x, c], 255.0)))


@kernel
def snowfall(unit: Array, grey: Array, flakes: Array, keep: float, out: Array) -> None:
    """Whiten a float32 image, then add the flakes and the flakes turned by half a circle."""
    height, width, channels = unit.shape
    share, rest = np.float32(keep), np.float32(1 - keep)
    for y in range(height):
        for x in range(width):
            white = grey[y, x] * np.float32(1.5) + np.float32(0.5)
            here, there = flakes[y, x, 0] / 255.0, flakes[height - 1 - y, width - 1 - x, 0] / 255.0
            for c in range(channels):
                out[y, x, c] = share * unit[y, x, c] + rest * max(unit[y, x, c], white) + here + there
