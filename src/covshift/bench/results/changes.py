"""What changes from one method, or one run, to another: by paired differences where answers to the images are kept."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from covshift.bench.results.difference import Difference, difference, mean_difference, weighted_difference
from covshift.bench.results.metrics import Rate
from covshift.bench.results.paired import ImageErrors, Weights, change
from covshift.data.condition import Condition


class Side(NamedTuple):
    """One side of a comparison.

    Attributes:
        method: a method of a run.
        rate: a function that returns the error rate of a method in a condition, None where it was not run.
        errors: the errors of the run image by image, as far as they are kept.
    """

    method: str
    rate: Callable[[str, Condition], Rate | None]
    errors: ImageErrors | None


class Change(NamedTuple):
    """A difference, and whether its interval is that of answers to the same images, or of independent rates."""

    difference: Difference
    paired: bool


def change_of(before: Side, after: Side, weights: Weights, *, top5: bool = False) -> Change | None:
    """Return by how much a weighted sum of error rates changes from one side to the other.

    Args:
        before: a method of a run.
        after: another method of the run, or a method of another run.
        weights: the conditions, and what each of them counts for.
        top5: whether the rates are of top-5 errors.

    Returns:
        The change; None where one of the rates is missing.
    """
    rates = [[side.rate(side.method, condition) for condition in weights] for side in (before, after)]
    sides = [(first, second) for first, second in zip(*rates, strict=True) if first and second]
    if not weights or len(sides) < len(weights):
        return None
    if before.errors is not None and after.errors is not None:
        paired = change((before.errors, before.method), (after.errors, after.method), weights, top5=top5)
        if paired is not None:
            return Change(paired, paired=True)
    differences = [difference(*pair) for pair in sides]
    if set(weights.values()) == {1 / len(weights)}:
        return Change(mean_difference(differences), paired=False)  # rounded once
    return Change(weighted_difference(zip(weights.values(), differences, strict=True)), paired=False)


_NAMED = 4  # lines that a note names, at most


def kinds_of_intervals(changes: Mapping[str, Change | None], of: str) -> list[str]:
    """Return a note on what the intervals of changes are; none where nothing changes.

    Args:
        changes: the changes by the names of their lines.
        of: what the intervals are of, as the table calls it.
    """
    known = {name: each.paired for name, each in changes.items() if each is not None}
    without = [name for name, paired in known.items() if not paired]
    same = "paired differences, since both sides answered the same images"
    independent = "independent images (Newcombe's), and too wide"
    if not known:
        return []
    if not without:
        return [f"intervals of {of}: 95 %, of {same}"]
    if len(without) == len(known):
        return [f"intervals of {of}: 95 %, of {independent}, since the answers to the images were not kept"]
    lines = ", ".join(without[:_NAMED]) + (f" and {len(without) - _NAMED} more" if len(without) > _NAMED else "")
    return [f"intervals of {of}: 95 %, of {same}; but of {independent}, where answers were not kept: {lines}"]
