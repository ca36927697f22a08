"""Many small statistical batches in one compute batch: each group of images is normalised by its own statistics."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from covshift.core.moments import Moments, mean_var, measure_rows, widen
from covshift.core.places import Place

_LARGE = 1 << 17  # values: a group with this many is worth a call of its own


def measure_groups(x: Tensor, images: int, size: int) -> list[Moments]:
    """Return the moments of each group of `size` consecutive images, in at most two entries: full groups and the rest.

    Args:
        x: [rows, channels, ...]; an image is one row, or a run of rows such as tokens, equally long for every image.
        images: the number of images that `x` is made of.
        size: the number of images in a group; the last group may have fewer.

    Returns:
        Moments of [groups, channels], first for all groups of `size` images, then for the group of those left over.
    """
    rows_each = len(x) // images
    whole = images // size * size
    parts = [(x[: whole * rows_each], size), (x[whole * rows_each :], images - whole)]
    found = []
    for part, in_group in parts:
        if len(part):
            rows = in_group * rows_each
            found.append(Moments(rows * x[0, 0].numel(), in_group, *_measure_each(part.detach(), rows)))
    return found


def _measure_each(x: Tensor, rows: int) -> tuple[Tensor, Tensor]:
    """Return mean and variance of each group of `rows` consecutive rows; both [groups, channels]."""
    if x.device.type == "cpu" and not x.is_contiguous() and rows * x[0].numel() >= _LARGE:
        means, variances = zip(*map(mean_var, x.split(rows)), strict=True)
        return torch.stack(means), torch.stack(variances)
    mean, var = (each.unflatten(0, (-1, rows)) for each in measure_rows(x))
    centre = mean.mean(1)
    spread = (mean - centre.unsqueeze(1)).square()
    return centre, (var + spread).mean(1)


def renormalise(x: Tensor, layer: Place, groups: list[Moments], weights: Sequence[float | Tensor]) -> Tensor:
    """Shift and scale each group so that the source statistics of `layer` finish the job.

    With μ̄, σ̄² mixed from the source and the group by Eq. 3, the layer gets (x - μ̄)·√((σ_s²+ε)/(σ̄²+ε)) + μ_s, and its
    own normalisation makes (x - μ̄)/√(σ̄²+ε) of it.

    Args:
        x: the layer's input.
        layer: the layer, holding its source statistics.
        groups: what `measure_groups` returned for `x`.
        weights: how much each entry of `groups` counts against the source: n/(N+n), or [groups, 1] weights of its own.
    """
    mean = torch.cat([torch.lerp(layer.mean.to(g.mean), g.mean, w) for g, w in zip(groups, weights, strict=True)])
    var = torch.cat([torch.lerp(layer.var.to(g.var), g.var, w) for g, w in zip(groups, weights, strict=True)])
    # Rows of a full group; the group of those left over is the last one, so what is too much is cut off.
    in_group = rows_of(groups[0], x) // len(groups[0].mean)
    return _shift_and_scale(x, layer, mean, var, lambda t: t.repeat_interleave(in_group, dim=0)[: len(x)])


def correct_rows(x: Tensor, place: Place, rows: Sequence[int], moments: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """Shift and scale consecutive runs of rows, each from a mean and variance of its own to those of the source.

    Args:
        x: the activations, [rows, channels, ...].
        place: the place, with its source statistics.
        rows: the number of rows in each run.
        moments: the mean and the variance of each run, mixed with the source already.
    """
    mean, var = (torch.stack([widen(each) for each in part]) for part in zip(*moments, strict=True))
    runs = torch.tensor(rows, device=x.device)
    return _shift_and_scale(x, place, mean, var, lambda t: t.repeat_interleave(runs, dim=0, output_size=len(x)))


def _shift_and_scale(x: Tensor, place: Place, mean: Tensor, var: Tensor, spread: Callable[[Tensor], Tensor]) -> Tensor:
    """Correct rows of `x` from moments of [groups, channels], of which `spread` gives each row its own."""
    source_mean, source_var = place.mean.to(mean), place.var.to(var)
    mean = source_mean.expand_as(mean) if place.only == "var" else mean
    var = source_var.expand_as(var) if place.only == "mean" else var
    scale = ((source_var + place.eps) / (var + place.eps)).sqrt()
    shift = source_mean - mean * scale
    wide = x.dtype if x.dtype.itemsize >= 4 else torch.float32  # sums of doubles would turn all of x into doubles
    scale, shift = (_like(x, spread(t.to(wide))) for t in (scale, shift))
    return torch.addcmul(shift, x, scale).to(x.dtype)


def rows_of(groups: Moments, x: Tensor) -> int:
    """Return the number of rows of `x` that an entry of `measure_groups` covers."""
    return len(groups.mean) * int(groups.count // x[0, 0].numel())


def _like(x: Tensor, per_row: Tensor) -> Tensor:
    return per_row.reshape(*per_row.shape, *[1] * (x.ndim - 2))
