"""What to do with a model, from what was measured: whether to adapt, how, and from how many images on."""

from collections.abc import Sequence
from typing import NamedTuple

from covshift.bench.methods import FULL, NONE, BatchMethod, FollowingMethod, RivalMethod, stored_method, value_text
from covshift.bench.results.difference import Difference
from covshift.data.condition import CLEAN
from covshift.report.gather import Result
from covshift.report.naming import method_words
from covshift.support.tables import bound, signed


class Candidate(NamedTuple):
    """A method that adapts: the number of images it waits for, and by how much it changes the error."""

    method: str
    images: int
    gain: Difference


def recommendation(result: Result) -> str | None:
    """Return what to do, with its evidence; None where the run does not show it.

    It speaks of the method that the verdict is about, or says that another one is better. Rules of others can be
    compared with, but not be set up; where one is better still, that is said, too.
    """
    tried = [each for name in result.methods if (each := _candidate(result, name)) is not None]
    rivals = [each for each in tried if isinstance(stored_method(each.method), RivalMethod)]
    candidates = [each for each in tried if each not in rivals]
    usual = next((each for each in candidates if each.method == result.adapted), None)
    if usual is None:
        return None
    helpful = [each for each in candidates if each.gain.high < 0]
    if not helpful:
        worse = all(each.gain.low > 0 for each in candidates)
        what = "makes the error larger" if worse else "lowers the error by more than chance"
        who = "all that was tried" if worse else "nothing that was tried"
        text = f"Leave the model as it is: {who} {what}; {_words(result, usual)}: {_change(usual.gain)}."
        return f"{text}{_rival(result, NONE, rivals)}"
    best = min(helpful, key=lambda each: each.gain.value)
    lead = result.gain(best.method, result.judged, against=usual.method) if best is not usual else None
    better = usual not in helpful or (lead is not None and lead.high < 0)
    chosen = best if better else usual
    text = f"Adapt the model with {_words(result, chosen)}: {_change(chosen.gain)}."
    if lead is not None and better:
        text += f" Against {method_words(usual.method)}, that is {_change(lead)}."
    early = [each for each in helpful if each.images < chosen.images]
    if early:
        first = min(early, key=lambda each: (each.images, each.gain.value))
        text += f" With fewer images, from {first.images} on, use {_words(result, first)}: {_change(first.gain)}."
    return f"{text}{_on_clean(result, chosen.method)}{_rival(result, chosen.method, rivals)}"


def _rival(result: Result, chosen: str, rivals: Sequence[Candidate]) -> str:
    """Return which rule of others is better than the method that was chosen, by more than chance; "" where none is."""
    best = min(rivals, key=lambda each: each.gain.value, default=None)
    lead = result.gain(best.method, result.judged, against=chosen) if best else None
    if best is None or lead is None or lead.high >= 0:
        return ""
    return f" Of the rivals, {best.method} errs less than that: {_change(lead)}."


def _candidate(result: Result, name: str) -> Candidate | None:
    gain = result.gain(name, result.judged) if stored_method(name).repairs else None
    row = next(iter(result.table[name].values()))
    return Candidate(name, row.n or row.images, gain) if gain else None


def _words(result: Result, candidate: Candidate) -> str:
    """Return a method as a reader would set it up."""
    words, method = method_words(candidate.method), stored_method(candidate.method)
    if method.word == FULL:
        extent = "the whole stream" if result.run.settings.sequence else "a condition"
        return f"{words}, by the statistics of all images of {extent} (here {candidate.images})"
    if isinstance(method, FollowingMethod):
        return f"{words}, which follows the images {_at_a_time(candidate.images)}"
    if isinstance(method, BatchMethod):
        prior = result.prior_of(candidate.method)
        return f"{words}, by the statistics of every {candidate.images} images with a prior of N = {value_text(prior)}"
    return words


def _at_a_time(images: int) -> str:
    return "one by one" if images == 1 else f"{images} at a time"


def _change(gain: Difference) -> str:
    return f"{signed(gain.value)} points (95 % interval {bound(gain.low)} to {bound(gain.high)})"


def _on_clean(result: Result, method: str) -> str:
    """Return what adapting costs where there is no shift."""
    gain = result.gain(method, (CLEAN,)) if result.judged != (CLEAN,) and NONE in result.table else None
    if gain is None:
        return ""
    words = method_words(method)
    if gain.low > 0:
        return f" On clean images {words} costs {_change(gain)}: adapt only where there is a shift."
    return f" On clean images {words} changes the error by {_change(gain)}."
