"""Galleries: for each corruption, images that adaptation repaired, that it broke, and that are still wrong."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from covshift.data.condition import CLEAN, Condition
from covshift.report.gather import Result
from covshift.report.naming import file_name
from covshift.report.sections.samples import is_small, open_selection
from covshift.report.sections.shots import (
    KINDS,
    ConditionGallery,
    Group,
    Pair,
    Shot,
    answers_before_and_after,
    show,
)
from covshift.support.errors import CovshiftError

_BUDGET = 4_500_000  # bytes of all images; a page should stay below 8 MB
_SMALL_BYTES, _LARGE_BYTES = 4_000, 9_000  # that an image takes, about

_AMOUNTS = ((4, 2), (4, 1), (4, 0), (3, 0), (2, 0), (1, 0))
"""Numbers of images of a kind at the middle severity, and at each other one, from many to few."""


class CorruptionGallery(NamedTuple):
    """The images of one corruption, severity by severity.

    Attributes:
        anchor: the anchor of links.
        corruption: the name of the corruption.
        conditions: one gallery for each severity.
        middle: the one that is shown first.
    """

    anchor: str
    corruption: str
    conditions: tuple[ConditionGallery, ...]
    middle: ConditionGallery

    @property
    def title(self) -> str:
        """The corruption in words, with its severity where there is one only."""
        return self.middle.title if len(self.conditions) == 1 else self.corruption.replace("_", " ")

    @property
    def counts(self) -> list[Group]:
        """The number of answers of each kind, over all severities."""
        images = zip(*([group.images for group in each.groups] for each in self.conditions), strict=True)
        return [Group(kind, sum(column)) for kind, column in zip(KINDS, images, strict=True)]


class Gallery(NamedTuple):
    """The galleries of one result, with the method that it was adapted by."""

    name: str
    method: str
    corruptions: tuple[CorruptionGallery, ...]

    def first(self) -> list[tuple[str, str, Shot]]:
        """Return one image of each kind, with kind and condition, of the first condition that has all of them."""
        middles = [each.middle for each in self.corruptions]
        best = max(middles, key=lambda each: sum(bool(group.shots) for group in each.groups), default=None)
        return [(g.kind, best.title, g.shots[0]) for g in best.groups if g.shots] if best else []


class Galleries(NamedTuple):
    """All galleries of a page, and why some results have none."""

    galleries: tuple[Gallery, ...] = ()
    notes: tuple[str, ...] = ()

    def links(self, result: Result) -> dict[str, str]:
        """Return the anchor of each corruption's gallery."""
        mine = (each for gallery in self.galleries if gallery.name == result.name for each in gallery.corruptions)
        return {each.corruption: each.anchor for each in mine}


NONE_SHOWN = Galleries()


def galleries(results: Sequence[Result]) -> Galleries:
    """Return the galleries of all results that kept their answers, and whose images can be opened.

    Each corruption has some images at its middle severity and, where there is room for them, fewer at the others.
    """
    able = {result.name: pairs for result in results if (pairs := _pairs(result))}
    amounts = _amounts([(result, able[result.name]) for result in results if result.name in able])
    made: list[Gallery] = []
    notes, room, left = [], float(_BUDGET), len(able)
    for result in (result for result in results if result.name in able):
        try:
            gallery, missing = _gallery(result, able[result.name], amounts, room / left)
        except CovshiftError as error:
            notes.append(f"no gallery of {result.name}: {error}")
        else:
            room -= sum(condition.size for each in gallery.corruptions for condition in each.conditions)
            made += [gallery] if gallery.corruptions else []
            notes += [f"no gallery of {result.name} in {', '.join(some)}: {why}" for why, some in missing.items()]
        left -= 1
    return Galleries(tuple(made), tuple(notes))


def _pairs(result: Result) -> dict[str, list[Pair]]:
    """Return the answers before and after by corruption, severity by severity, as far as they were kept."""
    severities = result.run.settings.severities
    wanted = {name: [Condition(name, severity) for severity in severities] for name in result.corruptions.all}
    wanted[CLEAN.corruption] = [CLEAN]
    found = {
        name: [pair for each in conditions if (pair := answers_before_and_after(result, each)) is not None]
        for name, conditions in wanted.items()
    }
    return {name: pairs for name, pairs in found.items() if pairs}


def _amounts(able: Sequence[tuple[Result, dict[str, list[Pair]]]]) -> tuple[int, int]:
    """Return the largest of `_AMOUNTS` that fits the page."""

    def size(middle: int, other: int) -> int:
        total = 0
        for result, found in able:
            images = sum(middle + other * (len(pairs) - 1) for pairs in found.values()) * len(KINDS)
            total += images * (_SMALL_BYTES if is_small(result) else _LARGE_BYTES)
        return total

    return next((amounts for amounts in _AMOUNTS if size(*amounts) <= _BUDGET), _AMOUNTS[-1])


def _gallery(
    result: Result, found: dict[str, list[Pair]], amounts: tuple[int, int], room: float
) -> tuple[Gallery, dict[str, list[str]]]:
    """Return the gallery of a result, and the corruptions without one by what is in the way, such as missing code."""
    selection = open_selection(result)
    middles = {name: pairs[len(pairs) // 2].condition for name, pairs in found.items()}
    shown: dict[Condition, ConditionGallery] = {}
    missing: dict[str, list[str]] = {}
    # The middle severities first: where images are larger than expected, the others go without.
    ordered = sorted((p for pairs in found.values() for p in pairs), key=lambda p: p.condition not in middles.values())
    for pair in ordered:
        name = pair.condition.corruption
        each = amounts[pair.condition != middles[name]] if room > 0 else 0
        try:
            made = show(result, pair, selection, each)
        except CovshiftError as error:
            if pair.condition == CLEAN:
                raise
            missing.setdefault(str(error), []).append(name)
            continue
        room -= made.size
        shown[pair.condition] = made
    corruptions = [
        CorruptionGallery(
            anchor_of(result, name), name, tuple(shown[pair.condition] for pair in pairs), shown[middles[name]]
        )
        for name, pairs in found.items()
        if all(pair.condition in shown for pair in pairs)
    ]
    assert result.adapted is not None
    return Gallery(result.name, result.adapted, tuple(corruptions)), missing


def anchor_of(result: Result, corruption: str) -> str:
    """Return the anchor of a corruption's gallery."""
    return re.sub(r"[^\w-]", "-", f"gallery-{file_name(result)}-{corruption}")
