"""What is carried from pass to pass, as users see it: a state to save and resume from, and health."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from covshift.core.finding import find_places
from covshift.core.health import Health
from covshift.core.moments import Moments
from covshift.core.places import Only, Patterns, Place
from covshift.core.policies import Memory, Numbers, Policy
from covshift.core.seen import Seen
from covshift.core.source import Source, anchors_of, statistics_toward
from covshift.core.statistics import Statistics
from covshift.support.errors import CovshiftError

Weights = Mapping[str, float | Tensor]
"""How much of what each place has seen was followed in the last pass, by path."""


def export_state(
    policy: Policy, memory: Memory, places: Sequence[Place], fingerprint: str, source: Source | None
) -> Statistics:
    """Return a memory as the statistics that users save and swap."""
    held = {place.path: Moments(0, 0, place.mean.clone(), place.var.clone()) for place in places}
    return policy.export(memory, statistics_toward(source, held, held, fingerprint))


def resume_state(
    policy: Policy, state: Statistics, places: Sequence[Place], fingerprint: str, source: Source | None
) -> Memory:
    """Return the memory that a state describes, or raise a `CovshiftError` if it is one of another model."""
    memory = policy.resume(state)
    if state.fingerprint != fingerprint or state.keys() != {place.path for place in places}:
        raise CovshiftError("this state is of another model, or of other layers than the ones adapted here")
    state.check_values({place.path: place.mean.shape for place in places})
    return replace(memory.to({place.path: place.mean.device for place in places}), source=source)


def health_of(policy: Policy, memory: Memory, weights: Weights, places: Sequence[Place]) -> Health:
    """Return what a policy does with a memory at the moment, and why."""
    trust = {path: float(torch.as_tensor(weight).mean()) for path, weight in weights.items()}
    shift = {place.path: place.distance(memory.seen[place.path]) for place in places if place.path in memory.seen}
    return policy.judge(memory, trust, shift)


def settle(
    policy: Policy, model: torch.nn.Module, source: Source | None, layers: Patterns, only: Only
) -> tuple[Source | None, list[Place]]:
    """Return the source that a policy works with on a model, and the places that it corrects."""
    anchors = anchors_of(source, model)
    if source is None or anchors is None:
        return source, find_places(model, anchors, layers, only)
    settled = policy.settle_on(source, model)
    return settled, find_places(model, settled.statistics, layers, only, settled.clean)


class Distance:
    """How far what was seen is from the source, in its standard deviations: the root mean square over places."""

    def __init__(self, places: Sequence[Place]) -> None:
        self._places = places

    def of(self, seen: Mapping[str, Moments]) -> float:
        """Return the distance of what was seen at some of the places."""
        if isinstance(seen, Seen) and len(seen) == len(self._places):
            means, counts = self._rows
            return float(np.sqrt(np.square(seen.table[0] - means) @ counts))
        moved = [place.moved(seen[place.path]) for place in self._places if place.path in seen]
        return float(torch.cat(moved).mean().sqrt())

    def of_all(self, seen: Sequence[Mapping[str, Moments]]) -> list[float | None]:
        """Return the distances of what some streams have seen, in one operation if possible; None before any images."""
        tables = [each.table[0] for each in seen if isinstance(each, Seen) and len(each) == len(self._places)]
        if len(tables) < len(seen):
            return [self.of(each) if each else None for each in seen]
        means, counts = self._rows
        distances: list[float | None] = np.sqrt(np.square(np.stack(tables) - means) @ counts).tolist()
        return distances

    @cached_property
    def _rows(self) -> tuple[Numbers, Numbers]:
        """The source means of all places in one row, and what squared differences from them count."""
        counts = [place.scale / (len(place.scale) * len(self._places)) for place in self._places]
        return torch.cat([place.wide_clean[0] for place in self._places]).numpy(), torch.cat(counts).numpy()
