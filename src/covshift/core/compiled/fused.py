"""Passes on the CPU, where compiled code measures and corrects a place in one call: see `kernels`.

What it cannot serve goes the way of separate operations, which is the same arithmetic: other devices, half precision,
gradients, ranks, inputs that are not dense, and policies that weigh in a way of their own.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from covshift.core.classes import LEAST, Classes
from covshift.core.compiled.sharing import share
from covshift.core.moments import Moments, fading
from covshift.core.places import NormLayer, Place
from covshift.core.policies import Memory, Policy
from covshift.core.ranks import has_ranks
from covshift.core.seen import Layout, Seen, Table
from covshift.core.uncompiled import leave_uncompiled

_ONLY = {None: 0, "mean": 1, "var": 2}
_NOTHING: Table = np.empty((0, 2, 0))  # tables of no stream


class Slot(NamedTuple):
    """What compiled code needs to know of a place.

    Attributes:
        number: the number of the place.
        start: where its channels begin in a `Table`.
        channels: their number.
        source: its source statistics, those that its layer holds, and those of clean images, [6, channels], in the
            type of the layer.
        dtype: that type.
        buffers: the buffers of the layer; None for an output.
        eps: the number that is added to variances.
        kind, only: as `kernels.correct` takes them.
        classes: whether it is known what classes do here.
        layer: the scale and shift by which a plain layer makes its output of its input, [2, channels]; else empty.
    """

    number: int
    start: int
    channels: int
    source: NDArray[Any]
    dtype: torch.dtype
    buffers: tuple[Tensor, Tensor] | None
    eps: float
    kind: int
    only: int
    classes: bool
    layer: Table


class Fused:
    """The places of a model that compiled code can serve, and the policy that they follow.

    Args:
        places: the places.
        policy: the policy.
        classes: what classes do at these places; None if that is not known.
        layout: where the channels of each place are in a `Table`; None to make it.

    Attributes:
        policy: the policy.
        layout: where the channels of each place are in a `Table`.
        slots: the places that can be served, by path; none if the policy weighs in a way of its own.
    """

    def __init__(
        self, places: Sequence[Place], policy: Policy, classes: Classes | None, layout: Layout | None = None
    ) -> None:
        self.policy = policy
        self.layout = Layout(places) if layout is None else layout
        self.places = places
        self.slots: dict[str, Slot] = {}
        self._classes = classes
        self._slopes: Tensor | None = None
        if goes_by_rule(policy) and policy.size is None:
            for place in places:
                slot = slot_of(place, self.layout, classes)
                self.slots |= {} if slot is None else {place.path: slot}

    def begin(self, memories: Sequence[Memory]) -> "FusedPass | None":
        """Return what serves a pass of some streams that begins now; None if that has to go the other way."""
        traced = torch._C._get_tracing_state() is not None
        if not self.slots or torch.is_grad_enabled() or traced or (self.policy.sync and has_ranks()):
            return None
        return FusedPass(self, memories)

    def write(self, place: Place, moments: Moments, weight: float | Tensor) -> bool:
        """Correct by these moments from now on, as a pass would; return False if it has to go the other way."""
        from covshift.core.compiled.kernels import write  # numba takes a while to import

        slot = self.slots.get(place.path)
        if slot is None or slot.buffers is None or isinstance(weight, Tensor) or torch.is_grad_enabled():
            return False
        if not _holds(slot, place):
            return False
        held = (slot.buffers[0].data_ptr(), slot.buffers[1].data_ptr())
        mean, var = moments.mean.double().numpy(), moments.var.double().numpy()
        write(slot.source, held, mean, var, float(weight), slot.eps, slot.kind, slot.only)
        return True

    def changes(self, memories: Sequence[Memory], images: Sequence[int]) -> Table:
        """Return by how much the classes of streams change the mean and the mean square of each place."""
        classes = self._classes
        if classes is None:
            return _NOTHING
        offsets = [self.policy.offset(*each) for each in zip(memories, images, strict=True)]
        known = [offset for offset in offsets if offset is not None]
        if len(known) < len(offsets):
            return _NOTHING
        if self._slopes is None:
            self._slopes = torch.zeros(len(known[0]), 2, self.layout.channels, dtype=torch.float64)
            for path, slot in self.slots.items():
                if slot.classes:
                    slopes, columns = classes.slopes[path], self.layout.columns[path]
                    self._slopes[:, 0, columns], self._slopes[:, 1, columns] = slopes.mean, slopes.second
        changes: Table = torch.tensordot(torch.stack(known), self._slopes, 1).numpy()
        return changes


class FusedPass:
    """One pass of some streams, one after another in each batch, that compiled code serves."""

    def __init__(self, fused: Fused, memories: Sequence[Memory]) -> None:
        from covshift.core.compiled.kernels import correct  # numba takes a while to import

        streams, places, channels = len(memories), len(fused.places), fused.layout.channels
        self._kernel: Callable[..., None] = correct
        self._fused = fused
        self._memories = memories
        self._carries = fused.policy.carries
        self._reached: dict[str, None] = {}
        self._met, self._now = np.empty((streams, 2, channels)), np.zeros((streams, places, 2))
        self._before, self._old, self._after, self._counts = _NOTHING, self._now, self._met, self._now
        if self._carries:
            held = [fused.layout.hold(memory.seen) for memory in memories]
            self._before = np.stack([each.table for each in held]) if streams > 1 else held[0].table[None]
            self._old = np.stack([each.counts for each in held]) if streams > 1 else held[0].counts[None]
            self._after, self._counts = np.empty_like(self._met), np.zeros_like(self._now)
        self._weights = np.zeros((streams, places))
        self._rules = self._changes = self._fades = _NOTHING
        self._own = False
        self._rows: tuple[int, ...] = ()
        self._each = np.zeros(streams, np.int64)

    def correct(
        self, place: Place, x: Tensor, rows: tuple[int, ...], images: tuple[int, ...], y: Tensor | None
    ) -> bool:
        """Measure what passes a place, and correct it; return False if that has to go the other way.

        Args:
            place: the place.
            x: the activations, of one stream after another.
            rows: the number of rows of each stream.
            images: the number of images of each stream.
            y: where to write what a plain layer makes of them, or else the corrected activations; None to have them
                corrected in `x` or, for a single stream, by the layer itself.
        """
        slot = self._fused.slots.get(place.path)
        last = None if slot is None or place.path in self._reached else serves(slot, place, x)
        if slot is None or last is None or min(rows) * x.numel() < 2 * x.shape[0] * slot.channels:
            return False
        if not self._reached and not self._begin(images):
            return False
        if rows != self._rows:
            self._rows, self._each = rows, np.array(rows, np.int64)
        if self._own and (x.ndim != 4 or rows != images):
            return False  # images that are tokens or have no quarters
        sides = (x.shape[2], x.shape[3]) if x.ndim == 4 else (1, x.numel() // (x.shape[0] * slot.channels))
        held, kind = (0, 0), 2
        if slot.buffers is not None and y is None:
            held, kind = (slot.buffers[0].data_ptr(), slot.buffers[1].data_ptr()), slot.kind
        address, row = x.data_ptr(), x.numel() // x.shape[0] * x.element_size()
        to = address if y is None else y.data_ptr()
        tables = (
            *(self._each, self._met, self._before, self._after, self._now, self._old, self._counts, self._fades),
            *(self._changes if slot.classes else _NOTHING, self._rules, self._weights),
        )

        def work(first: int, end: int) -> None:
            part = tables if end - first == len(rows) else [table[first:end] for table in tables]
            each, met, before, after, now, old, counts, fades, changes, rules, weights = part
            offset = row * sum(rows[:first])
            self._kernel(
                *(address + offset, to + offset, each, sides, last, slot.source, held, slot.layer),
                *(met, before, after, (now, old, counts), fades, changes, rules, weights),
                *((slot.number, slot.start), (slot.eps, LEAST), kind, slot.only),
            )

        share(work, len(rows), x.numel())
        self._reached[place.path] = None
        return True

    def _begin(self, images: Sequence[int]) -> bool:
        """Prepare what depends on the number of images; return False if the pass has to go the other way."""
        fused = self._fused
        if any(fused.policy.reads(*each) for each in zip(self._memories, images, strict=True)):
            return False
        self._fades = np.array([(*fading(each, fused.policy.decay), each) for each in images])
        kept, each, now = self._fades.T[:, :, None]
        seen = now * each + self._old[:, :, 1] * kept if self._carries else now + self._old[:, :, 1]
        self._rules = fused.policy.rules(fused.places, seen, images, self._memories)
        self._own = bool(self._rules[..., 2].any())
        self._changes = fused.changes(self._memories, images)
        return True

    def met(self, stream: int) -> Seen:
        """Return the moments of this pass."""
        table, counts = self._met[stream], self._now[stream]
        return Seen(self._fused.layout, table, counts, self._reached, narrow=not self._carries)

    def seen(self, stream: int) -> Seen:
        """Return what the places have seen after it: the same, or that of the stream."""
        if not self._carries:
            return self.met(stream)
        return Seen(self._fused.layout, self._after[stream], self._counts[stream], self._reached)

    def weights(self, stream: int) -> dict[str, float]:
        """Return the weight of that at each place, by path."""
        weights, numbers = self._weights[stream].tolist(), self._fused.layout.numbers
        return {path: weights[numbers[path]] for path in self._reached}

    def broken(self, stream: int) -> str | None:
        """Return the path of the first place with values that are not finite; None if there is none."""
        if self._weights[stream].min() >= 0:
            return None
        return next(path for path, weight in self.weights(stream).items() if weight < 0)


def goes_by_rule(policy: Policy) -> bool:
    """Return whether a policy says in numbers what it does, and no class made of it does something else."""
    kind = type(policy)
    owner = next(each for each in kind.__mro__ if "rule" in vars(each))
    return owner is not Policy and all(
        getattr(kind, name) is getattr(owner, name) for name in ("follow", "aim", "weigh")
    )


def slot_of(place: Place, layout: Layout, classes: Classes | None) -> Slot | None:
    """Return what compiled code needs to know of a place; None if it cannot serve it."""
    mean = place.mean
    if mean.device.type != "cpu" or mean.dtype not in (torch.float32, torch.float64):
        return None
    kind, held, buffers, layer = 2, (place.mean, place.var), None, np.empty((2, 0))
    if isinstance(place, NormLayer):
        if not isinstance(getattr(place.module, "eps", None), int | float):
            return None
        kind, held, buffers = int(place.anchored), place.held, (place.running_mean, place.running_var)
        layer = _affine(place) if is_plain(place.module) else layer
        if any(not buffer.is_contiguous() or buffer.dtype is not mean.dtype for buffer in buffers):
            return None
    source = torch.stack([each.to(mean) for each in (mean, place.var, *held, *place.clean)]).numpy()
    known = classes is not None and place.path in classes.slopes
    number, start = layout.numbers[place.path], layout.columns[place.path].start
    return Slot(number, start, len(mean), source, mean.dtype, buffers, place.eps, kind, _ONLY[place.only], known, layer)


def is_plain(module: nn.Module) -> bool:
    """Return whether a layer is torch's own BatchNorm, whose output is its input by a scale and a shift."""
    return type(module) in (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


def _affine(place: NormLayer) -> Table:
    mean, var = (each.double() for each in place.held)
    weight, bias = (getattr(place.module, name) for name in ("weight", "bias"))
    scale = (var + place.eps).rsqrt() * (1.0 if weight is None else weight.detach().double())
    shift = (0.0 if bias is None else bias.detach().double()) - mean * scale
    return torch.stack([scale, shift]).numpy()


def serves(slot: Slot, place: Place, x: Tensor) -> bool | None:
    """Return whether activations have their channels last in memory, or second; None if they cannot be served."""
    if x.dtype is not slot.dtype or type(x) is not Tensor or torch.is_grad_enabled() or x.numel() < 2 * slot.channels:
        return None
    if not _holds(slot, place):
        return None
    if x.is_contiguous():
        return x.ndim == 2
    if x.ndim == 4:
        return True if x.is_contiguous(memory_format=torch.channels_last) else None
    return True if x.ndim == 3 and x.transpose(1, 2).is_contiguous() else None


def _holds(slot: Slot, place: Place) -> bool:
    """Return whether the layer still has the buffers that it had when the slot was made."""
    held = place.module._buffers
    return slot.buffers is None or (
        held.get("running_mean") is slot.buffers[0] and held.get("running_var") is slot.buffers[1]
    )


leave_uncompiled(Fused.begin, FusedPass.correct)
