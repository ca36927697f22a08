"""`Seen`: the moments of all places of a model in one array, so that a pass need not make objects for each of them."""

from collections.abc import Iterator, KeysView, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from covshift.core.moments import Moments
from covshift.core.places import Place

Table = NDArray[np.float64]
"""Means and variances of all places side by side, [2, channels of all places]."""


class Layout:
    """Where the channels of each place are in a `Table`.

    Attributes:
        columns: the channels of each place, by path.
        numbers: the numbers of the places, by path.
        dtypes: the types of their source statistics, by path.
        channels: the number of channels of all places.
        derived: what a policy has made of all this, by name, to be used again.
    """

    def __init__(self, places: Sequence[Place]) -> None:
        self.derived: dict[tuple[str, ...], Any] = {}
        self.columns: dict[str, slice] = {}
        self.numbers = {place.path: number for number, place in enumerate(places)}
        self.dtypes = {place.path: place.mean.dtype for place in places}
        self.channels = 0
        for place in places:
            self.columns[place.path] = slice(self.channels, self.channels + len(place.mean))
            self.channels += len(place.mean)

    def hold(self, seen: Mapping[str, Moments]) -> "Seen":
        """Return what was seen as a `Seen` of this layout, without copying it if it is one."""
        if isinstance(seen, Seen) and seen.layout is self:
            return seen
        held = Seen(self, np.empty((2, self.channels)), np.zeros((len(self.columns), 2)), dict.fromkeys(seen))
        for path, moments in seen.items():
            held.table[0, self.columns[path]] = moments.mean.numpy()
            held.table[1, self.columns[path]] = moments.var.numpy()
            held.counts[self.numbers[path]] = (moments.count, moments.images)
        return held


class Seen(Mapping[str, Moments]):
    """What places have seen, by path; `Moments` are made when they are asked for.

    Attributes:
        layout: where the channels of each place are in the table.
        table: the moments of all places; those of places that were not reached mean nothing.
        counts: the numbers of values and of images that each place has seen, [places, 2].
        reached: the paths of the places that were reached, in that order.
        narrow: whether `Moments` are in the type of the layer, as those of a single batch are.
    """

    def __init__(
        self, layout: Layout, table: Table, counts: Table, reached: dict[str, None], *, narrow: bool = False
    ) -> None:
        self.layout = layout
        self.table = table
        self.counts = counts
        self.reached = reached
        self.narrow = narrow

    def copy(self) -> "Seen":
        """Return the same with arrays of its own, which does not keep those of other streams in memory."""
        return Seen(self.layout, self.table.copy(), self.counts.copy(), self.reached, narrow=self.narrow)

    def __getitem__(self, path: str) -> Moments:
        if path not in self.reached:
            raise KeyError(path)
        count, images = self.counts[self.layout.numbers[path]].tolist()
        both = torch.from_numpy(self.table[:, self.layout.columns[path]])
        mean, var = both.to(self.layout.dtypes[path]) if self.narrow else both
        return Moments(count, images, mean, var)

    def __contains__(self, path: object) -> bool:
        return path in self.reached

    def __iter__(self) -> Iterator[str]:
        return iter(self.reached)

    def __len__(self) -> int:
        return len(self.reached)


def images_in(seen: Mapping[str, Moments]) -> float:
    """Return the number of images seen: the largest over the places, since a place may be left out of some passes."""
    if isinstance(seen, Seen):
        return float(seen.counts[:, 1].max())
    return max((moments.images for moments in seen.values()), default=0.0)


def joined(before: Mapping[str, Moments], seen: Mapping[str, Moments]) -> Mapping[str, Moments]:
    """Return what was seen, and of places that were not reached what was seen there before."""
    if isinstance(seen, Seen) and paths_of(before) <= paths_of(seen):
        return seen
    return {**before, **seen}


def paths_of(seen: Mapping[str, Moments]) -> KeysView[str]:
    """Return the paths of the places that were reached, which are compared at once if they are those of a `Seen`."""
    return seen.reached.keys() if isinstance(seen, Seen) else seen.keys()
