"""What an adapter keeps of a forward pass while it lasts, and how a place learns from what passes it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor

from covshift.core.compiled.fused import FusedPass
from covshift.core.moments import Meter, Moments, merge, one_value
from covshift.core.places import Place
from covshift.core.policies import Memory, Policy, Rows
from covshift.core.ranks import over_ranks
from covshift.support.errors import CovshiftError, is_number


class Target(NamedTuple):
    """The moments to correct a place by, and how much they count against the source."""

    moments: Moments
    weight: float | Tensor


@dataclass
class Pass:
    """One forward pass: the number of its images, and what each layer saw."""

    memory: Memory  # what was known when it began
    outer: BaseException | None  # what the caller was handling when it began
    alone: Place | None  # the layer that was called by itself
    fused: FusedPass | None = None  # what measures and corrects layers in compiled code, where that is possible
    stream: int = 0  # the number of the stream in that
    meter: Meter = field(default_factory=Meter)
    # What was measured otherwise, which is more recent where a layer was called twice.
    met: dict[str, Moments] = field(default_factory=dict)
    seen: dict[str, Moments] = field(default_factory=dict)
    weights: dict[str, float | Tensor] = field(default_factory=dict)
    variances: list[tuple[str, Tensor]] = field(default_factory=list)

    def correct(self, place: Place, x: Tensor) -> bool:
        """Measure and correct what passes a place by compiled code; return whether that was possible."""
        if self.fused is None:
            return False
        return self.fused.correct(place, x, (x.shape[0],), (self.meter.images(x),), None)

    def meet(self, path: str, batch: Moments) -> tuple[Moments, Moments]:
        """Return the moments of a layer's input in this call, and over all calls of this pass on the same images."""
        earlier = self.all_met()
        met = merge(earlier[path], batch) if path in earlier else batch
        self.met[path] = met
        return replace(batch, images=met.images), met

    def learn(self, policy: Policy, place: Place, x: Tensor, memory: Memory) -> Target:
        """Measure what passes a place, note what was seen there, and return what to correct it by.

        Args:
            policy: how statistics follow the data.
            place: the place.
            x: the activations, [rows, channels, ...].
            memory: what earlier passes have seen.
        """
        rows = Rows(x, self.meter.images(x), memory)
        if place.path in self.all_met():
            self.meter.visit(place.path)
        batch = self.meter.measure(place.path, x)
        if policy.sync:
            batch = over_ranks(batch)
        batch, met = self.meet(place.path, batch)
        if policy.carries:
            seen = target = policy.follow(memory.seen.get(place.path), met)
        else:
            seen, target = met, policy.follow(None, batch)
        target = policy.aim(place, target, rows)
        self.weights[place.path] = weight = weigh(policy, place, target, rows)
        self.seen[place.path] = seen
        self.variances.append((place.path, target.var.to(place.var.dtype)))
        return Target(target, weight)

    def all_met(self) -> Mapping[str, Moments]:
        """Return the moments of each layer's input in this pass."""
        if self.fused is None:
            return self.met
        met = self.fused.met(self.stream)
        return {**met, **self.met} if self.met else met

    def all_seen(self) -> Mapping[str, Moments]:
        """Return what each layer has seen after this pass."""
        if self.fused is None:
            return self.seen
        seen = self.fused.seen(self.stream)
        return {**seen, **self.seen} if self.seen else seen

    def seen_after(self, policy: Policy, memory: Memory) -> Mapping[str, Moments]:
        """Return what each layer has seen after this pass, where `memory` is what is known now."""
        if policy.carries and self.memory is not memory:  # the model has called itself meanwhile
            return {path: policy.follow(memory.seen.get(path), moments) for path, moments in self.all_met().items()}
        return self.all_seen()

    def all_weights(self) -> Mapping[str, float | Tensor]:
        """Return the weight of that against the source."""
        return self.weights if self.fused is None else self.fused.weights(self.stream) | self.weights

    def broken(self) -> str | None:
        """Return the path of a layer whose input was not finite; None if there was none."""
        if self.fused is not None and (path := self.fused.broken(self.stream)) is not None:
            return path
        # All layers are checked together: on a GPU each check would have to wait for the device.
        if not self.variances or torch.cat([var.flatten() for _, var in self.variances]).isfinite().all():
            return None
        return next(path for path, var in self.variances if not var.isfinite().all())


def weigh(policy: Policy, place: Place, seen: Moments, rows: Rows) -> float | Tensor:
    """Return how much a policy counts what was seen, or raise a `CovshiftError` if that is not possible."""
    weight = policy.weigh(place, seen, rows)
    check_weight(weight, policy, place, seen)
    if seen.count == 1 and not isinstance(weight, Tensor) and weight == 1:
        raise one_value(place.path)
    return weight


def check_weight(weight: object, policy: Policy, place: Place, seen: Moments) -> None:
    """Raise a `CovshiftError` unless this is what `weigh` may return for moments that a layer has seen."""
    name, shape = type(policy).__name__, tuple(seen.mean.shape)
    if not isinstance(weight, Tensor):
        if not (is_number(weight) and 0 <= weight <= 1):  # type: ignore[operator]
            raise CovshiftError(f"expected weigh() of {name} to return a number from 0 to 1, got {weight!r}")
    elif weight.ndim > len(shape) or any(
        size not in (1, wanted) for size, wanted in zip(reversed(weight.shape), reversed(shape), strict=False)
    ):
        raise CovshiftError(
            f"expected weigh() of {name} to return a number, or a tensor that broadcasts to the moments of layer "
            f"{place.path!r}, which are {list(shape)}, got a tensor of {list(weight.shape)}"
        )
