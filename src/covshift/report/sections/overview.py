"""What each model loses, and what adapting gives back: in words, a table and a chart."""

from collections.abc import Sequence

from covshift.bench.methods import ANCHORED, FULL, NONE, PARTIAL, value_text
from covshift.bench.results.table import why_no_mce
from covshift.report.criterion import uneven, unpaired, unshuffled
from covshift.report.figure import METHOD_COLOURS, Figure, data, figure, in_percent, legend, palette, shapes
from covshift.report.gather import SIDE_BY_SIDE, Result
from covshift.report.naming import WITHOUT, method_words, norm
from covshift.report.parts import Gap, Part, Section, lacking
from covshift.support.tables import (
    EMPTY,
    Table,
    TableCell,
    bound,
    change_cell,
    percent_cell,
    share_cell,
    signed,
)

_LONGEST = 160  # px of a model's name beside the chart

_PARTIAL = "covshift bench run --out RUN --extend --methods partial"
_ANCHORED = "covshift bench run --out RUN --extend --methods full:anchored"

_NORMALISED = {
    PARTIAL: "by every 8 images and a prior of N (partial)",
    FULL: "by all images of a condition (full)",
    f"{PARTIAL}:{ANCHORED}": "to measured clean images, by every 8 images and a prior of N (partial:anchored)",
    f"{FULL}:{ANCHORED}": "to measured clean images, by all images of a condition (full:anchored)",
}


def sentence(result: Result) -> str:
    """Return what a model loses under corruption, or on images as they are, and what adapting gives back.

    For an unfinished run, the sentence has the number of conditions that it is about.
    """
    streamed = bool(result.run.settings.sequence)
    clean, none = result.rate(NONE), result.mean(NONE, result.judged)
    if none is None:
        what = "nothing" if result.natural or streamed else "no corrupted condition"
        then = " yet; the same covshift bench run command resumes the run" if result.left else ""
        return f"{what} was run as the model is (method none){then}."
    images = "images of its stream" if streamed else "images" if result.natural else "corrupted images"
    text = f"errs on {percent_cell(none).text} % of the {images}"
    if clean is not None and not result.natural:
        lost = none.value - clean.value
        text += f" and {percent_cell(clean).text} % of the clean ones: it loses {100 * lost:.1f} points"
    if len(result.shared) < len(result.planned) and not streamed:
        text += f" (in {len(result.shared)} of {len(result.planned)} conditions so far)"
    method = result.adapted
    if method is None or (gain := result.gain(method, result.judged)) is None:
        if result.to_be_adapted:
            return f"{text}. It is not adapted in these conditions yet."
        kind = norm(result)
        why = f": {kind} holds no statistics" if kind in WITHOUT else ""
        return f"{text}. It was not adapted{why}."
    words = method_words(method)
    words = f"{words[0].upper()}{words[1:]}"
    low, high = sorted(abs(value) for value in gain[1:])
    points = " points" if streamed or result.natural else ""  # of others, those that it loses stand before
    if gain.high < 0:
        return f"{text}. {words} gives back {-100 * gain.value:.1f}{points} (95 % interval {_range(low, high)})."
    if gain.low > 0:
        return f"{text}. {words} costs {100 * gain.value:.1f}{points} more (95 % interval {_range(low, high)})."
    return (
        f"{text}. {words} changes that by {signed(gain.value)} points, which may be chance "
        f"(95 % interval {bound(gain.low)} to {bound(gain.high)})."
    )


def _range(low: float, high: float) -> str:
    return f"{bound(low)} to {bound(high)}".replace("+", "")


def section(results: Sequence[Result]) -> Section:
    """Return the table, the chart, and what is missing."""
    if not any(result.planned for result in results):  # images as they are have a section of their own
        return Section("overview", "Overview", "", ())
    methods = _methods(results)
    adapted = [_NORMALISED.get(name, f"by {method_words(name)} ({name})") for name in methods[1:]]
    text = (
        "Top-1 error in per cent, with 95 % intervals: on clean images, and as the mean over the corrupted conditions, "
        "for the model as it is (none)"
    )
    if adapted:
        text += f", normalised {', and '.join([', '.join(adapted[:-1]), adapted[-1]] if adapted[1:] else adapted)}"
        judged = [name for name in methods if any(result.adapted == name for result in results)]
        text += f". Δ is what {', or else '.join(judged)} changes; bold where it exceeds chance"
    text += "."
    parts: list[Part] = [table(results), *(chart(results) if len(results) > 1 else ())]
    fixed = [result for result in results if result.planned and norm(result) in WITHOUT and not result.to_be_adapted]
    reason = "it was not run, and networks without statistics take no other"
    parts += [lacking("Anchored adaptation", reason, fixed, _ANCHORED)] if fixed else []
    able = [result for result in results if result.planned and norm(result) == "BN"]
    without = [result for result in able if PARTIAL not in result.run.settings.methods]
    parts += [lacking("Partial adaptation", "it was not run", without, _PARTIAL)] if without else []
    return Section("overview", "Overview", text, tuple(parts))


