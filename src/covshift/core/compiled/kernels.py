"""What happens at a place, in one compiled call: measure the activations, follow, weigh, and correct.

At batch 1 a network spends less time in a layer than torch needs for ten operations on a few channels, so that hooks
would cost more than the network. These loops do in one call what `moments`, `policies`, `auto`, `classes` and `places`
say in many; sums are in double precision. Tensors come as addresses: dense, in the type of the source statistics.
"""

from typing import Any

import numpy as np
from numba.core import cgutils, types
from numba.extending import intrinsic
from numba.np.numpy_support import carray
from numpy.typing import NDArray

from covshift.core.compiled.measuring import measure, measure_images
from covshift.support.jit import kernel, summing_kernel

Array = NDArray[Any]

HELD, ANCHORED, OUTPUT = 0, 1, 2
"""Kinds of places: a layer that holds its own source statistics, one with an anchor, and an output."""

BOTH, MEAN, VAR = 0, 1, 2
"""Moments to correct."""

NOT_FINITE = -1.0
"""What `correct` writes in the place of a weight if the variance is not finite in the type of the layer."""

_TOGETHER = 64  # values that are corrected side by side where channels are the last dimension


def _as_pointer(typing_context: object, address: object) -> Any:
    """Return an address as a pointer."""

    def generate(context: object, builder: Any, signature: object, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(types.intp), generate


_pointer: Any = intrinsic(_as_pointer)


@kernel
def correct(
    x: int, y: int, rows: Array, sides: tuple[int, int], last: bool, source: Array, held: tuple[int, int], layer: Array,
    met: Array, before: Array, after: Array, counts: tuple[Array, Array, Array], fades: Array, classes: Array,
    rules: Array, weights: Array, where: tuple[int, int], numbers: tuple[float, float], kind: int, only: int,
) -> None:  # fmt: skip
    """Measure what passes a place, and correct it, for each of some streams whose rows follow one another.

    Args:
        x: the address of the activations.
        y: where to write an output to, which may be the same.
        rows: the number of rows of each stream.
        sides: the number of positions from top to bottom and from left to right.
        last: whether the channels are the last dimension in memory; else they are the second.
        source: the means and variances of the source, those that the layer holds, and those of clean images;
            [6, channels].
        held: the addresses of the layer's buffers, which are written for a single stream; 0 for an output.
        layer: the scale and the shift by which the layer goes on, to be done as well, [2, channels]; empty for none.
        met: the moments of all places in this pass, [streams, 2, channels of all places], to write to.
        before: those of the streams before it; empty if nothing is carried.
        after: those of the streams after it, to write to.
        counts: the numbers of values and of images of the same three, [streams, places, 2].
        fades: by what the pass multiplies the weight of earlier images, that of each of its own, and their number.
        classes: by how much the classes of a stream change the mean and the mean square, as `met`; empty if unknown.
        rules: `most`, `chance` and `own` of the `Rule`, [streams, places, 3].
        weights: the weights of what was seen against the source, [streams, places], to write to.
        where: the number of the place, and where its channels begin.
        numbers: eps of the place, and the least share of the variance that a mix of classes has.
        kind: the kind of the place.
        only: the moments to correct.
    """
    channels, (height, width), (place, start), (eps, least) = source.shape[1], sides, where, numbers
    carries, here = before.shape[0] > 0, slice(start, start + channels)
    each, begin = height * width * channels, 0
    for i in range(len(rows)):
        values = carray(_pointer(x + begin * source.itemsize), rows[i] * each, source.dtype)
        most, chance, own = rules[i, place, 0], rules[i, place, 1], rules[i, place, 2]
        mean, var, noise = met[i, 0, here], met[i, 1, here], met[i, 0, here]
        if own > 0.0:
            noise = measure_images(values, rows[i], height, width, last, mean, var)
        else:
            measure(values, rows[i], height * width, last, mean, var)
        counts[0][i, place, 0], counts[0][i, place, 1] = rows[i] * height * width, fades[i, 2]
        if carries:
            share = _count(counts, i, place, fades[i])
            mean, var = _merge(before[i], after[i], start, mean, var, share)
        if classes.shape[0] > 0:
            mean, var = _without_classes(source[4:], mean, var, classes[i, :, here], eps, least)
        weight = _weigh(source, mean, var, noise, most, chance, own, eps)
        finite = True
        for c in range(channels):
            finite &= np.isfinite(source.dtype.type(var[c]))
        if kind == OUTPUT:
            corrected = carray(_pointer(y + begin * source.itemsize), rows[i] * each, source.dtype)
            scale, shift = _gains(source, mean, var, weight, eps, only, layer)
            _shift_and_scale(values, corrected, rows[i], height * width, last, scale, shift)
        else:
            write(source, held, mean, var, weight, eps, kind, only)
        weights[i, place] = weight if finite else NOT_FINITE
        begin += rows[i] * each


@kernel
def _count(counts: tuple[Array, Array, Array], i: int, place: int, fades: Array) -> float:
    """Write how much a place has seen after this pass, and return the share of the pass in it; see `add_batch`."""
    now, before, after = counts[0][i, place], counts[1][i, place], counts[2][i, place]
    for k in range(2):
        after[k] = before[k] * fades[0] + now[k] * fades[1]
    return now[0] * fades[1] / after[0] if before[0] > 0.0 else 1.0


@kernel
def _gains(
    source: Array, mean: Array, var: Array, weight: float, eps: float, only: int, layer: Array
) -> tuple[Array, Array]:
    """Return the scale and shift that bring activations with these moments to the source, and through the layer."""
    channels = len(mean)
    scale, shift = np.empty(channels, source.dtype), np.empty(channels, source.dtype)
    for c in range(channels):
        mixed_mean, mixed_var = _mix(source, mean, var, c, weight, only)
        gain = np.sqrt((source[1, c] + eps) / (mixed_var + eps))
        offset = source[0, c] - mixed_mean * gain
        if layer.shape[1] > 0:
            gain, offset = gain * layer[0, c], offset * layer[0, c] + layer[1, c]
        scale[c], shift[c] = gain, offset
    return scale, shift


@kernel
def write(
    source: Array, held: tuple[int, int], mean: Array, var: Array, weight: float, eps: float, kind: int, only: int
) -> None:
    """Write into the buffers of a layer what makes it correct activations with these moments, as `correct` does."""
    channels = source.shape[1]
    held_mean = carray(_pointer(held[0]), channels, source.dtype)
    held_var = carray(_pointer(held[1]), channels, source.dtype)
    for c in range(channels):
        held_mean[c], held_var[c] = moments_to_hold(source, mean, var, c, weight, eps, kind, only)


@kernel
def moments_to_hold(
    source: Array, mean: Array, var: Array, c: int, weight: float, eps: float, kind: int, only: int
) -> tuple[float, float]:
    """Return the moments of a channel that a layer must hold to correct activations with these."""
    mixed_mean, mixed_var = _mix(source, mean, var, c, weight, only)
    if kind == ANCHORED:
        shrink = (mixed_var + eps) / (np.float64(source[1, c]) + eps)
        mixed_mean -= (np.float64(source[0, c]) - np.float64(source[2, c])) * np.sqrt(shrink)
        mixed_var = max(0.0, (np.float64(source[3, c]) + eps) * shrink - eps)
    return mixed_mean, mixed_var


@kernel
def _merge(before: Array, after: Array, start: int, mean: Array, var: Array, share: float) -> tuple[Array, Array]:
    """Write the moments of a stream after one more pass, by Chan's formula; return its mean and variance."""
    channels = len(mean)
    new_mean, new_var = after[0, start : start + channels], after[1, start : start + channels]
    for c in range(channels):
        # The first pass has none before it.
        old_mean, old_var = (before[0, start + c], before[1, start + c]) if share < 1.0 else (mean[c], var[c])
        delta = mean[c] - old_mean
        new_mean[c] = old_mean + share * delta
        new_var[c] = old_var + share * (var[c] - old_var) + share * (1.0 - share) * delta * delta
    return new_mean, new_var


@kernel
def _without_classes(
    source: Array, mean: Array, var: Array, change: Array, eps: float, least: float
) -> tuple[Array, Array]:
    """Return what would have been seen of the source's own classes, as `classes.without_classes` does."""
    new_mean, new_var = np.empty(len(mean)), np.empty(len(mean))
    for c in range(len(mean)):
        source_mean, source_var = np.float64(source[0, c]), np.float64(source[1, c])
        class_mean = source_mean + change[0, c]
        class_var = source_var + source_mean * source_mean + change[1, c] - class_mean * class_mean
        ratio = (var[c] + eps) / (max(class_var, least * source_var) + eps)
        wanted = (source_var + eps) * ratio - eps
        new_mean[c], new_var[c] = mean[c] - change[0, c] * np.sqrt(ratio), 0.0 if wanted < 0.0 else wanted
    return new_mean, new_var


@kernel
def _weigh(
    source: Array, mean: Array, var: Array, noise: Array, most: float, chance: float, own: float, eps: float
) -> float:
    """Return `most` of the share of how far a place has moved that chance does not explain; see `Rule`."""
    if own > 0.0:
        moved, expected = _moved(source[4:], mean, noise, eps)
        expected *= own
    elif chance > 0.0:
        moved, expected = _changed(source, mean, var, eps), chance
    else:
        return most
    share = 1.0 - expected / max(moved, np.finfo(np.float64).tiny)
    return most * share if share > 0.0 else 0.0


@summing_kernel
def _moved(clean: Array, mean: Array, noise: Array, eps: float) -> tuple[float, float]:
    """Return how far means are from those of clean images, and a variance, in their variances."""
    moved, random = 0.0, 0.0
    for c in range(len(mean)):
        scale = 1.0 / (np.float64(clean[1, c]) + eps)
        apart = mean[c] - np.float64(clean[0, c])
        moved += apart * apart * scale
        random += noise[c] * scale
    return moved / len(mean), random / len(mean)


@summing_kernel
def _changed(source: Array, mean: Array, var: Array, eps: float) -> float:
    """Return how far means and standard deviations are from those of clean images, as `auto.changed` does."""
    channels, length, along, apart = len(mean), 0.0, 0.0, 0.0
    for c in range(channels):
        clean, scale = np.float64(source[4, c]), 1.0 / (np.float64(source[5, c]) + eps)
        way, widening = np.float64(source[0, c]) - clean, np.sqrt((np.float64(source[1, c]) + eps) * scale) - 1.0
        off, stretch = mean[c] - clean, np.sqrt((var[c] + eps) * scale) - 1.0
        length += way * way * scale + widening * widening
        along += off * way * scale + stretch * widening
        apart += off * off * scale + stretch * stretch
    share = min(1.0, max(0.0, along / length)) if length > 0.0 else 0.0
    return max(0.0, apart - share * (2.0 * along - share * length)) / channels


@kernel
def _mix(source: Array, mean: Array, var: Array, c: int, weight: float, only: int) -> tuple[float, float]:
    """Return the moments of a channel to correct by: (1 - weight) source + weight seen (Eq. 3)."""
    mixed_mean, mixed_var = np.float64(source[0, c]), np.float64(source[1, c])
    if only != VAR:
        mixed_mean += weight * (mean[c] - mixed_mean)
    if only != MEAN:
        mixed_var += weight * (var[c] - mixed_var)
    return mixed_mean, mixed_var


@kernel
def _shift_and_scale(x: Array, y: Array, rows: int, positions: int, last: bool, scale: Array, shift: Array) -> None:
    """Write activations, scaled and shifted, to `y`, which may be the same."""
    channels = len(scale)
    if last:
        # Several positions at once: loops over the channels of a single one would be too short to be fast.
        wide = max(1, _TOGETHER // channels) * channels
        gains, offsets = np.empty(wide, scale.dtype), np.empty(wide, shift.dtype)
        for i in range(0, wide, channels):
            gains[i : i + channels], offsets[i : i + channels] = scale, shift
        for start in range(0, len(x), wide):
            some, corrected = x[start : start + wide], y[start : start + wide]
            for i in range(len(some)):
                corrected[i] = some[i] * gains[i] + offsets[i]
    else:
        given, table = x.reshape(rows * channels, positions), y.reshape(rows * channels, positions)
        for i in range(rows * channels):
            gain, offset = scale[i % channels], shift[i % channels]
            for j in range(positions):
                table[i, j] = given[i, j] * gain + offset
