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
    most, row = brightest + strength, np.empty(3 * image.shape[1])
    for y in range(image.shape[0]):
        spread(cloud[y], strength, row)
        source, target = image[y].reshape(-1), out[y].reshape(-1)
        for i in range(row.size):
            target[i] = level((source[i] / 255.0 + row[i]) * brightest / most)


@kernel
def spread(values: Array, factor: float | np.float32, row: Array) -> None:
    """Write each value three times, scaled: once for each colour."""
    for x in range(row.size // 3):
        value = factor * values[x]
        row[3 * x], row[3 * x + 1], row[3 * x + 2] = value, value, value


@kernel
def shift_hsv(image: Array, factor: float, saturation: float, value: float, out: Array) -> None:
    """Scale and shift the saturation, shift the value, in hue, saturation and value."""
    width = image.shape[1]
    reds, greens, blues = np.empty(width), np.empty(width), np.empty(width)
    for y in range(image.shape[0]):
        source, target = image[y].reshape(-1), out[y].reshape(-1)
        for x in range(width):
            reds[x], greens[x], blues[x] = source[3 * x] / 255.0, source[3 * x + 1] / 255.0, source[3 * x + 2] / 255.0
        shift_row(reds, greens, blues, factor, saturation, value)
        for x in range(width):
            target[3 * x], target[3 * x + 1], target[3 * x + 2] = level(reds[x]), level(greens[x]), level(blues[x])


@kernel
def shift_row(reds: Array, greens: Array, blues: Array, factor: float, saturation: float, value: float) -> None:
    """Do the same with a row of colours, in place, without a branch, so that the compiler can do several at once."""
    for x in range(reds.size):
        r, g, b = reds[x], greens[x], blues[x]
        top, bottom = max(max(r, g), b), min(min(r, g), b)
        spread = top - bottom
        grey = spread == 0.0
        safe = 1.0 if grey else spread
        # Of equal largest channels the last one gives the hue.
        h = 4.0 + (r - g) / safe if b == top else 2.0 + (b - r) / safe if g == top else (g - b) / safe
        h = h / 6.0
        h = h + 1.0 if h < 0.0 else h
        h = 0.0 if grey else h
        s = spread / (1.0 if grey else top)
        s = min(max(s * factor + saturation, 0.0), 1.0)
        v = min(max(top + value, 0.0), 1.0)
        sector = np.floor(h * 6.0)
        f = h * 6.0 - sector
        p, q, t = v * (1.0 - s), v * (1.0 - f * s), v * (1.0 - (1.0 - f) * s)
        side = 0.0 if sector == 6.0 else sector
        reds[x] = q if side == 1.0 else p if side == 2.0 or side == 3.0 else t if side == 4.0 else v
        greens[x] = t if side == 0.0 else v if side == 1.0 or side == 2.0 else q if side == 3.0 else p
        blues[x] = t if side == 2.0 else v if side == 3.0 or side == 4.0 else q if side == 5.0 else p


@kernel
def blend(image: Array, ice: Array, top: int, left: int, kept: float, added: float, out: Array) -> None:
    """Write a weighted sum of an image and of a piece of a larger one, clipped at white and truncated to levels."""
    for y in range(image.shape[0]):
        source, frozen, target = image[y].reshape(-1), ice[top + y].reshape(-1)[3 * left :], out[y].reshape(-1)
        for i in range(target.size):
            target[i] = np.uint8(np.int32(min(kept * source[i] + added * frozen[i], 255.0)))


@kernel
def snowfall(unit: Array, grey: Array, flakes: Array, keep: float, out: Array) -> None:
    """Whiten a float32 image, then add the flakes and the flakes turned by half a circle."""
    height, width = unit.shape[:2]
    share, rest = np.float32(keep), np.float32(1 - keep)
    white, here, there = np.empty(3 * width, np.float32), np.empty(3 * width), np.empty(3 * width)
    for y in range(height):
        spread(grey[y], np.float32(1.5), white)
        spread(flakes[y].reshape(-1), 1.0, here)
        spread(flakes[height - 1 - y].reshape(-1)[::-1], 1.0, there)
        source, target = unit[y].reshape(-1), out[y].reshape(-1)
        for i in range(target.size):
            scene = share * source[i] + rest * max(source[i], white[i] + np.float32(0.5))
            target[i] = level(scene + here[i] / 255.0 + there[i] / 255.0)


@kernel
def tint(image: Array, cover: Array, colour: Array, kept: Array, out: Array) -> None:
    """Return a share of the image where it is covered, plus the colour times the cover, in single precision."""
    for y in range(image.shape[0]):
        source, target, covers, shares = image[y].reshape(-1), out[y].reshape(-1), cover[y], kept[y]
        for x in range(image.shape[1]):
            for c in range(3):
                unit = np.float32(source[3 * x + c]) / np.float32(255)
                target[3 * x + c] = level(unit * shares[x] + colour[c] * covers[x])