def _methods(results: Sequence[Result]) -> list[str]:
    """Return the methods that have a mean: the scenarios, and others that stand for adaptation; always `none`."""
    names = dict.fromkeys([*SIDE_BY_SIDE, *(name for result in results for name in result.scenarios)])
    return [name for name in names if name == NONE or any(result.mean(name) for result in results)]


def table(results: Sequence[Result]) -> Table:
    """Return the errors of none, partial and full, and Δ, by model: the paper's main table."""
    measured = [result for result in results if result.mce(NONE) is not None]
    methods = _methods(results)
    adapted = any(result.adapted and result.gain(result.adapted) for result in results)
    with_prior = any(result.prior is not None for result in results)
    columns = ["model", "clean", *methods, *(["Δ"] if adapted else []), *(["N"] if with_prior else [])]
    columns += [f"mCE {name}" for name in (*methods, *(["Δ"] if adapted else []))] if measured else []
    lines = []
    for result in results:
        method = result.adapted
        line = [TableCell(result.name), percent_cell(result.rate(NONE))]
        line += [percent_cell(result.mean(name)) for name in methods]
        line += [change_cell(result.gain(method) if method else None)] if adapted else []
        line += [EMPTY if result.prior is None else TableCell(value_text(result.prior))] if with_prior else []
        if measured:
            line += [share_cell(result.mce(name)) for name in methods]
            line += [change_cell(result.mce_gain(method) if method else None)] if adapted else []
        lines.append(tuple(line))
    notes = [_unfinished(result) for result in results if len(result.shared) < len(result.planned)]
    given = [r.name for r in results if r.prior is not None and r.run.settings.prior is not None]
    notes += [f"N was given, not searched: {', '.join(given)}"] if given else []
    yardsticks = {result.yardstick.name for result in measured if result.yardstick}
    notes += [f"mCE: {name} = 100" for name in sorted(yardsticks)]
    reasons = dict.fromkeys(why_no_mce(result.run, result.yardstick) for result in results if result.planned)
    notes += [f"no mCE: {reason}" for reason in reasons if reason is not None]
    notes += [*unshuffled(results), *uneven(results), *unpaired(results)]
    return Table("overview", "Error in % without and with adaptation", tuple(columns), tuple(lines), tuple(notes))


def _unfinished(result: Result) -> str:
    done, planned = len(result.shared), len(result.planned)
    resume = "the same covshift bench run command resumes it"
    return f"{result.name} is unfinished: means over {done} of {planned} conditions; {resume}"


def chart(results: Sequence[Result]) -> list[Figure | Gap]:
    """Draw the errors as points, on a line for each model."""
    import altair as alt

    methods = _methods(results)
    rows = [
        {"model": result.name, "method": name, **in_percent(rate)}
        for result in results
        for name in methods
        if (rate := result.mean(name)) is not None
    ]
    if not rows:
        return []
    names = legend(methods, beside=_LONGEST)
    short = alt.Axis(labelLimit=_LONGEST)  # px, so that a phone has room for the chart beside long names
    base = alt.Chart(data(rows)).encode(y=alt.Y("model:N", sort=[r.name for r in results], title=None, axis=short))
    span = base.mark_rule(opacity=0.5).encode(x=alt.X("min(error):Q"), x2=alt.X2("max(error):Q"))
    points = base.mark_point(filled=True, size=110, opacity=1).encode(
        x=alt.X("error:Q", title="mean error in %", scale=alt.Scale(zero=True), axis=alt.Axis(tickCount=10)),
        color=alt.Color("method:N", legend=names, scale=palette(methods, METHOD_COLOURS)),
        shape=alt.Shape("method:N", legend=names, scale=shapes(methods)),
        tooltip=["model:N", "method:N", "error:Q", "low:Q", "high:Q"],
    )
    drawn = (span + points).properties(width="container", height=30 * len({row["model"] for row in rows}))
    caption = "Mean top-1 error over the corrupted conditions, for every model without and with adaptation."
    return [figure("overview", "What adapting gives back", caption, drawn, rows, wide=True)]
