"""Images of a condition with the answers to them, before and after: repaired, broken, or still wrong."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from covshift.bench.methods import NONE
from covshift.bench.results.answers import Answers
from covshift.data.condition import CLEAN, Condition
from covshift.data.selection import Selection
from covshift.report.gather import Result
from covshift.report.naming import class_name
from covshift.report.sections.samples import encode
from covshift.support.arrays import Array
from covshift.support.errors import CovshiftError

KINDS = ("repaired", "broken", "still wrong")
"""What adaptation can have done to an answer, where one of the two is wrong."""


class Shot(NamedTuple):
    """An image with what was answered to it."""

    source: str
    small: bool
    truth: str
    before: str
    after: str
    alt: str


class Group(NamedTuple):
    """Images of a condition to which the answers turned out alike: their number, and some of them."""

    kind: str
    images: int
    shots: tuple[Shot, ...] = ()


class ConditionGallery(NamedTuple):
    """The images of one condition, with the condition in words."""

    condition: Condition
    title: str
    groups: tuple[Group, ...]

    @property
    def pictured(self) -> bool:
        """Whether there is an image to see."""
        return any(group.shots for group in self.groups)

    @property
    def size(self) -> int:
        """The number of bytes that the images take."""
        return sum(len(shot.source) for group in self.groups for shot in group.shots)


class Pair(NamedTuple):
    """The answers to the same images in a condition, of the model as it is and adapted, and the true classes."""

    condition: Condition
    labels: NDArray[np.int64]
    before: Answers
    after: Answers

    @property
    def kinds(self) -> dict[str, NDArray[np.bool_]]:
        """A flag for each image and kind: repaired, broken, or wrong before and after."""
        right = self.before.classes == self.labels, self.after.classes == self.labels
        return dict(zip(KINDS, (~right[0] & right[1], right[0] & ~right[1], ~right[0] & ~right[1]), strict=True))


def _title(result: Result, condition: Condition) -> str:
    """Return a condition in words; images that are shown as they are only are not called clean."""
    if condition == CLEAN:
        return "as they are" if result.natural else "clean"
    return f"{condition.corruption.replace('_', ' ')}, severity {condition.severity}"


def answers_before_and_after(result: Result, condition: Condition) -> Pair | None:
    """Return the answers of none and of the method that stands for adaptation; None where they were not kept."""
    if result.book is None or result.adapted is None:
        return None
    rows = [result.table.get(method, {}).get(condition) for method in (NONE, result.adapted)]
    before, after = (result.book.of(row) if row else None for row in rows)
    images = result.book.images
    if before is None or after is None or images is None or not np.array_equal(before.indices, after.indices):
        return None
    return Pair(condition, images.labels[images.places(before.indices)], before, after)


def show(result: Result, pair: Pair, selection: Selection, each: int) -> ConditionGallery:
    """Return the first images of each kind in the order of the run, `each` at most, and the numbers of all."""
    kinds = pair.kinds
    chosen = {kind: np.flatnonzero(mask)[:each] for kind, mask in kinds.items()}
    indices = pair.before.indices
    wanted = {int(indices[place]): int(pair.labels[place]) for places in chosen.values() for place in places}
    pixels = _pixels(selection, pair.condition, wanted)
    title = _title(result, pair.condition)

    def shot(place: int) -> Shot:
        truth = class_name(result, int(pair.labels[place]))
        before, after = (
            f"{class_name(result, int(answers.classes[place]))} ({100 * answers.probability[place]:.0f}\N{NBSP}%)"
            for answers in (pair.before, pair.after)
        )
        alt = f"{truth} ({title}): answered {before} as the model is, {after} adapted"
        return Shot(*encode(pixels[int(indices[place])]), truth, before, after, alt)

    groups = [
        Group(kind, int(mask.sum()), tuple(shot(place) for place in chosen[kind] if int(indices[place]) in pixels))
        for kind, mask in kinds.items()
    ]
    return ConditionGallery(pair.condition, title, tuple(groups))


def _pixels(selection: Selection, condition: Condition, wanted: dict[int, int]) -> dict[int, Array]:
    """Return images by their index, as the model saw them; those that cannot be read now are left out.

    Args:
        selection: the images of the run.
        condition: the condition to show them in.
        wanted: the true class of each image, by its index.
    """
    places = {index: place for place, index in enumerate(selection.indices)}
    labels = selection.data.labels
    if any(index not in places or labels[index] != label for index, label in wanted.items()):
        raise CovshiftError("the data are not those of the run any more")
    batches = selection.part([places[index] for index in wanted]).make(condition) if wanted else ()
    return {int(index): image for batch in batches for index, image in zip(batch.indices, batch.images, strict=True)}
