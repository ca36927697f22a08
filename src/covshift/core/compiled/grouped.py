"""Policies with `size=` on the CPU, where compiled code does what a layer does, for each group of images by itself.

The layer's own call then gets no rows, and what it returns is replaced. What this cannot serve goes the way of separate
operations, in `groups`: other devices, types and layouts, layers that may do more than normalise, and gradients.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.modules import module as hooks_of_all
from torch.utils.hooks import RemovableHandle

from covshift.core.compiled.fused import Slot, goes_by_rule, is_plain, serves, slot_of
from covshift.core.compiled.sharing import share
from covshift.core.hooks import Hook
from covshift.core.places import Place
from covshift.core.policies import Memory, Policy
from covshift.core.seen import Layout


class Grouped:
    """The layers of a model that compiled code can normalise by groups.

    Attributes:
        slots: what it needs to know of each, by path; none for other policies.
    """

    def __init__(self, places: Sequence[Place], policy: Policy) -> None:
        self.slots: dict[str, Slot] = {}
        self._policy = policy
        self._made: tuple[Place, Tensor] | None = None
        if policy.size is not None and goes_by_rule(policy):
            layout = Layout(places)
            for place in places:
                slot = slot_of(place, layout, None) if is_plain(place.module) else None
                self.slots |= {} if slot is None else {place.path: slot}

    def normalise(self, place: Place, x: Tensor, images: int, memory: Memory, hooks: int) -> Tensor | None:
        """Keep for `give` what the layer is to return; return the variance of each group, None if it cannot be served.

        Args:
            place: the place of the layer.
            x: its input.
            images: the number of images that this is made of.
            memory: what the policy remembers.
            hooks: the number of hooks of ours that run after the layer.
        """
        slot, size = self.slots.get(place.path), self._policy.size
        if slot is None or size is None or torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None:
            return None
        last, affine = serves(slot, place, x), _affine(slot, place.module)
        each, left = x.shape[0] // images, images % size
        values = each * (x.numel() // (x.shape[0] * slot.channels))
        if last is None or affine is None or (left or size) * values < 2 or _is_watched(place.module, hooks):
            return None
        sizes = [size] * (images // size) + [left] * (left > 0)
        weights = {number: self._weight(place, number, images, memory) for number in set(sizes)}
        if None in weights.values():
            return None
        out, met = torch.empty_like(x), np.empty((2, len(sizes), slot.channels))
        edges = each * np.cumsum([0, *sizes])
        _run(slot, x, out, last, edges, np.array([weights[number] for number in sizes], np.float64), affine, met)
        self._made = (place, out)
        return torch.from_numpy(met[1]).to(slot.dtype)

    def _weight(self, place: Place, size: int, images: int, memory: Memory) -> float | None:
        """Return the weight of a group of so many images; None if it depends on what these images look like."""
        rule = self._policy.rule(place, size, images, memory)
        return None if rule is None or rule.own or rule.chance else rule.most

    def hook(self, places: Sequence[Place]) -> list[RemovableHandle]:
        """Have what was made for a layer replace what it returns."""
        served = [place for place in places if place.path in self.slots]
        return [place.module.register_forward_hook(Hook(place, self.give).after) for place in served]

    def give(self, place: Place, output: object) -> Tensor | None:
        """Return what was made for a layer that has just been called; None if nothing was."""
        if self._made is None or self._made[0] is not place:
            return None
        made, self._made = self._made[1], None
        return made


def _affine(slot: Slot, module: nn.Module) -> tuple[int, int] | None:
    """Return the addresses of a layer's weight and bias, 0 for one that it does not have; None if they do not fit."""
    found = [0, 0]
    for i, name in enumerate(("weight", "bias")):
        parameter = module._parameters.get(name)
        if parameter is not None:
            fits = parameter.is_cpu and parameter.dtype is slot.dtype and parameter.shape == (slot.channels,)
            if not fits or not parameter.is_contiguous():
                return None
            found[i] = parameter.data_ptr()
    return found[0], found[1]


def _run(
    slot: Slot, x: Tensor, out: Tensor, last: bool, edges: NDArray[np.int64], weights: NDArray[np.float64],
    affine: tuple[int, int], met: NDArray[np.float64],
) -> None:  # fmt: skip
    """Normalise all groups, on as many threads as torch uses."""
    from covshift.core.compiled.group_kernels import normalise_groups  # numba takes a while to import

    shape = (x.shape[0], x.numel() // (x.shape[0] * slot.channels))
    numbers = (slot.source, affine, slot.eps, slot.kind, slot.only, met)

    def work(begin: int, end: int) -> None:
        normalise_groups(x.data_ptr(), out.data_ptr(), shape, last, edges, weights, begin, end, *numbers)

    share(work, len(weights), x.numel())


def _is_watched(module: nn.Module, hooks: int) -> bool:
    """Return whether others than so many hooks of ours would see that a layer gets no rows."""
    all_hooks = (hooks_of_all._global_forward_hooks, hooks_of_all._global_forward_pre_hooks)
    return len(module._forward_hooks) != hooks or len(module._forward_pre_hooks) != 1 or any(all_hooks)
