"""How many images it takes: errors by the size n of a statistical batch and the prior N."""

import re
from collections.abc import Sequence

from covshift.bench.methods import ANCHORED, NONE, stored_method
from covshift.report.criterion import Criterion, unshuffled, with_notes
from covshift.report.figure import (
    UNADAPTED,
    Datum,
    Figure,
    batch_sizes,
    by_prior,
    data,
    figure,
    legend,
    over_batch_sizes,
    palette,
    shapes,
)
from covshift.report.gather import Result
from covshift.report.naming import file_name
from covshift.report.parts import Part, Section, lacking
from covshift.shift.prior import least_error_prior
from covshift.support.tables import Table, TableCell, change_cell, percent_cell

GRID_COMMAND = "covshift bench run --out RUN --extend --grid"
_ZERO = "covshift bench run --out RUN --extend --methods batch:n=1,N=0,batch:n=8,N=0,batch:n=64,N=0,batch:n=512,N=0"
_CHOSEN = "N is the best on the holdout corruptions for each n, where the run has them."


def section(results: Sequence[Result], criterion: Criterion) -> Section:
    """Return tables and curves over n and N."""
    text = (
        "Statistics are taken from n images at a time and mixed with those of the source, which count as N images. "
        "A large N is safe and slow to follow; N = 0 forgets the source."
    )
    parts = [
        *all_methods(results),
        *low_resource(results, criterion),
        *best(results, criterion),
        *curves(results, criterion),
    ]
    parts += [n_by_prior(result, criterion) for result in results if _gridded(result)]
    return Section("batches", "How many images", text, tuple(parts))


def _gridded(result: Result) -> bool:
    """Return whether there is more than one n to draw a line through."""
    return len({n for n, _ in _measured(result)}) > 1


def _measured(result: Result) -> dict[tuple[int, float], str]:
    return {key: name for key, name in sorted(result.batches.items()) if result.mean(name) is not None}


def all_methods(results: Sequence[Result]) -> list[Table]:
    """Return the errors of all methods that adapt: partial, full, and others such as streams or a user's own."""
    lines = [
        (TableCell(result.name), TableCell(name), percent_cell(result.mean(name)), change_cell(result.gain(name)))
        for result in results
        for name in result.run.settings.methods
        if stored_method(name).repairs and result.mean(name) is not None
    ]
    if not lines:
        return []
    kinds = {
        "stream": "statistics follow the images as they come",
        "batch": "statistics of n images at a time",
        ANCHORED: "images are corrected to clean ones that were measured",
    }
    written = {word for line in lines for word in re.findall(r"\w+", line[1].text)}
    note = "; ".join(f"{word}: {what}" for word, what in kinds.items() if word in written)
    notes = (note,) if note else ()
    columns = ("model", "method", "mean error in %", "Δ to none")
    return [Table("methods", "All methods", columns, tuple(lines), notes)]


def chosen(result: Result, criterion: Criterion) -> dict[int, float]:
    """Return the best N for each n: on the holdout corruptions, or by the criterion where no N was run on them."""
    measured, priors = _measured(result), {}
    for size in sorted({n for n, _ in measured}):
        names = {N: name for (n, N), name in measured.items() if n == size}
        held = {N: result.on_holdout(name) for N, name in names.items()}
        scores = (
            held
            if any(score is not None for score in held.values())
            else {N: criterion.of(result, name) for N, name in names.items()}
        )
        known = {N: score for N, score in scores.items() if score is not None}
        if known:
            priors[size] = least_error_prior(known)
    return priors


