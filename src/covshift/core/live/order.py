"""What a stream has shown so far of its order: which classes, how long it stays with one, and sudden changes."""

from collections.abc import Collection, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from covshift.core.classes import Classes
from covshift.core.moments import Moments, widen

RECENT = 8
"""Number of images that are compared with what is remembered, to notice a change."""

FIRST = 10
"""Number of places, from the input on, that are compared: what later ones see depends on corrections before."""

FADES = 0.9
"""How much of what is known of the order is kept from batch to batch."""

_LEAST_DOUBT = 1 / 8  # of what classes do: never taken to be known better from the last images
SURE = 3
"""Number of batches before the order is believed."""


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
    def of(cls, notes: Mapping[str, Tensor], classes: Classes) -> "Order":
        """Return the order that the notes of a memory hold."""
        if "order" not in notes:
            nothing = torch.zeros_like(classes.centre)
            return cls(nothing, nothing)
        vectors, numbers = notes["classes"], notes["order"]
        return cls(vectors[0], vectors[1], *numbers.tolist())

    @property
    def likeness(self) -> float:
        """How much the classes of a batch are expected to be those of the last one, from 0 to 1."""
        return min(1.0, max(0.0, self.along / self.across)) if self.across > 0 else 1.0

    @property
    def length(self) -> float:
        """The mean square of the embedding of a batch, from the source's mean."""
        counted = (1 - FADES ** (self.batches - 1)) / (1 - FADES)
        return self.across / counted if counted > 0 else 0.0

    @property
    def expected(self) -> Tensor:
        """The embedding that is expected of the next batch."""
        return self.last * self.likeness

    @property
    def doubt(self) -> float:
        """The share of what classes do that is not known of the next batch."""
        return max(1 - self.likeness**2, _LEAST_DOUBT) if self.batches > SURE else 1.0

    def after(self, located: Tensor, images: float, share: float) -> "Order":
        """Return the order after one more batch."""
        along, across = self.along * FADES, self.across * FADES
        if self.batches:
            along += float(self.last @ located)
            across += float(self.last @ self.last)
        return Order(torch.lerp(self.mix, located, share), located, images, along, across, self.batches + 1)

    def anew(self) -> "Order":
        """Return the order at the start of a new domain, whose classes go on as before."""
        return self._replace(mix=torch.zeros_like(self.mix), images=0.0)

    def notes(self) -> dict[str, Tensor]:
        """Return the order as the notes of a memory."""
        numbers = torch.tensor([self.images, self.along, self.across, self.batches], dtype=torch.float64)
        return {"classes": torch.stack([self.mix, self.last]), "order": numbers}


class Recent(NamedTuple):
    """The means of the last few images at the first places, without what their classes explain.

    Attributes:
        means: one vector for all of these places together; empty at the start.
        chance: the variance by chance of a mean over these images, where that of one image is 1.
    """

    means: Tensor
    chance: float = 1.0

    @classmethod
    def of(cls, notes: Mapping[str, Tensor]) -> "Recent":
        """Return what the notes of a memory hold."""
        held = notes.get("recent")
        return cls(torch.empty(0, dtype=torch.float64)) if held is None else cls(held[1:], float(held[0]))

    def after(self, means: Tensor, images: int) -> "Recent":
        """Return the same after one more batch."""
        if len(self.means) != len(means):
            return Recent(means, 1 / images)
        rate = 1 - (1 - 1 / RECENT) ** images
        return Recent(torch.lerp(self.means, means, rate), (1 - rate) ** 2 * self.chance + rate**2 / images)

    def notes(self) -> dict[str, Tensor]:
        """Return this as the notes of a memory."""
        return {"recent": torch.cat([self.means.new_tensor([self.chance]), self.means])}


def first_places(seen: Mapping[str, Moments], classes: Classes) -> dict[str, Moments]:
    """Return what was seen at the first places of which it is known what classes do there."""
    return {path: seen[path] for path in [path for path in seen if path in classes.slopes][:FIRST]}


def means_without(seen: Mapping[str, Moments], classes: Classes, offset: Tensor) -> Tensor:
    """Return the means at some places, one vector, without what classes with this offset of their embedding explain."""
    return torch.cat([widen(each.mean) - offset @ classes.slopes[path].mean for path, each in seen.items()])


def surprise(recent: Recent, remembered: Tensor, images: float, paths: Collection[str], classes: Classes) -> float:
    """Return how far the last images lie from those remembered, as a mean over places; 1 is what chance explains."""
    apart, start, total = (recent.means - remembered).square(), 0, 0.0
    for path in paths:
        noise = classes.slopes[path].noise
        scale = noise * (recent.chance + 1 / images)
        total += float((apart[start : start + len(noise)] / scale).mean())
        start += len(noise)
    return total / len(paths)


def whole_order(notes: Mapping[str, Tensor]) -> bool:
    """Return whether the notes of a state, as far as they are of an order, can be resumed from."""
    order, classes, recent = (notes.get(name) for name in ("order", "classes", "recent"))
    if order is None and classes is None and recent is None:
        return True
    whole = (
        order is not None and classes is not None and order.shape == (4,) and classes.ndim == 2 and len(classes) == 2
    )
    given = [note for note in (order, classes, recent) if note is not None]
    possible = all(bool(note.isfinite().all()) for note in given)
    known = recent is None or (recent.ndim == 1 and len(recent) > 1 and bool(recent[0] > 0))
    return whole and possible and known and not bool((order[[0, 3]] < 0).any())  # type: ignore[index]
