"""`Live`: a policy for a camera, which follows the shift, not the classes, and holds still where it cannot tell."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from covshift.core.auto import MOST, chance_of_batch
from covshift.core.classes import Classes, locate, without_classes
from covshift.core.health import Health, judge
from covshift.core.moments import Moments, widen
from covshift.core.order import RECENT, Order, Recent, check_notes, surprise, without_class
from covshift.core.places import Place
from covshift.core.policies import Memory, Policy, Rows, Stream
from covshift.core.statistics import Statistics, check_prior, target_weight
from covshift.support.checks import check_flags
from covshift.support.errors import CovshiftError, is_number

DOUBT = 2.0
"""How many times the chance that was measured on clean images is taken for chance."""

CHANGE = 4.0
"""How many times chance the last images must differ from those remembered to be taken for those of a new domain."""


@dataclass(frozen=True)
class Live(Policy):
    """A policy for a stream in any order: single images or small batches, one domain after another.

    It remembers the last images, as `Stream` does, but follows neither what their classes explain nor what chance
    explains: every place counts what it has seen only as far as it differs from the source by more than clean images
    of these classes do. Needs a `Source` for that; without one it can tell less, and so follows less.

    Args:
        memory: the number of images that are remembered.
        prior: N, how many images the source statistics count for in addition (Eq. 3).
        sync: whether ranks of `torch.distributed` pool what they see; their classes stay apart.

    >>> from torch import nn
    >>> from covshift.core.adapter import adapt
    >>> from covshift.core.source import Source
    >>> net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 4)).eval()
    >>> source = Source.measure(net, torch.rand(100, 3, 8, 8))
    >>> with adapt(net, Live(), source=source) as adapter:
    ...     for frame in torch.rand(5, 1, 3, 8, 8):
    ...         logits = net(frame)
    ...     round(adapter.state.images, 1)
    5.0
    """

    carries: ClassVar[bool] = True

    memory: float = 200
    prior: float = 16
    sync: bool = False

    def __post_init__(self) -> None:
        check_prior(self.prior)
        check_flags(sync=self.sync)
        if not is_number(self.memory) or not 1 < self.memory < math.inf:
            raise CovshiftError(f"expected memory to be a number of images above 1, got {self.memory!r}")

    def follow(self, before: Moments | None, batch: Moments) -> Moments:
        """Return the moments of the last images."""
        return Stream(self.prior, 1 - 1 / self.memory).follow(before, batch)

    def aim(self, place: Place, seen: Moments, rows: Rows | None) -> Moments:
        """Return the moments to correct by: what would have been seen of the source's own classes."""
        classes = None if rows is None else _classes_of(rows.memory)
        if classes is None or place.path not in classes.slopes:
            return seen
        assert rows is not None
        order = Order.of(rows.memory.notes, classes)
        share = self._share(order, rows.images)
        offset = order.mix * (1 - share) + order.expected * share
        return without_classes(place, seen, classes.slopes[place.path], offset)

    def weigh(self, place: Place, seen: Moments, rows: Rows | None) -> float | Tensor:
        """Return the share of the difference that neither chance nor classes explain, of n/(N+n)."""
        if rows is None:
            return 0.0
        scale = 1 / (place.wide[1] + place.eps)
        moved = ((widen(seen.mean) - place.wide[0]).square() * scale).mean()
        chance, most = self._chance(place, seen, rows, scale)
        unexplained = (1 - chance / moved.clamp(min=torch.finfo(moved.dtype).tiny)).clamp(min=0)
        weight = unexplained * most * target_weight(seen.images, self.prior)
        return weight.to(seen.mean.dtype).reshape(1)

    def _chance(self, place: Place, seen: Moments, rows: Rows, scale: Tensor) -> tuple[Tensor, float]:
        """Return how far clean images of these classes would have moved the mean, and how much to trust the rest."""
        source, classes = rows.memory.source, _classes_of(rows.memory)
        images = max(seen.images, 1.0)
        if source is None or not source.measured:
            one = chance_of_batch(rows.x, rows.images, sync=False) * rows.images
            return DOUBT * (one * scale).mean() / images, MOST
        spread = (source.spread[place.path] * scale).mean()
        if classes is None or place.path not in classes.slopes:
            return DOUBT * spread * (1 / images + 1 / source.statistics.images), 1.0
        known = (classes.slopes[place.path].unexplained * scale).mean()
        order = Order.of(rows.memory.notes, classes)
        unsure = (spread - known).clamp(min=0) * order.doubt * self._share(order, rows.images) ** 2
        return DOUBT * known * (1 / images + 1 / source.statistics.images) + unsure, 1.0

    def _share(self, order: Order, images: int) -> float:
        """Return the share of the images of a pass in what is remembered after it."""
        kept = (1 - 1 / self.memory) ** images
        new = (1 - kept) * self.memory
        return new / (order.images * kept + new) if images else 0.0

    def commit(self, memory: Memory, seen: Mapping[str, Moments], output: object) -> Memory:
        """Return the memory with what was seen, and with the classes that the model said it shows."""
        after = super().commit(memory, seen, output)
        classes = _classes_of(memory)
        located = None if classes is None or output is None else locate(output, classes.embedding)
        if classes is None or located is None or not len(located) or not seen:
            return after
        order = Order.of(memory.notes, classes)
        share = self._share(order, len(located))
        offset = located.mean(0) - classes.centre
        images = max(moments.images for moments in seen.values())
        later = order.after(offset, images, share)
        before = memory.seen if memory.seen.keys() == seen.keys() else {}
        recent = Recent.of(memory.notes).after(
            without_class(
                {path: _batch(before.get(path), each, share) for path, each in seen.items()}, classes, offset
            ),
            len(located),
        )
        remembered = without_class(seen, classes, later.mix)
        if order.images > 2 * RECENT and surprise(recent, remembered, images, seen, classes) > CHANGE:
            return replace(memory, seen={}, notes=order.anew().notes())
        return replace(after, notes={**later.notes(), **recent.notes()})

    def resume(self, state: Statistics) -> Memory:
        """Return the memory that a state describes, or raise a `CovshiftError` if its notes are damaged."""
        memory = super().resume(state)
        check_notes(memory.notes)
        return memory

    def judge(self, memory: Memory, trust: Mapping[str, float], shift: Mapping[str, float]) -> Health:
        """Return what the adapter does at the moment, and why."""
        classes = _classes_of(memory)
        images = max((moments.images for moments in memory.seen.values()), default=0.0)
        shares: tuple[float, ...] = ()
        if classes is not None and memory.seen and classes.embedding.shape[0] == classes.embedding.shape[1]:
            mix = Order.of(memory.notes, classes).mix + classes.centre
            shares = tuple((mix @ classes.embedding.mT).tolist())
        return judge(images, trust, shift, classes=shares, reset="order" in memory.notes and not memory.seen)


def _batch(before: Moments | None, after: Moments, share: float) -> Moments:
    """Return what the mean of a batch was, which moved what is remembered from `before` to `after`."""
    if before is None or not share:
        return after
    return replace(after, mean=before.mean + (widen(after.mean) - before.mean) / share)


def _classes_of(memory: Memory) -> Classes | None:
    return None if memory.source is None else memory.source.classes
