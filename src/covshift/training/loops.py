"""The loops of the augmentations, over all pixels of a batch, compiled."""

import math

import numpy as np

from covshift.support.arrays import Array
from covshift.support.jit import kernel


@kernel
def crop_and_flip(images: Array, down: Array, right: Array, flip: Array, out: Array) -> None:
    """Move each image by its offset, with black where nothing moves in, and mirror it where `flip` is set."""
    count, height, width, channels = images.shape
    for i in range(count):
        for y in range(height):
            for x in range(width):
                row, column = y + down[i], (width - 1 - x if flip[i] else x) + right[i]
                inside = 0 <= row < height and 0 <= column < width
                for c in range(channels):
                    out[i, y, x, c] = images[i, row, column, c] if inside else 0


@kernel
def mix_chains(
    images: Array, ops: Array, amounts: Array, depths: Array, weights: Array, strength: Array, out: Array
) -> None:
    """Blend each image with the weighted mean of its chains of operations, as AugMix does."""
    count, height, width, channels = images.shape
    chain, spare = np.empty((2, height, width, channels), np.uint8)
    for i in range(count):
        add(images[i], 1 - strength[i], out[i])
        for c in range(ops.shape[1]):
            chain[:] = images[i]
            for step in range(depths[i, c]):
                operate(ops[i, c, step], amounts[i, c, step], chain, spare)
                chain, spare = spare, chain
            add(chain, strength[i] * weights[i, c], out[i])


@kernel
def add(image: Array, weight: float, out: Array) -> None:
    """Add the image times its weight."""
    for y in range(image.shape[0]):
        for x in range(image.shape[1]):
            for c in range(image.shape[2]):
                out[y, x, c] += weight * image[y, x, c]


@kernel
def operate(op: int, amount: float, image: Array, out: Array) -> None:
    """Apply one operation of `augmix.OPERATIONS` by its number: the first four change levels, others move pixels."""
    a, b, c, d, e, f = 1.0, 0.0, 0.0, 0.0, 1.0, 0.0
    if op < 4:
        change_levels(op, amount, image, out)
        return
    if op == 4:
        angle = math.radians(amount)
        a, b, d, e = math.cos(angle), -math.sin(angle), math.sin(angle), math.cos(angle)
        middle_y, middle_x = image.shape[0] / 2, image.shape[1] / 2
        c, f = middle_x - a * middle_x - b * middle_y, middle_y - d * middle_x - e * middle_y
    elif op == 5:
        b = amount
    elif op == 6:
        d = amount
    elif op == 7:
        c = amount
    else:
        f = amount
    warp(image, a, b, c, d, e, f, out)


@kernel
def change_levels(op: int, amount: float, image: Array, out: Array) -> None:
    """Replace every level, channel by channel, by autocontrast, equalize, posterize or solarize."""
    height, width, channels = image.shape
    table, counts = np.empty(256, np.uint8), np.empty(256, np.int64)
    for c in range(channels):
        counts[:] = 0
        low, high = 255, 0
        for y in range(height):
            for x in range(width):
                level = image[y, x, c]
                counts[level] += 1
                low, high = min(low, level), max(high, level)
        step = (height * width - counts[high]) // 255
        below = step // 2
        for i in range(256):
            table[i] = i
            if op == 0 and high > low:
                scale = 255.0 / (high - low)
                table[i] = np.uint8(min(max(i * scale - low * scale, 0.0), 255.0))
            elif op == 1 and step > 0:
                table[i] = np.uint8(min(below // step, 255))
                below += counts[i]
            elif op == 2:
                table[i] = i & (256 - (1 << (8 - int(amount))))
            elif op == 3:
                table[i] = i if i < amount else 255 - i
        for y in range(height):
            for x in range(width):
                out[y, x, c] = table[image[y, x, c]]


@kernel
def warp(image: Array, a: float, b: float, c: float, d: float, e: float, f: float, out: Array) -> None:
    """Sample the pixel at (x, y) bilinearly from (ax + by + c, dx + ey + f); black where that is outside."""
    height, width, channels = image.shape
    for y in range(height):
        for x in range(width):
            column = a * (x + 0.5) + b * (y + 0.5) + c
            row = d * (x + 0.5) + e * (y + 0.5) + f
            if not (0 <= column < width and 0 <= row < height):
                for k in range(channels):
                    out[y, x, k] = 0
                continue
            column, row = column - 0.5, row - 0.5
            left, top = math.floor(column), math.floor(row)
            u, v = column - left, row - top
            x0, x1, y0, y1 = max(left, 0), min(left + 1, width - 1), max(top, 0), min(top + 1, height - 1)
            for k in range(channels):
                upper = (1 - u) * image[y0, x0, k] + u * image[y0, x1, k]
                lower = (1 - u) * image[y1, x0, k] + u * image[y1, x1, k]
                out[y, x, k] = np.uint8((1 - v) * upper + v * lower + 0.5)
