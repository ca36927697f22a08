"""Out of focus: the weighted sum of the pixels under a disk, as levels, without rounding that could decide one.

The published code filters in double precision and truncates. All that this leaves to be known of a sum is the whole
number below it, for which single precision will do, unless the sum is so close to a whole number that it might lie on
either side: those few are summed again in double precision. Where that does not decide either, only the published
filter can, whose own rounding is then a part of the benchmark.
"""

import numpy as np

from covshift.support.arrays import Array
from covshift.support.jit import kernel, summing_kernel

UNSURE = 1e-10
"""How close to a whole number a sum in double precision is in doubt; its own error is a hundredth of this."""
MOST = 4096
"""How many sums may be taken again before the published filter is faster."""
PIECE = 64


@kernel
def defocus(image: Array, disk: Array, values: Array, parts: Array, taps: Array, close: float, out: Array) -> bool:
    """Write the levels of an image out of focus; return whether all of them are certain.

    Args:
        image: RGB of uint8, with a mirrored rim as wide as the disk's reach.
        disk: the weights, which are symmetric from top to bottom.
        values: the different weights that matter.
        parts: where the taps of each of these begin, and where the last ones end.
        taps: the rows and columns of these weights, counted from the middle, in the lower half of the disk; [taps, 2].
        close: how close to a whole number a sum in the precision of `values` is in doubt.
        out: RGB of uint8, to write to.
    """
    height, size, reach, again = out.shape[0], 3 * out.shape[1], disk.shape[0] // 2, 0
    source, target = image.reshape(len(image), -1), out.reshape(height, size)
    runs, whole = np.zeros(source.shape[1], np.uint8), disk.sum()
    even = (size + PIECE - 1) // PIECE * PIECE  # so that the loops below leave nothing over
    pairs = np.zeros((reach + 1, even + 6 * reach), np.uint16)
    group, total = np.empty(even, np.uint16), np.empty(even, values.dtype)
    for y in range(2 * reach):
        count_equal(source[max(y - 1, 0)], source[y], runs)
    for y in range(height):
        below = source[y + 2 * reach]
        count_equal(source[max(y + 2 * reach - 1, 0)], below, runs)
        fold(source[y : y + 2 * reach + 1], pairs)
        total[:] = 0.0
        for k in range(values.size):
            collect(pairs, taps[parts[k] : parts[k + 1]], group)
            weigh(group, values[k], total)
        for begin in range(0, size, PIECE):
            end = min(begin + PIECE, size)
            if to_levels(total[begin:end], close, target[y, begin:end]):
                continue
            for i in range(begin, end):
                if abs(total[i] - np.rint(total[i])) >= close:
                    continue
                if is_flat(runs[i : i + 6 * reach + 1], below[i : i + 6 * reach + 1], 2 * reach + 1):
                    exact = below[i] * whole
                else:
                    exact = sum_again(source, y, i, disk)
                    again += 1
                nearest = np.rint(exact)
                if again > MOST or (nearest > 0.0 and abs(exact - nearest) < UNSURE):
                    return False
                target[y, i] = np.uint8(min(np.int32(exact), np.int32(255)))
    return True


@kernel
def count_equal(before: Array, row: Array, runs: Array) -> None:
    """Count for each value how many above it, itself included, are equal one after the other."""
    for i in range(row.size):
        runs[i] = min(np.int32(runs[i]) + np.int32(1), np.int32(255)) if row[i] == before[i] else np.int32(1)


@kernel
def is_flat(runs: Array, row: Array, count: int) -> bool:
    """Return whether the square above a piece of a row is of one level."""
    flat = True
    for i in range(0, row.size, 3):
        flat &= runs[i] >= count and row[i] == row[0]
    return bool(flat)


@kernel
def fold(rows: Array, pairs: Array) -> None:
    """Write the sums of rows that are equally far from the middle, and the middle itself."""
    reach = len(rows) // 2
    pairs[0, : rows.shape[1]] = rows[reach]
    for k in range(1, reach + 1):
        above, below, target = rows[reach - k], rows[reach + k], pairs[k]
        for i in range(above.size):
            target[i] = np.uint16(np.int32(above[i]) + np.int32(below[i]))


@kernel
def collect(pairs: Array, taps: Array, group: Array) -> None:
    """Write the sum of the values at some taps."""
    reach = len(pairs) - 1
    group[:] = 0
    for t in range(0, len(taps) - 3, 4):
        a = pairs[taps[t, 0], 3 * (reach + taps[t, 1]) :]
        b = pairs[taps[t + 1, 0], 3 * (reach + taps[t + 1, 1]) :]
        c = pairs[taps[t + 2, 0], 3 * (reach + taps[t + 2, 1]) :]
        d = pairs[taps[t + 3, 0], 3 * (reach + taps[t + 3, 1]) :]
        for i in range(group.size):
            group[i] = np.uint16(np.uint16(group[i] + a[i]) + np.uint16(np.uint16(b[i] + c[i]) + d[i]))
    for t in range(len(taps) // 4 * 4, len(taps)):
        a = pairs[taps[t, 0], 3 * (reach + taps[t, 1]) :]
        for i in range(group.size):
            group[i] = np.uint16(group[i] + a[i])


@summing_kernel
def weigh(group: Array, weight: float, total: Array) -> None:
    """Add weighted values."""
    for i in range(total.size):
        total[i] += type(weight)(group[i]) * weight


@kernel
def to_levels(total: Array, close: float, out: Array) -> bool:
    """Write the whole numbers below some sums; return whether all of them are certain."""
    doubts = np.int32(0)
    for i in range(total.size):
        doubts += np.int32(abs(total[i] - np.rint(total[i])) < close)
        out[i] = np.uint8(min(np.int32(total[i]), np.int32(255)))
    return bool(doubts == 0)


@kernel
def sum_again(source: Array, y: int, i: int, disk: Array) -> float:
    """Return the weighted sum of the disk at one value, in double precision."""
    total = 0.0
    for k in range(len(disk)):
        for j in range(len(disk)):
            total += disk[k, j] * source[y + k, i + 3 * j]
    return total
