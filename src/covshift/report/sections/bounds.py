"""Proposition 1 beside what was measured: how the best prior depends on the batch size and on the shift."""

from collections.abc import Mapping, Sequence

import numpy as np

from covshift.bench.measure import Shift
from covshift.bench.methods import GRID_IMAGES, GRID_PRIORS
from covshift.report.criterion import Criterion
from covshift.report.figure import Datum, Figure, batch_sizes, by_prior, data, figure
from covshift.report.gather import Result
from covshift.report.naming import file_name
from covshift.report.parts import Part, Section, lacking
from covshift.report.sections.batches import GRID_COMMAND
from covshift.report.sections.distances import MEASURE
from covshift.shift import bounds

_SHIFTS, _RATIOS = (0.25, 0.5, 1.0), (0.75, 1.0, 1.5)


def section(
    results: Sequence[Result], shifts: Mapping[str, Shift], criterion: Criterion, measuring: str = MEASURE
) -> Section:
    """Return the theory for models that were measured and, beside these, for imagined shifts.

    `measuring` is the command that measures others.
    """
    text = (
        "Normalising by n images and a prior of N is wrong by at least √L on average, a distance. A small batch is "
        "noisy, a large prior is biased towards the source; where the lines cross, the best N changes."
    )
    parts: list[Part] = []
    for result in results:
        if result.name in shifts:
            parts += measured(result, shifts[result.name], criterion)
    if not parts:
        title, reason = "Theory and measurement", "it takes the grid of n and N, and distances that were measured"
        able = [r for r in results if r.adaptable and r.planned and r.run.settings.order == "shuffled"]
        # What else lacks the grid, or the distances, asks for the same: a reader sees each command once.
        without = [result for result in able if not result.run.settings.grid]
        gap = lacking(title, reason, without, GRID_COMMAND) if without else lacking(title, reason, able, then=measuring)
        return Section("theory", "Theory", text, (gap,) if able else ())
    return Section("theory", "Theory", text, (*parts, simulation()))


def measured(result: Result, shift: Shift, criterion: Criterion) -> list[Figure]:
    """Draw √L, scaled to errors by a straight line, and the errors themselves as points.

    The theory holds for images that are drawn at random, and a line takes several n and N.
    """
    import altair as alt

    pairs = [
        (each.n, each.prior, each.lower, error)
        for each in shift.theory
        if (name := result.batches.get((each.n, each.prior))) is not None
        and (error := criterion.of(result, name)) is not None
    ]
    several = all(len({pair[place] for pair in pairs}) > 1 for place in (0, 1))
    if not several or result.run.settings.order != "shuffled":
        return []
    roots, errors = np.array([pair[2] for pair in pairs]), np.array([pair[3] for pair in pairs])
    slope, intercept = np.polyfit(roots, errors, 1)
    rows: list[Datum] = [
        {"n": n, "N": N, "root of L": lower, "theory": round(float(slope * lower + intercept), 3), "error": each}
        for n, N, lower, each in pairs
    ]
    color = by_prior()
    base = alt.Chart(data(rows)).encode(x=batch_sizes(), color=color)
    scale = alt.Scale(zero=False)
    lines = base.mark_line().encode(y=alt.Y("theory:Q", title=criterion.axis, scale=scale))
    points = base.mark_point(filled=True, size=30).encode(
        y=alt.Y("error:Q", title=criterion.axis, scale=scale), tooltip=["n:Q", "N:O", "error:Q", "theory:Q"]
    )
    correlation = f"correlation {np.corrcoef(roots, errors)[0, 1]:.2f}"
    if slope > 0:
        fit = f"Lines: {intercept:.1f} + {slope:.1f}·√L, the straight line that fits best; {correlation}."
    else:
        fit = f"It does not rise with √L ({correlation}), so there are no lines."
    chart = alt.layer(*([lines] if slope > 0 else []), points).properties(width="container", height=280)
    caption = f"Points: {criterion.name}. {fit}"
    return [figure(f"theory-{file_name(result)}", f"{result.name}: theory and measurement", caption, chart, rows)]


def simulation() -> Figure:
    """Draw √L over n, with a line for each N and a panel for each shift."""
    import altair as alt

    rows: list[Datum] = []
    for shift in _SHIFTS:
        for ratio in _RATIOS:
            n, N = np.meshgrid(GRID_IMAGES, GRID_PRIORS, indexing="ij")
            lower = np.sqrt(bounds(n, N, 0, 1, shift, ratio**2).lower)
            rows += [
                {"shift": f"μt - μs = {shift:g} σs", "ratio": f"σt = {ratio:g} σs", "n": int(n[at]), "N": float(N[at])}
                | {"root of L": round(float(lower[at]), 4)}
                for at in np.ndindex(*n.shape)
            ]
    chart = (
        alt.Chart(data(rows))
        .mark_line()
        .encode(
            x=batch_sizes(),
            y=alt.Y("root of L:Q", title="√L in σs"),
            color=by_prior(),
            tooltip=["n:Q", "N:O", "root of L:Q"],
        )
        .properties(width=200, height=130)
        .facet(row=alt.Row("shift:N", title=None), column=alt.Column("ratio:N", title=None))
    )
    caption = "The lower bound of the expected distance, for imagined shifts of mean (rows) and spread (columns)."
    return figure("simulation", "√L for imagined shifts", caption, chart, rows, wide=True)
