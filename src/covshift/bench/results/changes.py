"""What a method changes against another one of its run: by paired differences where the answers to the images are kept."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from covshift.bench.results.difference import Difference, difference, mean_difference, weighted_difference
from covshift.bench.results.metrics import Rate
from covshift.bench.results.paired import ImageErrors, Weights, change
from covshift.data.condition import Condition
from covshift.support.tables import CHANGE


class Change(NamedTuple):
    """A difference, and whether its interval is that of answers to the same images, or of independent rates."""

    difference: Difference
    paired: bool


def change_of(
    methods: tuple[str, str],
    weights: Weights,
    rate: Callable[[str, Condition], Rate | None],
    errors: ImageErrors | None = None,
    *,
    top5: bool = False,
) -> Change | None:
    """Return by how much a weighted sum of error rates changes from one method to another one.

    Args:
        methods: both methods, that of before first.
        weights: the conditions, and what each of them counts for.
        rate: a function that returns the error rate of a method in a condition, None where it was not run.
        errors: the errors image by image, as far as they are kept.
        top5: whether `rate` is of top-5 errors.

    Returns:
        The change; None where one of the rates is missing.
    """
    before, after = ([rate(method, condition) for condition in weights] for method in methods)
    sides = [(first, second) for first, second in zip(before, after, strict=True) if first and second]
    if not weights or len(sides) < len(weights):
        return None
    if errors and (paired := change((errors, methods[0]), (errors, methods[1]), weights, top5=top5)) is not None:
        return Change(paired, paired=True)
    differences = [difference(*pair) for pair in sides]
    if set(weights.values()) == {1 / len(weights)}:
        return Change(mean_difference(differences), paired=False)  # rounded once
    return Change(weighted_difference(zip(weights.values(), differences, strict=True)), paired=False)


def kinds_of_intervals(changes: Sequence[Change | None]) -> list[str]:
    """Return a note on what the intervals of changes are; none where nothing changes."""
    paired = {each.paired for each in changes if each is not None}
    same = "paired differences, since both methods answered the same images"
    independent = "independent images (Newcombe's), and too wide"
    if paired == {True, False}:
        return [f"intervals of {CHANGE}: 95 %, of {same}; of {independent}, where the answers to them were not kept"]
    if paired == {False}:
        return [f"intervals of {CHANGE}: 95 %, of {independent}, since the answers to the images were not kept"]
    return [f"intervals of {CHANGE}: 95 %, of {same}"] if paired else []
