"""Some images of a data set, in a fixed order, ready for a model, in any condition."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from covshift.corruptions import corrupt
from covshift.data.condition import CLEAN, MIXED, SEQUENCE, TEST, Condition, draw_mixed
from covshift.data.orders import Order, arrange, parse_order
from covshift.data.readable import Labels, Preparing, Readable
from covshift.data.sequences import Shown
from covshift.support.arrays import Array
from covshift.support.checks import check_number, check_seed
from covshift.support.errors import CovshiftError

_CHUNK = 256  # images made at a time


class Truth(NamedTuple):
    """The classes of the images of a batch, and the indices of these images in their data set."""

    labels: Labels
    indices: Labels


class ImageBatch(NamedTuple):
    """Images as uint8 NHWC, and their classes; -1 where the data are unlabelled.

    `indices` are those of the images in their data set; none for images that come from elsewhere.
    """

    images: Array
    labels: Labels
    indices: Labels = np.empty(0, np.int64)

    @classmethod
    def stack(
        cls, images: Sequence[Array], labels: Sequence[int] | Labels, indices: Sequence[int] = ()
    ) -> "ImageBatch":
        """Return single images of one size, HWC, as a batch."""
        return cls(_stack(images), np.asarray(labels, np.int64), np.asarray(indices, np.int64))

    @property
    def truth(self) -> Truth:
        """The batch without its pixels."""
        return Truth(self.labels, self.indices)

    def part(self, start: int, stop: int | None = None) -> "ImageBatch":
        """Return the images from `start` up to, but without, `stop`."""
        return ImageBatch(*(column[start:stop] for column in self))


@dataclass(frozen=True)
class CorruptionSettings:
    """Settings that corrupted images are made with: the arguments of `corrupt` beside the corruption."""

    seed: int = 0
    frost: str = "procedural"
    jpeg: int | None = None


def choose(labels: Labels, *, limit: int | None = None, order: Order = "shuffled", seed: int = 0) -> list[int]:
    """Return the indices of `limit` images, as many of each class as can be; the same ones for the same seed.

    Shuffled is the default for a reason: a batch of one class has the statistics of that class, not of the shift.
    The images are the same in every order.

    >>> choose(np.array([0, 0, 0, 1, 1, 1]), limit=4, order="label")
    [0, 2, 3, 5]
    """
    parse_order(order)
    check_seed(seed)
    if limit is not None:
        check_number(limit, "limit", 1, whole=True, of="images")
    shuffled = np.random.default_rng(seed).permutation(len(labels))
    if limit is not None and limit < len(labels):
        # One image of every class, then a second one of each, and so on.
        rank = np.empty(len(labels), np.intp)
        for label in np.unique(labels):
            mine = shuffled[labels[shuffled] == label]
            rank[mine] = np.arange(len(mine))
        taken = shuffled[np.argsort(rank[shuffled], kind="stable")[:limit]]
        shuffled = shuffled[np.isin(shuffled, taken)]
    return [int(index) for index in arrange(shuffled, labels, order, [seed, 0, 1])]


class Selection:
    """Images of a data set, prepared for a model; clean ones are decoded once for all conditions, as memory allows.

    Args:
        data: the data set.
        indices: the indices of the images, in their order.
        prepare: the function that resizes and crops an image.
        corruption_settings: how corrupted images are made, where they are not stored.
        memory: the number of bytes for decoded images, half for clean ones, half for those of a condition.
        skip_broken: whether to leave out pictures that cannot be read; otherwise the first one raises an error, which
            names this setting, unless it is None because the user has no such choice.
        stream: the images of a sequence of conditions, one by one, which are those of the condition `SEQUENCE`.
    """

    def __init__(
        self,
        data: Readable,
        indices: Sequence[int],
        prepare: Preparing,
        *,
        corruption_settings: CorruptionSettings | None = None,
        memory: float = 2**30,
        skip_broken: bool | None = None,
        stream: Sequence[Shown] = (),
    ) -> None:
        self.data = data
        self.indices = list(indices)
        self._prepare = prepare
        self._corruption_settings = corruption_settings or CorruptionSettings()
        self.room = memory / 2
        self._clean: dict[int, Array] = {}
        self._skip_broken = skip_broken
        self._stream = stream
        self._labels = data.labels if data.labelled else np.full(len(data), -1, np.int64)
        among = tuple(c for c in TEST if data.has(c))
        self._mixed = draw_mixed(len(data), among, self._corruption_settings.seed) if among else None
        self._among = among

    def __len__(self) -> int:
        return len(self.indices)

    def images_in(self, condition: Condition) -> "ConditionImages":
        """Return the images in a condition."""
        return ConditionImages(self, condition, self.room)

    def size(self, condition: Condition) -> int:
        """Return the number of images that are shown in a condition."""
        return len(self._stream) if condition == SEQUENCE else len(self)

    def part(self, places: Sequence[int]) -> "Selection":
        """Return the images at these places as a selection; the two share what is decoded."""
        part = copy(self)
        part.indices = [self.indices[place] for place in places]
        return part

    def make(self, condition: Condition) -> Iterator[ImageBatch]:
        """Yield the images, read, prepared and corrupted, in batches of at most 256."""
        for start in range(0, self.size(condition), _CHUNK):
            if condition == SEQUENCE:
                shown = self._stream[start : start + _CHUNK]
                indices, images = [each.image for each in shown], self._several(shown)
            else:
                indices = self.indices[start : start + _CHUNK]
                images = self._mixture(indices) if condition == MIXED else self._some(condition, indices)
            kept = [(index, image) for index, image in zip(indices, images, strict=True) if image is not None]
            if kept:
                whole = [index for index, _ in kept]
                yield ImageBatch.stack([image for _, image in kept], self._labels[whole], whole)

    def _mixture(self, indices: list[int]) -> Sequence[Array | None]:
        assert self._mixed is not None
        return self._several([Shown(index, self._among[self._mixed[index]]) for index in indices])

    def _several(self, shown: Sequence[Shown]) -> Sequence[Array | None]:
        """Return images that are in conditions of their own."""
        found: dict[Shown, Array | None] = {}
        for condition in sorted({each.condition for each in shown}):
            mine = list(dict.fromkeys(each.image for each in shown if each.condition == condition))
            images = self._some(condition, mine)
            found |= {Shown(index, condition): image for index, image in zip(mine, images, strict=True)}
        return [found[each] for each in shown]

    def _some(self, condition: Condition, indices: list[int]) -> Sequence[Array | None]:
        """Return images in a condition that is stored or made of clean ones; None for those that cannot be read."""
        if condition == CLEAN:
            return self._clean_ones(indices)
        if condition in self.data.stored:
            return self._read(condition, indices)
        clean = self._clean_ones(indices)
        whole = [place for place, image in enumerate(clean) if image is not None]
        if not whole:
            return clean
        made = corrupt(
            _stack([image for image in clean if image is not None]),
            *condition,
            seed=self._corruption_settings.seed,
            indices=[indices[place] for place in whole],
            frost=self._corruption_settings.frost,
            jpeg=self._corruption_settings.jpeg,
        )
        images: list[Array | None] = [None] * len(indices)
        for place, image in zip(whole, made, strict=True):
            images[place] = image
        return images

    def _clean_ones(self, indices: list[int]) -> Sequence[Array | None]:
        missing = [index for index in indices if index not in self._clean]
        read = dict(zip(missing, self._read(CLEAN, missing), strict=True)) if missing else {}
        for index, image in read.items():
            # They are all of one size, or could not be stacked.
            if image is not None and (len(self._clean) + 1) * image.nbytes <= self.room:
                self._clean[index] = image
        return [self._clean[index] if index in self._clean else read[index] for index in indices]

    def _read(self, condition: Condition, indices: list[int]) -> Sequence[Array | None]:
        images = self.data.read(condition, indices, self._prepare)
        for image in images:
            if isinstance(image, CovshiftError) and not self._skip_broken:
                choice = "" if self._skip_broken is None else ", or leave it out with `skip_broken=True`"
                raise CovshiftError(f"{image}; repair or remove it{choice}") from image
        return [None if isinstance(image, CovshiftError) else image for image in images]


class ConditionImages:
    """The images of a selection in one condition, which may be iterated over repeatedly; made once if they fit."""

    def __init__(self, selection: Selection, condition: Condition, room: float) -> None:
        self.condition = condition
        self._selection = selection
        self._room = room
        self._kept: list[ImageBatch] | None = None

    def __len__(self) -> int:
        return self._selection.size(self.condition)

    def batches(self, size: int) -> Iterator[ImageBatch]:
        """Yield the images in batches of `size`; only the last one may be smaller."""
        return self.in_sizes(itertools.repeat(size))

    def pieces(self, n: int, size: int) -> Iterator[Iterator[ImageBatch]]:
        """Yield n images at a time, as batches of up to `size`."""
        for group in self.batches(n):
            yield _split(group, size)

    def in_turn(self, n: int) -> Iterator[ImageBatch]:
        """Yield n images at a time, each of which goes through a model before the next ones."""
        return self.batches(n)

    def spread(self, n: int) -> bool:
        """Return whether each n images are spread over several processes."""
        return False

    def in_sizes(self, sizes: Iterable[int]) -> Iterator[ImageBatch]:
        """Yield the images in batches of these sizes, one after the other."""
        return _rebatch(self._chunks(), iter(sizes))

    def _chunks(self) -> Iterable[ImageBatch]:
        return self._make() if self._kept is None else self._kept

    def _make(self) -> Iterator[ImageBatch]:
        kept: list[ImageBatch] = []
        room = self._room
        for batch in self._selection.make(self.condition):
            room -= batch.images.nbytes
            kept = [*kept, batch] if room >= 0 else []
            yield batch
        if room >= 0:
            self._kept = kept


def _rebatch(chunks: Iterable[ImageBatch], sizes: Iterator[int]) -> Iterator[ImageBatch]:
    waiting: list[ImageBatch] = []
    count, size = 0, next(sizes, 0)
    for chunk in chunks:
        waiting.append(chunk)
        count += len(chunk.labels)
        while 0 < size <= count:
            whole = _join(waiting)
            yield whole.part(0, size)
            waiting = [whole.part(size)]
            count, size = count - size, next(sizes, 0)
    if count:
        yield _join(waiting)


def _split(batch: ImageBatch, size: int) -> Iterator[ImageBatch]:
    for start in range(0, len(batch.labels), size):
        yield batch.part(start, start + size)


def _stack(images: Sequence[Array]) -> Array:
    shapes = {image.shape for image in images}
    if len(shapes) > 1:
        sizes = " and ".join(f"{width} x {height}" for height, width, _ in sorted(shapes)[:2])
        raise CovshiftError(
            f"expected images of one size, got {sizes} px; give the model a size to crop to, e.g. `size=224`"
        )
    return np.stack(images)


def _join(batches: list[ImageBatch]) -> ImageBatch:
    batches = [batch for batch in batches if len(batch.labels)]
    if len(batches) == 1:
        return batches[0]
    return ImageBatch(*(np.concatenate(columns) for columns in zip(*batches, strict=True)))
