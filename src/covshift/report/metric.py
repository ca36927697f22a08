"""What models are compared by: mCE where all of them have one, else the mean error."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from covshift.report.gather import Result


class Metric(NamedTuple):
    """A number for a result and a method, in per cent.

    Attributes:
        name: "mCE" or "mean error".
        axis: the same with its unit.
        of: gives the number, or None.
    """

    name: str
    axis: str
    of: Callable[[Result, str], float | None]

    def adapted(self, result: Result) -> float | None:
        """The number by the method that stands for adaptation; None where the result has none."""
        return self.of(result, result.adapted) if result.adapted else None


def metric(results: Sequence[Result]) -> Metric:
    """The metric that all of these results have; those without corruptions, which have none, do not count."""
    corrupted = [result for result in results if result.mean("none") is not None]
    if corrupted and all(result.mce("none") is not None for result in corrupted):
        yardsticks = {result.yardstick.name for result in corrupted if result.yardstick}
        return Metric("mCE", f"mCE in % ({', '.join(sorted(yardsticks))} = 100)", _mce)
    return Metric("mean error", "mean error in %", _mean)


def uneven(results: Sequence[Result]) -> tuple[str, ...]:
    """What has to be said where these results are not means over the same images and conditions."""
    corrupted = [result for result in results if result.shared]
    notes = []
    if len({result.images for result in corrupted}) > 1:
        notes.append(f"the models were not all shown the same images: {_grouped(corrupted, _images)}")
    if len({frozenset(result.shared) for result in corrupted}) > 1:
        notes.append(f"means are not over the same conditions: {_grouped(corrupted, _conditions)}")
    return tuple(notes)


def unshuffled(results: Sequence[Result]) -> tuple[str, ...]:
    """What has to be said where images did not come in a random order."""
    sorted_ones = [result for result in results if result.run.settings.order != "shuffled"]
    order = _grouped(sorted_ones, lambda result: f"in the order {result.run.settings.order}")
    return (f"images were not shuffled, {order}",) if sorted_ones else ()


def with_notes(caption: str, notes: Sequence[str]) -> str:
    """A caption, and what else has to be said, as sentences."""
    return " ".join([caption, *(f"{note[0].upper()}{note[1:]}." for note in notes)]).strip()


def _grouped(results: Sequence[Result], tell: Callable[[Result], str]) -> str:
    groups: dict[str, list[str]] = {}
    for result in results:
        groups.setdefault(tell(result), []).append(result.name)
    return "; ".join(f"{what}: {', '.join(named)}" for what, named in groups.items())


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
    found = result.mean(method)
    return None if found is None else round(100 * found.value, 3)
