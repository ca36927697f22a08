"""`Criterion`: the number that models are compared by, mCE where all of them have one, else the mean error."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from covshift.bench.methods import NONE
from covshift.report.gather import Result


class Criterion(NamedTuple):
    """A number for each result and method, in per cent.

    Attributes:
        name: "mCE" or "mean error".
        axis: the name with its unit.
        of: a function that returns the number of a result and a method, or None.
    """

    name: str
    axis: str
    of: Callable[[Result, str], float | None]

    def adapted(self, result: Result) -> float | None:
        """Return the number of the method that stands for adaptation; None where the result has no such method."""
        return self.of(result, result.adapted) if result.adapted else None


def criterion(results: Sequence[Result]) -> Criterion:
    """Return what all of these results can be compared by; those without corruptions do not count."""
    corrupted = [result for result in results if result.mean(NONE) is not None]
    if corrupted and all(result.mce(NONE) is not None for result in corrupted):
        yardsticks = {result.yardstick.name for result in corrupted if result.yardstick}
        return Criterion("mCE", f"mCE in % ({', '.join(sorted(yardsticks))} = 100)", _mce)
    return Criterion("mean error", "mean error in %", _mean)


def uneven(results: Sequence[Result]) -> tuple[str, ...]:
    """Return notes where these results are not means over the same images and conditions."""
    corrupted = [result for result in results if result.shared]
    notes = []
    if len({result.images for result in corrupted}) > 1:
        notes.append(f"the models were not all shown the same images: {_grouped(corrupted, _images)}")
    if len({frozenset(result.shared) for result in corrupted}) > 1:
        notes.append(f"means are not over the same conditions: {_grouped(corrupted, _conditions)}")
    return tuple(notes)


def unshuffled(results: Sequence[Result]) -> tuple[str, ...]:
    """Return a note where images were not shown in a random order."""
    sorted_ones = [result for result in results if result.run.settings.order != "shuffled"]
    order = _grouped(sorted_ones, lambda result: f"in the order {result.run.settings.order}")
    return (f"images were not shuffled, {order}",) if sorted_ones else ()


def unpaired(results: Sequence[Result]) -> tuple[str, ...]:
    """Return a note where intervals of differences are wider than need be, as answers were not kept."""
    known = [r for r in results if not r.run.shows_images_again]  # for others, the table of the sequence has a note
    without = [r.name for r in known if r.adapted and not r.paired and r.gain(r.adapted, r.judged)]
    if not without:
        return ()
    whose = f"answers were not kept: {', '.join(without)}"
    return (f"intervals of differences are those of independent images, and too wide, where {whose}",)


def with_notes(caption: str, notes: Sequence[str]) -> str:
    """Return a caption followed by notes, as sentences."""
    return " ".join([caption, *(f"{note[0].upper()}{note[1:]}." for note in notes)]).strip()


def _grouped(results: Sequence[Result], describe: Callable[[Result], str]) -> str:
    groups: dict[str, list[str]] = {}
    for result in results:
        groups.setdefault(describe(result), []).append(result.name)
    return "; ".join(f"{shared}: {', '.join(named)}" for shared, named in groups.items())


def _images(result: Result) -> str:
    seed = f" (seed {result.subset_seed})" if result.subset_seed else ""
    return f"{result.image_count:,} of {result.run.settings.data}{seed}"


def _conditions(result: Result) -> str:
    corruptions, severities = ({c[place] for c in result.shared} for place in (0, 1))
    if len(result.shared) < len(corruptions) * len(severities):
        return f"{len(result.shared)} conditions"
    return f"{len(corruptions)} × severity {', '.join(map(str, sorted(severities)))}"


def _mce(result: Result, method: str) -> float | None:
    value = result.mce(method)
    return None if value is None else round(100 * value, 3)


def _mean(result: Result, method: str) -> float | None:
    rate = result.mean(method)
    return None if rate is None else round(100 * rate.value, 3)
