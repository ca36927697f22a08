"""Compiled loops over activations: the moments of each channel, and how much of the mean is chance.

Sums are in double precision.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from covshift.support.jit import kernel, summing_kernel

Array = NDArray[Any]

_WIDE, _AT_ONCE = 128, 16  # values in a row that is added, and rows that are added at once
_LANES, _LINES = 256, 16  # values that are added side by side, channels last, where there are as many lines to add


@kernel
def measure(x: Array, rows: int, positions: int, last: bool, mean: Array, var: Array) -> None:
    """Write the mean and the biased variance of each channel."""
    measure_part(x, rows, positions, last, 0, len(mean), mean, var)


@kernel
def measure_part(
    x: Array, rows: int, positions: int, last: bool, begin: int, end: int, mean: Array, var: Array
) -> None:
    """Write these of the channels from `begin` to `end`; of all of them where they are the last dimension."""
    channels = len(mean)
    pivot, total, squares = np.zeros(channels), np.zeros(channels), np.zeros(channels)
    if last:
        table = x.reshape(rows * positions, channels)
        for c in range(channels):
            pivot[c] = table[0, c]
        _add_positions(table, 0, rows * positions, pivot, total, squares)
        _finish(rows * positions, pivot, total, squares, mean, var)
    else:
        runs = x.reshape(rows, channels, positions)
        for c in range(begin, end):
            pivot[c] = runs[0, c, 0]
            for row in range(rows):
                _add_run(runs, row, c, 0, positions, pivot, total, squares)
        part = slice(begin, end)
        _finish(rows * positions, pivot[part], total[part], squares[part], mean[part], var[part])


@kernel
def _finish(count: int, pivot: Array, total: Array, squares: Array, mean: Array, var: Array) -> None:
    """Write the moments of `count` values, of whose differences from `pivot` these are the sums."""
    # A pivot that is one of the values is at most √count standard deviations away, so that hardly a digit cancels.
    for c in range(len(pivot)):
        offset = total[c] / count
        spread = squares[c] / count - offset * offset
        mean[c] = pivot[c] + offset
        var[c] = 0.0 if spread < 0.0 else spread  # NaN stays


@kernel
def _add_positions(table: Array, begin: int, end: int, pivot: Array, total: Array, squares: Array) -> None:
    """Add the rows from `begin` to `end` of a table [positions, channels], of which there may be many."""
    channels = len(pivot)
    side_by_side = max(1, _WIDE // channels)  # loops over the channels of a single position would be too short
    wide, lines = side_by_side * channels, (end - begin) // side_by_side
    pivots, sums, sums_of_squares = np.empty(wide), np.zeros(wide), np.zeros(wide)
    for start in range(0, wide, channels):
        pivots[start : start + channels] = pivot
    rest = begin + lines * side_by_side
    _add_rows(table[begin:rest].reshape(lines, wide), 0, lines, pivots, sums, sums_of_squares)
    for start in range(0, wide, channels):
        for c in range(channels):
            total[c] += sums[start + c]
            squares[c] += sums_of_squares[start + c]
    _add_rows(table, rest, end, pivot, total, squares)


@summing_kernel
def _add_rows(table: Array, begin: int, end: int, pivot: Array, total: Array, squares: Array) -> None:
    """Add the rows from `begin` to `end` of a table, several at once: that reads memory faster than one by one."""
    columns, whole = len(pivot), begin + (end - begin) // _AT_ONCE * _AT_ONCE
    for i in range(begin, whole, _AT_ONCE):
        for c in range(columns):
            p, plain, square = pivot[c], 0.0, 0.0
            for row in range(_AT_ONCE):
                a = np.float64(table[i + row, c]) - p
                plain += a
                square += a * a
            total[c] += plain
            squares[c] += square
    for i in range(whole, end):
        for c in range(columns):
            a = np.float64(table[i, c]) - pivot[c]
            total[c] += a
            squares[c] += a * a


@kernel
def _add_lines(lines: Array, run: tuple[int, int, int, int], lanes: Array, total: Array, squares: Array) -> None:
    """Add some positions of some lines, where channels are the last dimension, two lines at once.

    Loops over the channels of a single position would be too short to be fast.

    Args:
        lines: the values, [lines, positions x channels].
        run: the first line and the one past the last, and the same of the values in a line.
        lanes: the pivots of these values, and room for their sums and their sums of squares.
        total: the sums of the channels, to add to.
        squares: their sums of squares, to add to.
    """
    top, bottom, begin, end = run
    wide, whole, channels = end - begin, top + (bottom - top) // 2 * 2, len(total)
    pivot, sums, sums_of_squares = lanes[0, :wide], lanes[1, :wide], lanes[2, :wide]
    for i in range(wide):
        sums[i], sums_of_squares[i] = 0.0, 0.0
    for y in range(top, whole, 2):  # with more lines, LLVM does not add values side by side
        first, second = lines[y, begin:end], lines[y + 1, begin:end]
        for i in range(wide):
            a, b = np.float64(first[i]) - pivot[i], np.float64(second[i]) - pivot[i]
            sums[i] += a + b
            sums_of_squares[i] += a * a + b * b
    for y in range(whole, bottom):
        line = lines[y, begin:end]
        for i in range(wide):
            a = np.float64(line[i]) - pivot[i]
            sums[i] += a
            sums_of_squares[i] += a * a
    for start in range(0, wide, channels):
        part, part_of_squares = sums[start : start + channels], sums_of_squares[start : start + channels]
        for c in range(channels):
            total[c] += part[c]
            squares[c] += part_of_squares[c]


@summing_kernel
def _add_run(runs: Array, row: int, c: int, begin: int, end: int, pivot: Array, total: Array, squares: Array) -> None:
    """Add the values of one channel in a row from one position to another."""
    p, plain, square = pivot[c], 0.0, 0.0
    for i in range(begin, end):
        a = np.float64(runs[row, c, i]) - p
        plain += a
        square += a * a
    total[c] += plain
    squares[c] += square


@summing_kernel
def _add_columns(
    grid: Array, image: int, c: int, begin: int, end: int, pivot: float, sums: Array, squares: Array
) -> float:
    """Write the sums of the columns of one channel from one line to another, and return the sum of all squares."""
    width = len(sums)
    for i in range(width):
        sums[i], squares[i] = 0.0, 0.0
    # Column by column no sum has to wait for the one before it.
    for y in range(begin, end):
        for i in range(width):
            a = np.float64(grid[image, c, y, i]) - pivot
            sums[i] += a
            squares[i] += a * a
    total = 0.0
    for i in range(width):
        total += squares[i]
    return total


@kernel
def measure_images(x: Array, images: int, height: int, width: int, last: bool, mean: Array, var: Array) -> Array:
    """Write the moments as `measure` does; return the variance of the mean by chance, as `chance_of_batch` does."""
    channels, positions = len(mean), height * width
    table, grid = x.reshape(images * positions, channels), x.reshape(images, channels, height, width)
    pivot, total, squares = np.empty(channels), np.zeros(channels), np.zeros(channels)
    for c in range(channels):
        pivot[c] = table[0, c] if last else grid[0, c, 0, 0]
    # Halves of an odd side share the line in the middle, which therefore is a band of its own.
    wide = (0, width // 2, width - width // 2, width)
    middle, spread, within = np.zeros(channels), np.zeros(channels), np.zeros(channels)
    tall = (0, height // 2, height - height // 2, height)
    columns, columns_squared = np.empty(width), np.empty(width)
    lines, step = x.reshape(images * height, width * channels), max(1, _LANES // channels)
    lanes = np.empty((3, step * channels))
    if last and height >= 2 * _LINES:
        for i in range(step):
            lanes[0, i * channels : (i + 1) * channels] = pivot
    for image in range(images):
        bands = np.zeros((9, channels))
        for band in range(3):
            if last and tall[band + 1] - tall[band] >= _LINES:
                top, bottom = image * height + tall[band], image * height + tall[band + 1]
                for j in range(3):
                    for first in range(wide[j], wide[j + 1], step):
                        past = min(first + step, wide[j + 1])
                        run = (top, bottom, first * channels, past * channels)
                        _add_lines(lines, run, lanes, bands[3 * band + j], squares)
            elif last:
                for y in range(tall[band], tall[band + 1]):
                    first = image * positions + y * width
                    for j in range(3):
                        begin, end = first + wide[j], first + wide[j + 1]
                        _add_rows(table, begin, end, pivot, bands[3 * band + j], squares)
            elif tall[band] < tall[band + 1]:
                for c in range(channels):
                    squares[c] += _add_columns(
                        grid, image, c, tall[band], tall[band + 1], pivot[c], columns, columns_squared
                    )
                    for j in range(3):
                        for i in range(wide[j], wide[j + 1]):
                            bands[3 * band + j, c] += columns[i]
        _add_quarters(bands, height, width, total, middle, spread, within)
    _finish(images * positions, pivot, total, squares, mean, var)
    for c in range(channels):
        between = spread[c] / images - (middle[c] / images) ** 2
        own = within[c] / images if positions > 1 else between * images / (images - 1) if images > 1 else np.inf
        within[c] = (max(between, 0.0) + own / images) / images
    return within


@kernel
def _add_quarters(
    bands: Array, height: int, width: int, total: Array, middle: Array, spread: Array, within: Array
) -> None:
    """Add one image: its sum, its mean and the square of that, and the variance between its quarters."""
    tall, broad = min(2, height), min(2, width)
    area = (height - height // 2) * (width - width // 2)
    parts, channels = tall * broad, bands.shape[1]
    quarters, centre = np.empty((parts, channels)), np.zeros(channels)
    for band in range(9):
        for c in range(channels):
            total[c] += bands[band, c]
    for part in range(parts):
        i = part // broad * 3 + part % broad
        for c in range(channels):
            quarters[part, c] = (bands[i, c] + bands[i + 1, c] + bands[i + 3, c] + bands[i + 4, c]) / area
            centre[c] += quarters[part, c] / parts
    for c in range(channels):
        middle[c] += centre[c]
        spread[c] += centre[c] * centre[c]
    for part in range(parts):
        for c in range(channels):
            within[c] += (quarters[part, c] - centre[c]) ** 2 / max(1, parts - 1)