def low_resource(results: Sequence[Result], criterion: Criterion) -> list[Part]:
    """Draw the criterion against the batch size, without a prior, with the best one, and without adaptation."""
    title = f"{criterion.name.capitalize()} by batch size"
    gridded = [result for result in results if _gridded(result)]
    single = [result for result in results if result.adaptable and result.planned and not _gridded(result)]
    gaps = [lacking(title, "it takes several batch sizes", single, GRID_COMMAND)] if single else []
    if not gridded:
        return [*gaps]
    rows: list[Datum] = []
    sizes = [n for result in gridded for n, _ in result.batches]
    for result in gridded:
        measured, priors = _measured(result), chosen(result, criterion)
        for n, prior in priors.items():
            rows.append(_point(result, "best N", n, prior, criterion.of(result, measured[n, prior])))
        rows += [
            _point(result, "N = 0", n, 0.0, criterion.of(result, name)) for (n, N), name in measured.items() if N == 0
        ]
        if (none := criterion.of(result, NONE)) is not None:
            rows += [_point(result, UNADAPTED, n, None, none) for n in (min(sizes), max(sizes))]
    chart = over_batch_sizes(rows, criterion.axis)
    with_prior = [result for result in gridded if not any(N == 0 for _, N in _measured(result))]
    if with_prior:
        gaps.append(lacking(f"{title}, N = 0", "no batch size was run without a prior", with_prior, _ZERO))
    caption = with_notes(_CHOSEN, unshuffled(gridded))
    return [figure("low-resource", title, caption, chart, rows, wide=True), *gaps]


def _point(result: Result, prior: str, n: int, N: float | None, value: float | None) -> Datum:
    return {"model": result.name, "prior": prior, "n": n, "N": N, "error": value}


def best(results: Sequence[Result], criterion: Criterion) -> list[Figure]:
    """Draw the best N for each n, by model, of runs with several N."""
    import altair as alt

    rows = [
        {"model": result.name, "n": n, "N": prior}
        for result in results
        if _gridded(result) and len({N for _, N in result.batches}) > 1
        for n, prior in chosen(result, criterion).items()
    ]
    if not rows:
        return []
    models = list(dict.fromkeys(str(row["model"]) for row in rows))
    priors = sorted({float(str(row["N"])) for row in rows})
    chart = (
        alt.Chart(data(rows))
        .mark_line(point=alt.OverlayMarkDef(filled=True, size=45))
        .encode(
            x=batch_sizes(),
            # Not a logarithm: N = 0 may be the best.
            y=alt.Y("N:Q", title="best N", scale=alt.Scale(type="symlog"), axis=alt.Axis(values=priors)),
            color=alt.Color("model:N", legend=legend(models), scale=palette(models)),
            shape=alt.Shape("model:N", legend=legend(models), scale=shapes(models)),
            tooltip=["model:N", "n:Q", "N:Q"],
        )
        .properties(width="container", height=260)
    )
    return [figure("best-prior", "The best N for each n", _CHOSEN, chart, rows)]


def curves(results: Sequence[Result], criterion: Criterion) -> list[Figure]:
    """Draw the criterion over n, with a line for each N and a chart for each model."""
    import altair as alt

    figures = []
    for result in results:
        if not _gridded(result):
            continue
        rows = [
            {"n": n, "N": prior, "error": criterion.of(result, name)} for (n, prior), name in _measured(result).items()
        ]
        priors = sorted({float(str(row["N"])) for row in rows})
        chart = (
            alt.Chart(data(rows))
            .mark_line(point=alt.OverlayMarkDef(size=18))
            .encode(
                x=batch_sizes(),
                y=alt.Y("error:Q", title=criterion.axis, scale=alt.Scale(zero=False)),
                color=by_prior(sort=priors),
                tooltip=["n:Q", "N:O", "error:Q"],
            )
            .properties(width="container", height=260)
        )
        title, name = f"{result.name}: {criterion.name} by n and N", f"grid-{file_name(result)}"
        figures.append(figure(name, title, "One line for each prior N.", chart, rows))
    return figures


def n_by_prior(result: Result, criterion: Criterion) -> Table:
    """Return the criterion for each n (lines) and N (columns); the best N of a line is bold."""
    measured = _measured(result)
    priors = sorted({N for _, N in measured})
    lines = []
    for n in sorted({n for n, _ in measured}):
        values = {N: criterion.of(result, measured[n, N]) for N in priors if (n, N) in measured}
        known = [value for value in values.values() if value is not None]
        least = min(known) if len(known) > 1 else None
        cells = [_number(values.get(N), least) for N in priors]
        lines.append((TableCell(f"n = {n}"), *cells))
    columns = ("", *(f"N = {N:g}" for N in priors))
    title = f"{result.name}: {criterion.name} in % by n and N"
    return Table(f"grid-{file_name(result)}", title, columns, tuple(lines), folded=True)


def _number(value: float | None, least: float | None) -> TableCell:
    return TableCell(value, strong=value is not None and value == least)
