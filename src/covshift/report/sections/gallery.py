"""Galleries: images that adaptation repaired, that it broke, and that are still wrong, with the answers to them."""

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from covshift.bench.methods import NONE
from covshift.bench.results.answers import Answers, ImageTable
from covshift.data.condition import CLEAN, Condition
from covshift.data.selection import Selection
from covshift.report.gather import Result
from covshift.report.naming import file_name
from covshift.report.sections.samples import encode, open_selection
from covshift.support.arrays import Array
from covshift.support.errors import CovshiftError

KINDS = ("repaired", "broken", "still wrong")
_MOST = 4  # images of a kind
_IMAGES = 420  # of all galleries of a page
_BUDGET = 4_500_000  # bytes of them; a page should stay below 8 MB


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
    shots: tuple[Shot, ...]


class ConditionGallery(NamedTuple):
    """The images of one condition."""

    anchor: str
    title: str
    groups: tuple[Group, ...]


class Gallery(NamedTuple):
    """The galleries of one result, with the method that it was adapted by."""

    name: str
    method: str
    conditions: tuple[ConditionGallery, ...]

    def first(self) -> list[tuple[str, str, Shot]]:
        """Return one image of each kind, with kind and condition, of the first condition that has all of them."""
        best = max(self.conditions, key=lambda each: sum(bool(group.shots) for group in each.groups), default=None)
        return [(g.kind, best.title, g.shots[0]) for g in best.groups if g.shots] if best else []


class Galleries(NamedTuple):
    """All galleries of a page, and why some results have none."""

    galleries: tuple[Gallery, ...]
    notes: tuple[str, ...] = ()


def anchor_of(result: Result, corruption: str) -> str:
    """Return the anchor of a corruption's gallery."""
    return re.sub(r"[^\w-]", "-", f"gallery-{file_name(result)}-{corruption}")


def shown_conditions(result: Result) -> list[Condition]:
    """Return the conditions that have a gallery: each corruption at its middle severity, and the clean images."""
    if result.adapted is None or result.errors is None:
        return []
    severities = result.run.settings.severities
    middle = severities[len(severities) // 2]
    wanted = [*(Condition(name, middle) for name in result.corruptions.all), CLEAN]
    rows = [result.table.get(method, {}) for method in (NONE, result.adapted)]
    return [c for c in wanted if all(c in each and each[c].answers is not None for each in rows)]


def galleries(results: Sequence[Result]) -> Galleries:
    """Return the galleries of all results that kept their answers, and whose images can be opened."""
    able = [result for result in results if shown_conditions(result)]
    total = sum(len(shown_conditions(result)) for result in able) * len(KINDS)
    each = max(1, min(_MOST, _IMAGES // max(1, total)))
    made: list[Gallery] = []
    notes, room = [], float(_BUDGET)
    for result in able:
        try:
            gallery = _gallery(result, each, room / (len(able) - len(made)))
        except CovshiftError as error:
            notes.append(f"no gallery of {result.name}: {error}")
            continue
        room -= _size(gallery)
        made.append(gallery)
    return Galleries(tuple(made), tuple(notes))


def _size(gallery: Gallery) -> int:
    return sum(len(shot.source) for each in gallery.conditions for group in each.groups for shot in group.shots)


def _gallery(result: Result, each: int, room: float) -> Gallery:
    selection, names = open_selection(result)
    made: list[ConditionGallery] = []
    assert result.adapted is not None
    gallery = Gallery(result.name, result.adapted, ())
    for condition in shown_conditions(result):
        try:
            made.append(_of_condition(result, condition, selection, names, each))
        except CovshiftError:
            if condition == CLEAN:
                raise
            continue  # a user's own corruption, whose code is not here
        if _size(gallery._replace(conditions=tuple(made))) > room:
            made.pop()
            break
    return gallery._replace(conditions=tuple(made))


def _of_condition(
    result: Result, condition: Condition, selection: Selection, names: Sequence[str], each: int
) -> ConditionGallery:
    assert result.book is not None
    rows = [result.table[method][condition] for method in (NONE, result.adapted or NONE)]
    before, after = (result.book.of(row) for row in rows)
    images = result.book.images
    if before is None or after is None or images is None or not np.array_equal(before.indices, after.indices):
        raise CovshiftError(f"the answers in {condition} are not of the same images")
    labels = images.labels[images.places(before.indices)]
    right = before.classes == labels, after.classes == labels
    found = {"repaired": ~right[0] & right[1], "broken": right[0] & ~right[1], "still wrong": ~right[0] & ~right[1]}
    chosen = {kind: np.flatnonzero(mask)[:each] for kind, mask in found.items()}
    wanted = [int(before.indices[place]) for places in chosen.values() for place in places]
    pixels = _pixels(selection, images, condition, wanted)
    title = (
        "clean" if condition == CLEAN else f"{condition.corruption.replace('_', ' ')}, severity {condition.severity}"
    )

    def shot(place: int) -> Shot:
        truth = _name(names, int(labels[place]))
        words = [f"{_name(names, int(a.classes[place]))} ({100 * a.probability[place]:.0f} %)" for a in (before, after)]
        alt = f"{truth} ({title}): answered {words[0]} as the model is, {words[1]} adapted"
        source, small = encode(pixels[int(before.indices[place])])
        return Shot(source, small, truth, words[0], words[1], alt)

    groups = tuple(
        Group(kind, int(mask.sum()), tuple(shot(int(place)) for place in chosen[kind] if _there(before, place, pixels)))
        for kind, mask in found.items()
    )
    return ConditionGallery(anchor_of(result, condition.corruption), title, groups)


def _there(answers: Answers, place: int, pixels: dict[int, Array]) -> bool:
    return int(answers.indices[place]) in pixels


def _pixels(selection: Selection, images: ImageTable, condition: Condition, wanted: list[int]) -> dict[int, Array]:
    """Return images by their index, as the model saw them; those that cannot be read now are left out."""
    if not wanted:
        return {}
    places = {index: place for place, index in enumerate(selection.indices)}
    if any(index not in places for index in wanted) or selection.data.labels[wanted[0]] not in images.labels:
        raise CovshiftError("the data are not those of the run any more")
    some = selection.part([places[index] for index in dict.fromkeys(wanted)])
    return {
        int(i): image for batch in some.make(condition) for i, image in zip(batch.indices, batch.images, strict=True)
    }


def _name(names: Sequence[str], label: int) -> str:
    return names[label] if label < len(names) and names[label] else f"class {label}"
