"""What to do with a model, from what was measured: whether to adapt, how, and from how many images on."""

from collections.abc import Sequence
from typing import NamedTuple

from covshift.bench.methods import FULL, NONE, PARTIAL, stored_method, value_text
from covshift.bench.results.difference import Difference
from covshift.data.condition import CLEAN, Condition
from covshift.report.gather import Result
from covshift.support.tables import bound, signed


class Candidate(NamedTuple):
    """A method that adapts: the number of images it waits for, and by how much it changes the error."""

    method: str
    images: int
    gain: Difference


def recommendation(result: Result) -> str | None:
    """Return what to do, with its evidence; None where the run does not show it."""
    conditions = (CLEAN,) if result.natural else result.shared
    candidates = [each for name in result.methods if (each := _candidate(result, name, conditions)) is not None]
    if not candidates:
        return None
    best = min(candidates, key=lambda each: each.gain.value)
    if not best.gain.high < 0:
        how = "changes the error by no more than chance" if best.gain.low <= 0 else "makes it worse"
        return (
            f"Leave the model as it is: {_words(result, best)} does best of what was tried, and {how} {_range(best)}."
        )
    text = f"Adapt the model by {_words(result, best)}: {_points(best)}"
    early = [each for each in candidates if each.gain.high < 0 and each.images < best.images]
    if early:
        first = min(early, key=lambda each: (each.images, each.gain.value))
        text += f"; from {first.images} images on, by {_words(result, first)}: {_points(first)}"
    return f"{text}.{_on_clean(result, best.method)}"


def _candidate(result: Result, name: str, conditions: Sequence[Condition]) -> Candidate | None:
    method = stored_method(name)
    gain = result.gain(name, conditions) if method.repairs else None
    row = next(iter(result.table[name].values()))
    return Candidate(name, row.n or row.images, gain) if gain else None


def _words(result: Result, candidate: Candidate) -> str:
    """Return a method as a reader would set it up."""
    if candidate.method == FULL:
        return f"the statistics of all images of a condition (full, here {candidate.images} images)"
    if candidate.method == PARTIAL and result.prior is not None:
        return f"those of every {candidate.images} images with N = {value_text(result.prior)} (partial)"
    return f"the method {candidate.method}"


def _points(candidate: Candidate) -> str:
    return f"{signed(candidate.gain.value)} points {_range(candidate)}"


def _range(candidate: Candidate) -> str:
    return f"(95 % interval {bound(candidate.gain.low)} to {bound(candidate.gain.high)})"


def _on_clean(result: Result, method: str) -> str:
    """Return what adapting costs where there is no shift."""
    if result.natural or NONE not in result.table:
        return ""
    gain = result.gain(method, (CLEAN,))
    if gain is None:
        return ""
    if gain.low > 0:
        return f" On clean images it costs {signed(gain.value)} points: adapt only where there is a shift."
    return f" On clean images it changes the error by {signed(gain.value)} points."
