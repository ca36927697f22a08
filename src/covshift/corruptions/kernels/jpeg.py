"""What a baseline JPEG makes of an image, without writing one: the bits of a file lose nothing, only what comes before.

That is colours to luma and halved chroma, the cosine transform of blocks of 8 x 8, division by the tables, and all of
it backwards; in whole numbers, with the precision and the rounding of the libraries that Pillow and OpenCV use. Eight
blocks go side by side through every step, so that the compiler can do many values at once.
"""

import numpy as np

from covshift.support.arrays import Array
from covshift.support.jit import kernel

WIDE = 64
"""Number of values that go side by side: those of a row of eight blocks."""

Four = tuple[np.int32, np.int32, np.int32, np.int32]


@kernel
def recompress(image: Array, luma: Array, chroma: Array, out: Array) -> None:
    """Encode and decode an RGB image of uint8, with tables of 64 divisors."""
    height, width = image.shape[:2]
    tall, broad = (height + 1) // 2, (width + 1) // 2
    plane = np.empty((8 * ((height + 7) // 8), 8 * ((width + 7) // 8)), np.uint8)
    small = np.empty((2, 8 * ((tall + 7) // 8), 8 * ((broad + 7) // 8)), np.uint8)
    line = np.empty((2, 2, 2 * small.shape[2]), np.uint8)
    for y in range(0, height, 2):
        for k in range(2):
            row = min(y + k, height - 1)
            to_planes(image[row].reshape(-1), plane[row], line[0, k], line[1, k])
        for c in range(2):
            halve(line[c, 0], line[c, 1], small[c, y // 2])
    for y in range(height, len(plane)):
        plane[y] = plane[height - 1]
    for y in range(tall, small.shape[1]):
        small[0, y], small[1, y] = small[0, tall - 1], small[1, tall - 1]
    quantise_plane(plane, luma)
    quantise_plane(small[0], chroma)
    quantise_plane(small[1], chroma)
    sums, blue, red = np.empty(broad + 2, np.int32), np.empty(2 * broad, np.uint8), np.empty(2 * broad, np.uint8)
    for y in range(height):
        near = y // 2
        far = min(max(near + (1 if y % 2 else -1), 0), tall - 1)
        double(small[0, near], small[0, far], sums, blue)
        double(small[1, near], small[1, far], sums, red)
        to_colours(plane[y], blue, red, out[y].reshape(-1))


@kernel
def to_planes(colours: Array, luma: Array, blue: Array, red: Array) -> None:
    """Write a row of pixels as luma and two chromas, the last value repeated to the end."""
    width = colours.size // 3
    for x in range(width):
        r, g, b = np.int32(colours[3 * x]), np.int32(colours[3 * x + 1]), np.int32(colours[3 * x + 2])
        luma[x] = np.uint8(np.int32(19595 * r + 38470 * g + 7471 * b + 32768) >> 16)
        blue[x] = np.uint8(np.int32(-11059 * r - 21709 * g + 32768 * b + 8421375) >> 16)
        red[x] = np.uint8(np.int32(32768 * r - 27439 * g - 5329 * b + 8421375) >> 16)
    luma[width:] = luma[width - 1]
    blue[width:] = blue[width - 1]
    red[width:] = red[width - 1]


@kernel
def halve(upper: Array, lower: Array, out: Array) -> None:
    """Write the means of squares of four values; every other one that lies between two levels is rounded up."""
    for x in range(out.size):
        total = (
            np.int32(upper[2 * x]) + np.int32(upper[2 * x + 1]) + np.int32(lower[2 * x]) + np.int32(lower[2 * x + 1])
        )
        out[x] = np.uint8(np.int32(total + 1 + (x & 1)) >> 2)


@kernel
def double(near: Array, far: Array, sums: Array, out: Array) -> None:
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
def byte(value: np.int32) -> np.uint8:
    """Return a number clipped to a level."""
    return np.uint8(min(max(value, np.int32(0)), np.int32(255)))


@kernel
def to_colours(luma: Array, blue: Array, red: Array, colours: Array) -> None:
    """Write a row of pixels from luma and chroma."""
    for x in range(colours.size // 3):
        y, b, r = np.int32(luma[x]), np.int32(blue[x]) - np.int32(128), np.int32(red[x]) - np.int32(128)
        colours[3 * x] = byte(np.int32(y + (np.int32(91881 * r + 32768) >> 16)))
        colours[3 * x + 1] = byte(np.int32(y + (np.int32(-22554 * b - 46802 * r + 32768) >> 16)))
        colours[3 * x + 2] = byte(np.int32(y + (np.int32(116130 * b + 32768) >> 16)))


@kernel
def quantise_plane(plane: Array, divisors: Array) -> None:
    """Transform a plane block by block, round what the table divides, and transform it back, in place."""
    height, width = plane.shape
    values, other, table = np.zeros(8 * WIDE, np.int32), np.empty(8 * WIDE, np.int32), np.empty(8 * WIDE, np.int32)
    inverse = np.empty(8 * WIDE, np.float32)
    for i in range(8 * WIDE):
        table[i] = divisors[i // WIDE * 8 + i % 8]
        inverse[i] = np.float32(0.125) / np.float32(table[i])
    for top in range(0, height, 8):
        for left in range(0, width, WIDE):
            for y in range(8):
                part = plane[top + y, left : left + WIDE]
                for x in range(part.size):
                    values[WIDE * y + x] = np.int32(part[x]) - np.int32(128)
            turn(values, other)
            forward(other, np.int32(2), np.int32(0), np.int32(11))
            turn_back(other, values)
            forward(values, np.int32(0), np.int32(2), np.int32(15))
            divide(values, table, inverse)
            backward(values, np.int32(11))
            turn(values, other)
            backward(other, np.int32(18))
            turn_back(other, values)
            for y in range(8):
                part = plane[top + y, left : left + WIDE]
                for x in range(part.size):
                    part[x] = byte(values[WIDE * y + x] + np.int32(128))


@kernel
def turn(values: Array, out: Array) -> None:
    """Write [rows, blocks, columns] as [columns, rows, blocks]."""
    for i in range(WIDE):
        for k in range(8):
            out[WIDE * k + i] = values[8 * i + k]


@kernel
def turn_back(values: Array, out: Array) -> None:
    """Write [columns, rows, blocks] as [rows, blocks, columns]."""
    for i in range(WIDE):
        for k in range(8):
            out[8 * i + k] = values[WIDE * k + i]


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
    return np.int32(np.int32(value + (np.int32(1) << (bits - np.int32(1)))) >> bits)


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
def forward(v: Array, more: np.int32, less: np.int32, bits: np.int32) -> None:
    """Transform eight values apart by `WIDE`, in place, and scale those of even and of odd frequencies."""
    for i in range(WIDE):
        s07, s16 = np.int32(v[i] + v[i + 448]), np.int32(v[i + 64] + v[i + 384])
        s25, s34 = np.int32(v[i + 128] + v[i + 320]), np.int32(v[i + 192] + v[i + 256])
        d07, d16 = np.int32(v[i] - v[i + 448]), np.int32(v[i + 64] - v[i + 384])
        d25, d34 = np.int32(v[i + 128] - v[i + 320]), np.int32(v[i + 192] - v[i + 256])
        a, b, c, d = np.int32(s07 + s34), np.int32(s16 + s25), np.int32(s16 - s25), np.int32(s07 - s34)
        half = (np.int32(1) << less) >> np.int32(1)
        v[i] = np.int32(np.int32(((a + b) << more) + half) >> less)
        v[i + 256] = np.int32(np.int32(((a - b) << more) + half) >> less)
        both = np.int32(np.int32(c + d) * 4433)
        v[i + 128] = shrink(np.int32(both + d * 6270), bits)
        v[i + 384] = shrink(np.int32(both - c * 15137), bits)
        seventh, fifth, third, first = odd(d34, d25, d16, d07)
        v[i + 448], v[i + 320] = shrink(seventh, bits), shrink(fifth, bits)
        v[i + 192], v[i + 64] = shrink(third, bits), shrink(first, bits)


@kernel
def backward(v: Array, bits: np.int32) -> None:
    """Transform eight values apart by `WIDE` back, in place, and scale them."""
    for i in range(WIDE):
        both = np.int32(np.int32(v[i + 128] + v[i + 384]) * 4433)
        second, third = np.int32(both - v[i + 384] * 15137), np.int32(both + v[i + 128] * 6270)
        zeroth, first = np.int32((v[i] + v[i + 256]) << 13), np.int32((v[i] - v[i + 256]) << 13)
        a, d = np.int32(zeroth + third), np.int32(zeroth - third)
        b, c = np.int32(first + second), np.int32(first - second)
        e, f, g, h = odd(v[i + 448], v[i + 320], v[i + 192], v[i + 64])
        v[i], v[i + 448] = shrink(np.int32(a + h), bits), shrink(np.int32(a - h), bits)
        v[i + 64], v[i + 384] = shrink(np.int32(b + g), bits), shrink(np.int32(b - g), bits)
        v[i + 128], v[i + 320] = shrink(np.int32(c + f), bits), shrink(np.int32(c - f), bits)
        v[i + 192], v[i + 256] = shrink(np.int32(d + e), bits), shrink(np.int32(d - e), bits)
