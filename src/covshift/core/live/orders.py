"""The orders of many streams at once, in arrays: what `order` says of one, for passes that compiled code serves."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covshift.core.classes import Classes
from covshift.core.live.order import FADES, FIRST, RECENT
from covshift.core.moments import Moments
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
        recent: `chance` and `means` of each `Recent`, [streams, 1 + channels]; 0 where it holds nothing.
    """

    vectors: Numbers
    numbers: Numbers
    recent: Numbers

    @classmethod
    def of(cls, notes: Sequence[Notes], first: First) -> "Orders":
        """Return the orders that the notes of memories hold."""
        streams, (directions, channels) = len(notes), first.slopes.shape
        found = cls(np.zeros((streams, 2, directions)), np.zeros((streams, 4)), np.zeros((streams, channels + 1)))
        for i, each in enumerate(notes):
            if "order" in each:
                found.vectors[i], found.numbers[i] = each["classes"].numpy(), each["order"].numpy()
            held = each.get("recent")
            if held is not None and held.shape[0] == channels + 1:
                found.recent[i] = held.numpy()
        return found

    def add(
        self,
        first: First,
        located: Numbers,
        number: NDArray[np.int64],
        share: Numbers,
        before: Sequence[Kept],
        seen: Sequence[Seen],
    ) -> Numbers:
        """Add one more batch of each stream, and return how far its last images lie from those remembered.

        Args:
            first: the places that are compared.
            located: the mean embedding of the images of each batch, from the source's, [streams, directions].
            number: the number of these images.
            share: their share in what is remembered after it.
            before: what the places of each stream had seen before.
            seen: what they have seen after it.

        Returns:
            The surprise of each stream, where 1 is what chance explains.
        """
        from covshift.core.compiled.order_kernels import add_batches  # numba takes a while to import

        surprise, images = np.empty(len(seen)), np.array([images_in(each) for each in seen])
        start, means = first.means(_carried(before, seen)), first.means(seen)
        add_batches(
            *(self.vectors, self.numbers, self.recent, located, number, share, images, start, means),
            *(first.slopes, first.precision, FADES, 1 - 1 / RECENT, surprise),
        )
        return surprise

    def notes(self) -> list[dict[str, Tensor]]:
        """Return the orders as the notes of memories."""
        names = ("classes", "order", "recent")
        alone = len(self.numbers) == 1  # else each gets copies, which do not keep those of other streams in memory
        return [
            {name: torch.from_numpy(part if alone else part.copy()) for name, part in zip(names, row, strict=True)}
            for row in zip(*self, strict=True)
        ]


def _carried(before: Sequence[Kept], seen: Sequence[Seen]) -> list[Seen]:
    """Return what was seen before by the streams that have seen the same places since; of others, what they see now."""
    return [
        now.layout.hold(old) if paths_of(old) == paths_of(now) else now for old, now in zip(before, seen, strict=True)
    ]


def locate_all(outputs: Sequence[object], classes: Classes | None) -> tuple[Numbers, NDArray[np.int64]] | None:
    """Return the mean embedding of each output's images, from the source's, and their number, if all are known."""
    from covshift.core.compiled.order_kernels import locate_batches  # numba takes a while to import

    logits = [output for output in outputs if isinstance(output, Tensor) and output.ndim == 2 and output.shape[0]]
    if classes is None or len(logits) < len(outputs) or {each.shape[1] for each in logits} != {len(classes.apart)}:
        return None
    rows = (logits[0] if len(logits) == 1 else torch.cat(logits)).detach().cpu().double().contiguous()
    numbers = np.array([each.shape[0] for each in logits])
    located = np.empty((len(logits), classes.apart.shape[1]))
    locate_batches(rows.numpy(), numbers, classes.apart.numpy(), located)
    return (located, numbers) if np.isfinite(located).all() else None
