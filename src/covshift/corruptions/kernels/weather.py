"""Loops of snow, ice, fog and light."""

import numpy as np

from covshift.corruptions.kernels import level
from covshift.support.arrays import Array
from covshift.support.jit import kernel


@kernel
def after(index: int, count: int) -> int:
    """Return the next index on a ring; a division here would take longer than all the rest."""
    return index + 1 if index + 1 < count else 0


@kernel
def before(index: int, count: int) -> int:
    """Return the previous index on a ring."""
    return index - 1 if index > 0 else count - 1


@kernel
def wobble(amplitude: float, chance: float) -> float:
    """Return a number up to the square of the amplitude, which is how the published clouds got their contrast."""
    return amplitude * (-amplitude + (amplitude + amplitude) * chance)


@kernel
def plasma(noise: Array, side: int, decay: float) -> Array:
    """Return fractal clouds in [0, 1] by diamonds and squares on a torus, from side * side - 1 numbers in [0, 1)."""
    cloud = np.zeros((side, side), np.float64)
    amplitude, step, used = 100.0, side, 0
    while step >= 2:
        half, cells = step // 2, side // step
        for i in range(cells):
            for j in range(cells):
                y, x, down, right = i * step, j * step, after(i, cells) * step, after(j, cells) * step
                total = (cloud[y, x] + cloud[down, x]) + (cloud[y, right] + cloud[down, right])
                cloud[y + half, x + half] = total / 4 + wobble(amplitude, noise[used])
                used += 1
        for i in range(cells):
            for j in range(cells):
                y, x, up, right = i * step, j * step, before(i, cells) * step, after(j, cells) * step
                total = (cloud[y + half, x + half] + cloud[up + half, x + half]) + (cloud[y, x] + cloud[y, right])
                cloud[y, x + half] = total / 4 + wobble(amplitude, noise[used])
                used += 1
        for i in range(cells):
            for j in range(cells):
                y, x, left, down = i * step, j * step, before(j, cells) * step, after(i, cells) * step
                total = (cloud[y + half, x + half] + cloud[y + half, left + half]) + (cloud[y, x] + cloud[down, x])
                cloud[y + half, x] = total / 4 + wobble(amplitude, noise[used])
                used += 1
        step = half
        amplitude /= decay
    cloud -= cloud.min()
    cloud /= cloud.max()
    return cloud


@kernel
def add_fog(image: Array, cloud: Array, strength: float, out: Array) -> None:
    """Add clouds to an image, scaled back so that its brightest value stays what it was."""
    brightest = image.max() / 255.0
    row = np.empty(3 * image.shape[1])
    for y in range(image.shape[0]):
        for x in range(image.shape[1]):
            for c in range(3):
                row[3 * x + c] = strength * cloud[y, x]
        source, target = image[y].reshape(-1), out[y].reshape(-1)
        for i in range(row.size):
            target[i] = level((source[i] / 255.0 + row[i]) * brightest / (brightest + strength))


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
            out[y, x, 0], out[y, x, 1], out[y, x, 2] = level(r), level(g), level(b)


@kernel
def blend(image: Array, ice: Array, kept: float, added: float, out: Array) -> None:
    """Return a weighted sum of two uint8 images, clipped at white and truncated to whole levels."""
    for y in range(image.shape[0]):
        for x in range(image.shape[1]):
            for c in range(3):
                out[y, x, c] = np.uint8(np.int32(min(kept * image[y, x, c] + added * ice[y, x, c], 255.0)))


@kernel
def snowfall(unit: Array, grey: Array, flakes: Array, keep: float, out: Array) -> None:
    """Whiten a float32 image, then add the flakes and the flakes turned by half a circle."""
    height, width = unit.shape[:2]
    share, rest = np.float32(keep), np.float32(1 - keep)
    for y in range(height):
        for x in range(width):
            white = grey[y, x] * np.float32(1.5) + np.float32(0.5)
            here, there = flakes[y, x, 0] / 255.0, flakes[height - 1 - y, width - 1 - x, 0] / 255.0
            for c in range(3):
                scene = share * unit[y, x, c] + rest * max(unit[y, x, c], white)
                out[y, x, c] = level(scene + here + there)


@kernel
def tint(image: Array, cover: Array, colour: Array, kept: Array, out: Array) -> None:
    """Return a share of the image where it is covered, plus the colour times the cover, in single precision."""
    for y in range(image.shape[0]):
        for x in range(image.shape[1]):
            for c in range(3):
                unit = np.float32(image[y, x, c]) / np.float32(255)
                out[y, x, c] = level(unit * kept[y, x] + colour[c] * cover[y, x])
