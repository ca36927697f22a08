"""What a baseline JPEG makes of an image, without writing one: the bits of a file lose nothing, only what comes before.

That is colours to luma and halved chroma, the cosine transform of blocks of 8 x 8, division by the tables, and all of
it backwards; with the precision and the rounding of the libraries that Pillow and OpenCV use. Blocks go side by side
through every step, and colours are changed for all pixels in one loop, so that the compiler can do many at once:
a loop over the pixels of one row is too short for that.
"""

import numpy as np

from covshift.support.arrays import Array
from covshift.support.jit import kernel, summing_kernel

BLOCKS = 16
"""Number of blocks that are worked on at once."""
WIDE = 8 * BLOCKS
"""Number of values in a row of them."""

Four = tuple[np.int32, np.int32, np.int32, np.int32]
Eight = tuple[np.int32, np.int32, np.int32, np.int32, np.int32, np.int32, np.int32, np.int32]

# Weights of colours are whole multiples of 2^-16, and all of their sums have at most 24 bits: single precision is exact
# for them, and computed faster than whole numbers.
_YR, _YG, _YB = np.float32(19595 / 65536), np.float32(38470 / 65536), np.float32(7471 / 65536)
_BR, _BG = np.float32(11059 / 65536), np.float32(21709 / 65536)
_RG, _RB = np.float32(27439 / 65536), np.float32(5329 / 65536)
_TO_RED, _TO_BLUE = np.float32(91881 / 65536), np.float32(116130 / 65536)
_GREEN_B, _GREEN_R = np.float32(22554 / 65536), np.float32(46802 / 65536)
_HALF, _GREY, _MIDDLE = np.float32(0.5), np.float32(128), np.float32(8421375 / 65536)


