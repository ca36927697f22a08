"""The orders of many streams at once, in arrays: what `order` says of one, for passes that compiled code serves."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covshift.core.classes import Classes
from covshift.core.moments import Moments
from covshift.core.order import FADES, FIRST, RECENT
from covshift.core.seen import Seen, images_in, paths_of

Numbers = NDArray[np.float64]
Notes = Mapping[str, Tensor]
Kept = Mapping[str, Moments]


class First(NamedTuple):
    """The first places of which it is known what classes do there, side by side.

    Attributes:
        columns: the channels of these places in the table of a `Seen`.
        slopes: the change of the means with the embedding, [directions, channels].
        precision: what squared differences from the means of one image count where its class does not explain them;
            their sum is then a mean over places.
    """

    columns: NDArray[np.intp]
    slopes: Numbers
    precision: Numbers

    @classmethod
    def of(cls, seen: Seen, classes: Classes) -> "First | None":
        """Return the first places among those that were reached; None if there are none."""
        layout, name = seen.layout, ("first", *seen.reached)
        if name not in layout.derived or layout.derived[name][0] is not classes:
            layout.derived[name] = (classes, cls._of(seen, classes))
        found: First | None = layout.derived[name][1]
        return found

    @classmethod
    def _of(cls, seen: Seen, classes: Classes) -> "First | None":
        paths = [path for path in seen if path in classes.slopes][:FIRST]
        if not paths:
            return None
        slopes = [classes.slopes[path] for path in paths]
        precision = torch.cat([1 / (one.noise * len(one.noise) * len(paths)) for one in slopes]).numpy()
        columns = np.concatenate([np.arange(seen.layout.channels)[seen.layout.columns[path]] for path in paths])
        return cls(columns, torch.cat([one.mean for one in slopes], 1).numpy(), precision)

    def means(self, seen: Sequence[Seen]) -> Numbers:
        """Return the means that streams have seen at these places, [streams, channels]."""
        return np.stack([each.table[0, self.columns] for each in seen])


class Orders(NamedTuple):
    """What streams have shown of their order, and the means of their last images.

    Attributes:
        vectors: `mix` and `last` of each `Order`, [streams, 2, directions].
        numbers: its other numbers, [streams, 4].
        recent: `means` of each `Recent`, [streams, channels].
        chance: `chance` of it; 0 where it holds nothing.
    """

    vectors: Numbers
    numbers: Numbers
    recent: Numbers
    chance: Numbers

    @classmethod
    def of(cls, notes: Sequence[Notes], first: First) -> "Orders":
        """Return the orders that the notes of memories hold."""
        streams, (directions, channels) = len(notes), first.slopes.shape
        vectors, numbers = np.zeros((streams, 2, directions)), np.zeros((streams, 4))
        recent, chance = np.zeros((streams, channels)), np.zeros(streams)
        for i, each in enumerate(notes):
            if "order" in each:
                vectors[i], numbers[i] = each["classes"].numpy(), each["order"].numpy()
            held = each.get("recent")
            if held is not None and held.shape[0] == channels + 1:
                values = held.numpy()
                recent[i], chance[i] = values[1:], values[0]
        return cls(vectors, numbers, recent, chance)

    def after(
        self,
        first: First,
        located: Numbers,
        number: Numbers,
        share: Numbers,
        before: Sequence[Kept],
        seen: Sequence[Seen],
    ) -> "Orders":
        """Return the orders after one more batch of each stream.

        Args:
            first: the places that are compared.
            located: the mean embedding of the images of each batch, from the source's, [streams, directions].
            number: the number of these images.
            share: their share in what is remembered after it.
            before: what the places of each stream had seen before.
            seen: what they have seen after it.
        """
        (mix, last), (_, along, across, count) = self.vectors.swapaxes(0, 1), self.numbers.T
        began, fresh = count > 0, self.chance == 0
        along = along * FADES + began * (last * located).sum(1)
        across = across * FADES + began * (last * last).sum(1)
        vectors = np.stack([mix + (located - mix) * share[:, None], located], 1)
        means, start = first.means(seen), first.means(_carried(before, seen))
        batch = start + (means - start) / share[:, None] - located @ first.slopes
        rate = np.where(fresh, 1.0, 1 - (1 - 1 / RECENT) ** number)
        recent = self.recent + (batch - self.recent) * rate[:, None]
        chance = (1 - rate) ** 2 * self.chance + rate**2 / number
        images = np.array([images_in(each) for each in seen])
        return Orders(vectors, np.stack([images, along, across, count + 1], 1), recent, chance)

    def surprise(self, first: First, seen: Sequence[Seen]) -> Numbers:
        """Return how far the last images of each stream lie from those remembered; 1 is what chance explains."""
        apart = self.recent - (first.means(seen) - self.vectors[:, 0] @ first.slopes)
        surprise: Numbers = (apart * apart) @ first.precision / (self.chance + 1 / self.numbers[:, 0])
        return surprise

    def notes(self) -> list[dict[str, Tensor]]:
        """Return the orders as the notes of memories."""
        recent = np.concatenate([self.chance[:, None], self.recent], 1)
        rows = zip(self.vectors, self.numbers, recent, strict=True)
        names = ("classes", "order", "recent")
        return [{name: torch.from_numpy(part.copy()) for name, part in zip(names, row, strict=True)} for row in rows]


def _carried(before: Sequence[Kept], seen: Sequence[Seen]) -> list[Seen]:
    """Return what was seen before by the streams that have seen the same places since; of others, what they see now."""
    return [
        now.layout.hold(old) if paths_of(old) == paths_of(now) else now for old, now in zip(before, seen, strict=True)
    ]
