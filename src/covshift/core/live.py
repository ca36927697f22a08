"""`Live`: a policy for a camera, which follows the shift, not the classes, and holds still where it cannot tell."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from covshift.core.auto import MOST, chance_of_batch
from covshift.core.classes import Classes, locate, without_classes
from covshift.core.moments import Moments, widen
from covshift.core.places import Place
from covshift.core.policies import Memory, Policy, Rows, Stream
from covshift.core.statistics import check_prior, target_weight
from covshift.support.errors import CovshiftError, is_number

DOUBT = 2.0
"""How many times the chance that was measured on clean images is taken for chance."""

_LEAST_DOUBT = 1 / 8  # of what classes do: never taken to be known better from the last images
_FADES = 0.9  # how much of what is known of the order is kept from batch to batch
_SURE = 3  # batches before the order is believed


@dataclass(frozen=True)
class Live(Policy):
    """A policy for a stream in any order: single images or small batches, one domain after another.

    It remembers the last images, as `Stream` does, but follows neither what their classes explain nor what chance
    explains: every place counts what it has seen only as far as it differs from the source by more than clean images
    of these classes do. Needs a `Source` for that; without one it can tell less, and so follows less.

    Args:
        memory: the number of images that are remembered.
        prior: N, how many images the source statistics count for in addition (Eq. 3).

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
        if not is_number(self.memory) or not self.memory > 1:
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
        order = Order.of(rows.memory, classes)
        share = self._share(order, seen)
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
        order = Order.of(rows.memory, classes)
        unsure = (spread - known).clamp(min=0) * order.doubt * self._share(order, seen) ** 2
        return DOUBT * known * (1 / images + 1 / source.statistics.images) + unsure, 1.0

    def _share(self, order: "Order", seen: Moments) -> float:
        """Return the share of the images of this pass in what is remembered."""
        return 1.0 if order.images == 0 else 1 - order.images * self._kept(order, seen) / seen.images

    def _kept(self, order: "Order", seen: Moments) -> float:
        # n' = n·d^b + (1 - d^b)·m, with memory m and d = 1 - 1/m: solved for d^b.
        return (self.memory - seen.images) / max(self.memory - order.images, 1e-9)

    def commit(self, memory: Memory, seen: Mapping[str, Moments], output: object) -> Memory:
        """Return the memory with what was seen, and with the classes that the model said it shows."""
        after = super().commit(memory, seen, output)
        classes = _classes_of(memory)
        located = None if classes is None or output is None else locate(output, classes.embedding)
        if classes is None or located is None or not len(located) or not seen:
            return after
        order = Order.of(memory, classes)
        images = max(moments.images for moments in seen.values())
        share = self._share(order, Moments(0, images, located, located))
        return replace(after, notes=order.after(located.mean(0) - classes.centre, images, share).notes())


class Order(NamedTuple):
    """What a stream has shown of the order of its classes.

    Attributes:
        mix: the mean embedding of the images that are remembered, from the source's mean.
        last: that of the last batch.
        images: the number of images that are remembered.
        along, across: sums whose ratio is how much a batch resembles the one before.
        batches: the number of batches so far.
    """

    mix: Tensor
    last: Tensor
    images: float = 0.0
    along: float = 0.0
    across: float = 0.0
    batches: float = 0.0

    @classmethod
    def of(cls, memory: Memory, classes: Classes) -> "Order":
        """Return the order that a memory holds."""
        if "order" not in memory.notes:
            nothing = torch.zeros_like(classes.centre)
            return cls(nothing, nothing)
        vectors, numbers = memory.notes["classes"], memory.notes["order"]
        return cls(vectors[0], vectors[1], *numbers.tolist())

    @property
    def likeness(self) -> float:
        """How much the classes of a batch are expected to be those of the last one, from 0 to 1."""
        return min(1.0, max(0.0, self.along / self.across)) if self.across > 0 else 1.0

    @property
    def expected(self) -> Tensor:
        """The embedding that is expected of the next batch."""
        return self.last * self.likeness

    @property
    def doubt(self) -> float:
        """The share of what classes do that is not known of the next batch."""
        return max(1 - self.likeness**2, _LEAST_DOUBT) if self.batches > _SURE else 1.0

    def after(self, located: Tensor, images: float, share: float) -> "Order":
        """Return the order after one more batch."""
        along, across = self.along * _FADES, self.across * _FADES
        if self.batches:
            along += float(self.last @ located)
            across += float(self.last @ self.last)
        return Order(torch.lerp(self.mix, located, share), located, images, along, across, self.batches + 1)

    def notes(self) -> dict[str, Tensor]:
        """Return the order as the notes of a memory."""
        numbers = torch.tensor([self.images, self.along, self.across, self.batches], dtype=torch.float64)
        return {"classes": torch.stack([self.mix, self.last]), "order": numbers}


def _classes_of(memory: Memory) -> Classes | None:
    return None if memory.source is None else memory.source.classes
