"""Mixing the statistics of many places at once, which makes swapping streams quick."""

from collections.abc import Sequence

import torch
from torch import Tensor

from covshift.core.moments import Moments, widen
from covshift.core.places import NormLayer, Place, unlocked


def mix_all(places: Sequence[Place], moments: list[Moments], weights: list[float | Tensor]) -> None:
    """Mix the statistics of many places at once, in few operations, which makes swapping streams quick."""
    if not places:
        return
    numbers = [weight for weight in weights if not isinstance(weight, Tensor)]
    if len(numbers) < len(weights):
        for place, target, weight in zip(places, moments, weights, strict=True):
            place.mix(target.mean, target.var, weight)
        return
    sources = [tensor for place in places for tensor in place.wide]
    targets = [widen(tensor) for target in moments for tensor in (target.mean, target.var)]
    mixed = torch._foreach_lerp(sources, targets, [number for number in numbers for _ in ("mean", "var")])
    buffers: list[Tensor] = []
    values: list[Tensor] = []
    for place, mean, var in zip(places, mixed[::2], mixed[1::2], strict=True):
        if isinstance(place, NormLayer):
            buffers += [place.running_mean, place.running_var]
            values += place.buffers_for(mean, var)
        else:
            place.write(mean, var)
    if buffers:
        with unlocked(buffers[0]):
            torch._foreach_copy_(buffers, values)