@kernel
def recompress(image: Array, luma: Array, chroma: Array, out: Array) -> None:
    """Encode and decode an RGB image of uint8, with tables of 64 divisors; those of columns follow one another."""
    height, width = image.shape[:2]
    tall, broad = (height + 1) // 2, (width + 1) // 2
    colours, planes = np.empty((3, height * width), np.uint8), np.empty((3, height * width), np.uint8)
    split(image.reshape(-1), colours[0], colours[1], colours[2])
    to_planes(colours[0], colours[1], colours[2], planes[0], planes[1], planes[2])
    lights = planes[0].reshape(height, width)
    if height % 8 or width % 8:
        bright = np.empty((8 * ((height + 7) // 8), 8 * ((width + 7) // 8)), np.uint8)
        for y in range(len(bright)):
            stretch(lights[min(y, height - 1)], bright[y])
        quantise_plane(bright, luma)
        for y in range(height):
            stretch(bright[y, :width], lights[y])
    else:
        quantise_plane(lights, luma)
    small = np.empty((2, 8 * ((tall + 7) // 8), 8 * ((broad + 7) // 8)), np.uint8)
    for c in range(2):
        shrink_chroma(planes[1 + c].reshape(height, width), small[c])
    quantise_plane(small.reshape(-1, small.shape[2]), chroma)
    for c in range(2):
        enlarge_chroma(small[c], planes[1 + c].reshape(height, width))
    to_colours(planes[0], planes[1], planes[2], colours[0], colours[1], colours[2])
    join(colours[0], colours[1], colours[2], out.reshape(-1))


@kernel
def split(pixels: Array, reds: Array, greens: Array, blues: Array) -> None:
    """Write the three colours of pixels apart."""
    for i in range(reds.size):
        reds[i], greens[i], blues[i] = pixels[3 * i], pixels[3 * i + 1], pixels[3 * i + 2]


@kernel
def join(reds: Array, greens: Array, blues: Array, pixels: Array) -> None:
    """Write pixels of three colours."""
    for i in range(reds.size):
        pixels[3 * i], pixels[3 * i + 1], pixels[3 * i + 2] = reds[i], greens[i], blues[i]


@summing_kernel
def to_planes(reds: Array, greens: Array, blues: Array, luma: Array, blue: Array, red: Array) -> None:
    """Write colours as luma and two chromas."""
    for i in range(reds.size):
        r, g, b = np.float32(reds[i]), np.float32(greens[i]), np.float32(blues[i])
        luma[i] = np.uint8(np.int32(_YR * r + _YG * g + _YB * b + _HALF))
        blue[i] = np.uint8(np.int32(_HALF * b - _BR * r - _BG * g + _MIDDLE))
        red[i] = np.uint8(np.int32(_HALF * r - _RG * g - _RB * b + _MIDDLE))


@summing_kernel
def to_colours(luma: Array, blue: Array, red: Array, reds: Array, greens: Array, blues: Array) -> None:
    """Write luma and chroma as colours."""
    for i in range(reds.size):
        y, b, r = np.float32(luma[i]), np.float32(blue[i]) - _GREY, np.float32(red[i]) - _GREY
        reds[i] = level(y + np.floor(_TO_RED * r + _HALF))
        greens[i] = level(y + np.floor(_HALF - _GREEN_B * b - _GREEN_R * r))
        blues[i] = level(y + np.floor(_TO_BLUE * b + _HALF))


@kernel
def level(value: np.float32) -> np.uint8:
    """Return a whole number clipped to a level."""
    return np.uint8(np.int32(min(max(value, np.float32(0)), np.float32(255))))


@kernel
def stretch(row: Array, out: Array) -> None:
    """Write a row, its last value repeated to the end."""
    for x in range(row.size):
        out[x] = row[x]
    for x in range(row.size, out.size):
        out[x] = row[row.size - 1]


@kernel
def shrink_chroma(plane: Array, small: Array) -> None:
    """Write a plane of half the height and width, its last row and column repeated to the ends."""
    height, width = plane.shape
    upper, lower = np.empty(2 * small.shape[1], np.uint8), np.empty(2 * small.shape[1], np.uint8)
    tall = (height + 1) // 2
    for y in range(tall):
        above, below = plane[2 * y], plane[min(2 * y + 1, height - 1)]
        if upper.size == width:
            halve(above, below, small[y])
        else:
            stretch(above, upper)
            stretch(below, lower)
            halve(upper, lower, small[y])
    for y in range(tall, len(small)):
        stretch(small[tall - 1], small[y])


@kernel
def enlarge_chroma(small: Array, plane: Array) -> None:
    """Write a plane of twice the height and width, as far as it goes."""
    height, width = plane.shape
    tall, broad = (height + 1) // 2, (width + 1) // 2
    sums, row = np.empty(broad + 2, np.int32), np.empty(2 * broad, np.uint8)
    for y in range(height):
        near, far = small[y // 2], small[min(max(y // 2 + (1 if y % 2 else -1), 0), tall - 1)]
        if width % 2:
            enlarge(near, far, sums, row)
            stretch(row[:width], plane[y])
        else:
            enlarge(near, far, sums, plane[y])


@kernel
def halve(upper: Array, lower: Array, out: Array) -> None:
    """Write the means of squares of four values; every other one that lies between two levels is rounded up."""
    for x in range(out.size):
        total = (
            np.int32(upper[2 * x]) + np.int32(upper[2 * x + 1]) + np.int32(lower[2 * x]) + np.int32(lower[2 * x + 1])
        )
        out[x] = np.uint8(np.int32(total + 1 + (x & 1)) >> 2)


@kernel
def enlarge(near: Array, far: Array, sums: Array, out: Array) -> None:
    """Write a row of twice the width, in which a value counts thrice as much as the next one, in both directions."""
    size = sums.size - 2
    for x in range(size):
        sums[x + 1] = 3 * np.int32(near[x]) + np.int32(far[x])
    sums[0], sums[size + 1] = sums[1], sums[size]
    for x in range(size):
        thrice = np.int32(3 * sums[x + 1])
        out[2 * x] = np.uint8(np.int32(thrice + sums[x] + 8) >> 4)
        out[2 * x + 1] = np.uint8(np.int32(thrice + sums[x + 2] + 7) >> 4)


@kernel
def quantise_plane(plane: Array, divisors: Array) -> None:
    """Transform a plane block by block, round what the table divides, and transform it back, in place.

    Blocks lie [rows, blocks, columns] in the plane. While some of them are worked on, they lie [columns, rows, blocks],
    so that both directions of the transform are loops over values that are side by side.
    """
    across = plane.shape[1] // 8
    count = plane.shape[0] // 8 * across
    levels, turned = np.zeros(8 * WIDE, np.uint8), np.empty(8 * WIDE, np.uint8)
    words, eights = plane.reshape(-1).view(np.uint64), levels.view(np.uint64)  # eight levels each
    values, table, inverse = np.empty(8 * WIDE, np.int32), np.empty(8 * WIDE, np.int32), np.empty(8 * WIDE, np.float32)
    for i in range(64):
        for j in range(BLOCKS):
            table[BLOCKS * i + j] = divisors[i]
            inverse[BLOCKS * i + j] = np.float32(0.125) / np.float32(divisors[i])
    for first in range(0, count, BLOCKS):
        some = min(BLOCKS, count - first)
        for j in range(some):
            start = first_word(first + j, across)
            for y in range(8):
                eights[BLOCKS * y + j] = words[start + y * across]
        for i in range(WIDE):
            for k in range(8):
                turned[WIDE * k + i] = levels[8 * i + k]
        recode(turned, values, table, inverse)
        for i in range(WIDE):
            for k in range(8):
                levels[8 * i + k] = turned[WIDE * k + i]
        for j in range(some):
            start = first_word(first + j, across)
            for y in range(8):
                words[start + y * across] = eights[BLOCKS * y + j]


@kernel
def first_word(block: int, across: int) -> int:
    """Return where a block begins in a plane of so many blocks from left to right, counted in rows of a block."""
    return block // across * 8 * across + block % across


@kernel
def recode(levels: Array, v: Array, table: Array, inverse: Array) -> None:
    """Transform blocks [columns, rows, blocks] of levels, round them, and transform them back, in place."""
    for i in range(8 * WIDE):
        v[i] = np.int32(levels[i]) - np.int32(128)
    for i in range(WIDE):
        v[i], v[i + 128], v[i + 256], v[i + 384], v[i + 512], v[i + 640], v[i + 768], v[i + 896] = forward(
            v[i], v[i + 128], v[i + 256], v[i + 384], v[i + 512], v[i + 640], v[i + 768], v[i + 896],
            np.int32(2), np.int32(0), np.int32(11),
        )  # fmt: skip
    for start in range(0, 8 * WIDE, WIDE):
        for i in range(start, start + BLOCKS):
            v[i], v[i + 16], v[i + 32], v[i + 48], v[i + 64], v[i + 80], v[i + 96], v[i + 112] = forward(
                v[i], v[i + 16], v[i + 32], v[i + 48], v[i + 64], v[i + 80], v[i + 96], v[i + 112],
                np.int32(0), np.int32(2), np.int32(15),
            )  # fmt: skip
    divide(v, table, inverse)
    for start in range(0, 8 * WIDE, WIDE):
        for i in range(start, start + BLOCKS):
            v[i], v[i + 16], v[i + 32], v[i + 48], v[i + 64], v[i + 80], v[i + 96], v[i + 112] = backward(
                v[i], v[i + 16], v[i + 32], v[i + 48], v[i + 64], v[i + 80], v[i + 96], v[i + 112], np.int32(11)
            )
    for i in range(WIDE):
        v[i], v[i + 128], v[i + 256], v[i + 384], v[i + 512], v[i + 640], v[i + 768], v[i + 896] = backward(
            v[i], v[i + 128], v[i + 256], v[i + 384], v[i + 512], v[i + 640], v[i + 768], v[i + 896], np.int32(18)
        )
    for i in range(8 * WIDE):
        levels[i] = np.uint8(min(max(np.int32(v[i] + np.int32(128)), np.int32(0)), np.int32(255)))


@kernel
def divide(values: Array, table: Array, inverse: Array) -> None:
    """Round values to whole multiples of eight times the table, and return them as multiples of the table."""
    for i in range(8 * WIDE):
        # The half keeps the product away from whole numbers, so that its rounding does not matter.
        size = np.float32(np.int32(abs(values[i]) + table[i] * np.int32(4))) + np.float32(0.5)
        times = np.int32(np.int32(size * inverse[i]) * table[i])
        values[i] = -times if values[i] < 0 else times


@kernel
def shrink(value: np.int32, bits: np.int32) -> np.int32:
    """Divide by a power of two, rounded."""
    return np.int32(np.int32(value + (np.int32(1) << bits >> np.int32(1))) >> bits)


@kernel
def odd(a: np.int32, b: np.int32, c: np.int32, d: np.int32) -> Four:
    """Return the odd part of the cosine transform, which is the same in both directions, in 13-bit fixed point."""
    first, second, third, fourth = np.int32(a + d), np.int32(b + c), np.int32(a + c), np.int32(b + d)
    both = np.int32(np.int32(third + fourth) * 9633)
    third, fourth = np.int32(both - third * 16069), np.int32(both - fourth * 3196)
    first, second = np.int32(first * -7373), np.int32(second * -20995)
    return (
        np.int32(a * 2446 + first + third),
        np.int32(b * 16819 + second + fourth),
        np.int32(c * 25172 + second + third),
        np.int32(d * 12299 + first + fourth),
    )


@kernel
def forward(
    a: np.int32, b: np.int32, c: np.int32, d: np.int32, e: np.int32, f: np.int32, g: np.int32, h: np.int32,
    more: np.int32, less: np.int32, bits: np.int32,
) -> Eight:  # fmt: skip
    """Return the cosine transform of eight values, those of even and of odd frequencies scaled."""
    ah, bg, cf, de = np.int32(a + h), np.int32(b + g), np.int32(c + f), np.int32(d + e)
    outer, inner, third, fourth = np.int32(ah + de), np.int32(bg + cf), np.int32(bg - cf), np.int32(ah - de)
    both = np.int32(np.int32(third + fourth) * 4433)
    seventh, fifth, threes, first = odd(np.int32(d - e), np.int32(c - f), np.int32(b - g), np.int32(a - h))
    return (
        shrink(np.int32((outer + inner) << more), less),
        shrink(first, bits),
        shrink(np.int32(both + fourth * 6270), bits),
        shrink(threes, bits),
        shrink(np.int32((outer - inner) << more), less),
        shrink(fifth, bits),
        shrink(np.int32(both - third * 15137), bits),
        shrink(seventh, bits),
    )


@kernel
def backward(
    a: np.int32, b: np.int32, c: np.int32, d: np.int32, e: np.int32, f: np.int32, g: np.int32, h: np.int32,
    bits: np.int32,
) -> Eight:  # fmt: skip
    """Return eight values from their cosine transform, scaled."""
    both = np.int32(np.int32(c + g) * 4433)
    second, third = np.int32(both - g * 15137), np.int32(both + c * 6270)
    zeroth, first = np.int32((a + e) << 13), np.int32((a - e) << 13)
    outer, inner = np.int32(zeroth + third), np.int32(zeroth - third)
    middle, between = np.int32(first + second), np.int32(first - second)
    p, q, r, s = odd(h, f, d, b)
    return (
        shrink(np.int32(outer + s), bits),
        shrink(np.int32(middle + r), bits),
        shrink(np.int32(between + q), bits),
        shrink(np.int32(inner + p), bits),
        shrink(np.int32(inner - p), bits),
        shrink(np.int32(between - q), bits),
        shrink(np.int32(middle - r), bits),
        shrink(np.int32(outer - s), bits),
    )
