"""Groups of images at a layer, in one compiled call: measure each, mix it with the source, and normalise it.

Where channels have memory of their own, one channel of a group is measured and normalised while it is in the cache, so
that memory is read once. As in `kernels`, sums are in double precision, and tensors come as addresses.
"""

import numpy as np
from numba.np.numpy_support import carray

from covshift.core.compiled.kernels import _pointer, moments_to_hold
from covshift.core.compiled.measuring import Array, _add_positions, _add_run, _finish, measure_part
from covshift.support.jit import kernel


@kernel
def normalise_groups(
    x: int, out: int, shape: tuple[int, int], last: bool, edges: Array, weights: Array, begin: int, end: int,
    source: Array, affine: tuple[int, int], eps: float, kind: int, only: int, met: Array,
) -> None:  # fmt: skip
    """Write what a layer makes of its input if each group of rows is a batch of its own.

    Args:
        x: the address of the activations.
        out: that of the output, laid out alike.
        shape: the number of rows and of positions.
        last: whether the channels are the last dimension in memory; else they are the second.
        edges: where each group begins among the rows, and where the last one ends.
        weights: the weight of each group against the source.
        begin: the first group to normalise now.
        end: the one after the last.
        source: the statistics of the source, and those that the layer holds; [4, channels].
        affine: the addresses of the layer's weight and bias; 0 for one that it does not have.
        eps: what the layer adds to variances.
        kind: the kind of the place, as for `kernels.correct`.
        only: the moments to correct, likewise.
        met: the mean and variance of each group, to write to; [2, groups, channels].
    """
    rows, positions = shape
    channels = source.shape[1]
    whole = carray(_pointer(x), rows * positions * channels, source.dtype)
    result = carray(_pointer(out), rows * positions * channels, source.dtype)
    pivot, total, squares = np.empty(channels), np.empty(channels), np.empty(channels)
    scale, shift = np.empty(channels, source.dtype), np.empty(channels, source.dtype)
    weight, bias = _parameter(affine[0], source, 1.0), _parameter(affine[1], source, 0.0)
    for g in range(begin, end):
        first, stop = edges[g], edges[g + 1]
        mean, var = met[0, g], met[1, g]
        total[:] = 0.0
        squares[:] = 0.0
        if last:
            table, target = whole.reshape(rows * positions, channels), result.reshape(rows * positions, channels)
            for c in range(channels):
                pivot[c] = table[first * positions, c]
            _add_positions(table, first * positions, stop * positions, pivot, total, squares)
            _finish((stop - first) * positions, pivot, total, squares, mean, var)
            for c in range(channels):
                scale[c], shift[c] = fold(source, weight, bias, mean, var, c, weights[g], eps, kind, only)
            for i in range(first * positions, stop * positions):
                for c in range(channels):
                    target[i, c] = table[i, c] * scale[c] + shift[c]
        else:
            runs, lines = whole.reshape(rows, channels, positions), result.reshape(rows, channels, positions)
            for c in range(channels):
                pivot[c] = runs[first, c, 0]
                for row in range(first, stop):
                    _add_run(runs, row, c, 0, positions, pivot, total, squares)
                part = slice(c, c + 1)
                _finish((stop - first) * positions, pivot[part], total[part], squares[part], mean[part], var[part])
                gain, offset = fold(source, weight, bias, mean, var, c, weights[g], eps, kind, only)
                scale[c], shift[c] = gain, offset
                for row in range(first, stop):
                    stretch(runs[row, c], scale[c], shift[c], lines[row, c])


@kernel
def stretch(values: Array, scale: float, shift: float, out: Array) -> None:
    """Scale and shift values."""
    for i in range(values.size):
        out[i] = values[i] * scale + shift


@kernel
def fold(
    source: Array, weight: Array, bias: Array, mean: Array, var: Array, c: int, share: float, eps: float, kind: int,
    only: int,
) -> tuple[float, float]:  # fmt: skip
    """Return the scale and the shift by which a layer with these moments, mixed with the source, normalises."""
    held_mean, held_var = moments_to_hold(source, mean, var, c, share, eps, kind, only)
    scale = np.float64(weight[c]) / np.sqrt(held_var + eps)
    return scale, np.float64(bias[c]) - held_mean * scale


@kernel
def _parameter(address: int, source: Array, default: float) -> Array:
    """Return what is stored for each channel at an address, in the type of `source`, or else the default."""
    values = np.full(source.shape[1], default, source.dtype)
    if address != 0:
        values[:] = carray(_pointer(address), source.shape[1], source.dtype)
    return values


@kernel
def measure_channels(
    x: int, shape: tuple[int, int], last: bool, begin: int, end: int, like: Array, mean: Array, var: Array
) -> None:
    """Write the mean and the biased variance of channels.

    Args:
        x: the address of the activations.
        shape: their number of rows and of positions.
        last: whether the channels are the last dimension in memory; else they are the second.
        begin: the first channel to measure now, if they are the second; else all are measured.
        end: the one after the last.
        like: an array of the type of the activations.
        mean: where to write to.
        var: where to write to, likewise.
    """
    rows, positions = shape
    whole = carray(_pointer(x), rows * positions * len(mean), like.dtype)
    measure_part(whole, rows, positions, last, begin, end, mean, var)
