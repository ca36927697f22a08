"""What models are compared by: mCE where all of them have one, else the mean error."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from covshift.report.results import Result


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


def metric(results: Sequence[Result]) -> Metric:
    """The metric that all of these results have; those without corruptions, which have none, do not count."""
    corrupted = [result for result in results if result.mean("none") is not None]
    if corrupted and all(result.mce("none") is not None for result in corrupted):
        yardsticks = {result.yardstick.name for result in corrupted if result.yardstick}
        return Metric("mCE", f"mCE in % ({', '.join(sorted(yardsticks))} = 100)", _mce)
    return Metric("mean error", "mean error in %", _mean)


def _mce(result: Result, method: str) -> float | None:
    value = result.mce(method)
    return None if value is None else round(100 * value, 3)


def _mean(result: Result, method: str) -> float | None:
    found = result.mean(method)
    return None if found is None else round(100 * found.value, 3)
