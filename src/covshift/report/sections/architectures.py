"""Models side by side: by family and size, by how they are normalised, and by what they were trained on."""

import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from covshift.bench.measure import Shift
from covshift.bench.methods import NONE
from covshift.report.criterion import Criterion, uneven, with_notes
from covshift.report.figure import Datum, Figure, data, figure, legend, palette, shapes
from covshift.report.gather import Result
from covshift.report.naming import WITHOUT, family, norm, pretraining, without_norm
from covshift.report.parts import Gap, Part, Section
from covshift.report.sections.distances import MEASURE
from covshift.support.errors import plural
from covshift.support.tables import EMPTY, Table, TableCell, percent_cell, points_cell

if TYPE_CHECKING:
    import altair

_OTHER = "covshift bench run --model MODEL --data {data} --out runs/NAME"


def section(results: Sequence[Result], shifts: Mapping[str, Shift], criterion: Criterion) -> Section:
    """Return scatter plots and the paper's smaller tables."""
    shuffled = [result for result in results if result.run.settings.order == "shuffled"]
    wanted: dict[str, Sequence[Part]] = {
        f"clean error and size against {criterion.name}": scatter(shuffled, criterion),
        "batch norm, GroupNorm and Fixup": norms(shuffled, criterion),
        "large-scale pre-training": _before_after(shuffled, criterion, "large-scale"),
        "SimCLR": _before_after(shuffled, criterion, "simclr"),
    }
    parts: list[Part] = [part for some in wanted.values() for part in some]
    drawn = any(isinstance(part, Figure) for part in parts)
    text = "Hollow marks are models as they are, filled ones the same models adapted." if drawn else ""
    if len(results) > 1 or shifts:  # of one model, the settings have the number already
        parts.append(parameters(results, shifts))
    if missing := [name for name, some in wanted.items() if not some]:
        command = _OTHER.format(data=shlex.quote(results[0].run.settings.data))
        parts.append(Gap(f"Models side by side: {', '.join(missing)}", "it takes runs of such models", command))
    return Section("architectures", "Architectures", text, tuple(parts))


def scatter(results: Sequence[Result], criterion: Criterion) -> list[Figure]:
    """Draw the criterion of several models against clean error, and against the number of parameters."""
    rows: list[Datum] = []
    drawn: list[Result] = []
    for result in results:
        clean, before = result.rate(NONE), criterion.of(result, NONE)
        if clean is None or before is None:
            continue
        drawn.append(result)
        after = criterion.adapted(result)
        row = {
            "model": result.name,
            "family": family(result),
            "clean": round(100 * clean.value, 3),
            "parameters": result.run.model_params,
        }
        rows.append({**row, "adapted": "before", "error": before})
        if after is not None:
            rows.append({**row, "adapted": "after", "error": after})
    title = f"Clean error and {criterion.name}"
    if len(drawn) < 2:
        return []
    by_size = f"Parameters and {criterion.name}"
    caption = with_notes(_caption(drawn, criterion), uneven(drawn))
    return [
        figure("clean-error", title, caption, _pairs(rows, "clean", "clean error in %", criterion), rows),
        figure("parameters", by_size, caption, _pairs(rows, "parameters", "parameters", criterion), rows),
    ]


def _caption(results: Sequence[Result], criterion: Criterion) -> str:
    """Return the number of models that are better in all of their runs that were adapted."""
    better: dict[str, bool] = {}
    for result in results:
        before, after = criterion.of(result, NONE), criterion.adapted(result)
        if before is not None and after is not None:
            digest = result.run.model_digest
            better[digest] = better.get(digest, True) and after < before
    if not better:
        return ""
    improved = f"Adapting improves {sum(better.values())} of {plural(len(better), 'model')}."
    return f"{improved} Lines join the same model before and after."


def _pairs(rows: Sequence[Datum], field: str, title: str, criterion: Criterion) -> "altair.TopLevelMixin":
    import altair as alt

    # Colours for families where there are several, else for the models.
    by = "family" if len({row["family"] for row in rows}) > 1 else "model"
    groups = list(dict.fromkeys(str(row[by]) for row in rows))
    if field == "parameters":
        scale = alt.Scale(type="log", nice=False, padding=14)
    else:
        scale = alt.Scale(zero=False, nice=False, padding=14)
    base = alt.Chart(data(rows)).encode(
        x=alt.X(f"{field}:Q", title=title, scale=scale, axis=alt.Axis(format="~s", tickCount=5, grid=False)),
        y=alt.Y("error:Q", title=criterion.axis, scale=alt.Scale(zero=False, padding=10)),
    )
    lines = base.mark_line(opacity=0.4, color="#8C8C8C").encode(detail="model:N")
    marks = base.encode(
        color=alt.Color(f"{by}:N", legend=legend(groups), scale=palette(groups)),
        shape=alt.Shape(f"{by}:N", legend=legend(groups), scale=shapes(groups)),
        tooltip=["model:N", "family:N", "adapted:N", f"{field}:Q", "error:Q"],
    )
    hollow = marks.mark_point(size=75, opacity=1).transform_filter("datum.adapted == 'before'")
    solid = marks.mark_point(size=75, opacity=1, filled=True).transform_filter("datum.adapted == 'after'")
    return alt.layer(lines, hollow, solid).properties(width="container", height=280)


def norms(results: Sequence[Result], criterion: Criterion) -> list[Table]:
    """Return Fixup, GroupNorm, batch norm and adapted batch norm of the same architectures, of several models.

    Networks that hold no statistics have a column, and a line, of their own where they were adapted by a source.
    """
    title = f"{criterion.name.capitalize()} in % by normalisation"
    named: dict[str, list[Result]] = {}
    for result in results:
        named.setdefault(without_norm(result), []).append(result)
    groups = {name: _by_norm(group) for name, group in named.items()}
    lines = []
    anchored = {
        kind for group in groups.values() for kind in group if kind in WITHOUT and criterion.adapted(group[kind])
    }
    compared = {name: group for name, group in groups.items() if len(group) > 1 or anchored & group.keys()}
    there = {kind for group in compared.values() for kind in group if kind != "LN" or kind in anchored}
    kinds = [kind for kind in ("Fixup", "GN", "LN", "BN") if kind in there]
    for name, group in compared.items():
        values = [criterion.of(group[kind], NONE) if kind in group else None for kind in kinds]
        adapted = [kind for kind in kinds if kind == "BN" or kind in anchored]
        values += [criterion.adapted(group[kind]) if kind in group else None for kind in adapted]
        least = min((value for value in values if value is not None), default=None)
        cells = [TableCell(value, strong=value is not None and value == least) for value in values]
        lines.append((TableCell(name), *cells))
    if not lines or len(results) < 2:
        return []
    notes = tuple(note for group in compared.values() for note in uneven(list(group.values())))
    columns = ("model", *kinds, *(f"{kind}, adapted" for kind in kinds if kind == "BN" or kind in anchored))
    return [Table("norms", title, columns, tuple(lines), notes)]


def _by_norm(results: Sequence[Result]) -> dict[str, Result]:
    """Return a result for each way to normalise, of the same images and conditions as those of others, if possible."""

    def alike(result: Result) -> int:
        shown = (result.images, result.planned)
        return len({norm(other) for other in results if (other.images, other.planned) == shown})

    chosen: dict[str, Result] = {}
    for result in sorted(results, key=alike, reverse=True):
        chosen.setdefault(norm(result), result)
    return chosen


_PRETRAINED = {"large-scale": ("pretraining", "Large-scale pre-training"), "simclr": ("simclr", "SimCLR")}
"""Names and titles of the tables of models that were pre-trained in some way."""


def _before_after(results: Sequence[Result], criterion: Criterion, wanted: str) -> list[Table]:
    """Return the models that were pre-trained in this way, as they are and adapted, where there are some."""
    lines, with_both = [], []
    for result in (result for result in results if pretraining(result) == wanted):
        before, after = criterion.of(result, NONE), criterion.adapted(result)
        if before is None or after is None:
            continue
        with_both.append(result)
        delta = points_cell((after - before) / 100)
        lines.append(
            (TableCell(result.name), percent_cell(result.rate(NONE)), TableCell(before), TableCell(after), delta)
        )
    if not lines:
        return []
    columns = ("model", "clean", "as it is", "adapted", "Δ")
    name, title = _PRETRAINED[wanted]
    return [Table(name, f"{title}: {criterion.name} in %", columns, tuple(lines), uneven(with_both))]


def parameters(results: Sequence[Result], shifts: Mapping[str, Shift]) -> Table:
    """Return the numbers of parameters; those in normalisation layers are known for models that were measured."""
    lines = []
    for result in results:
        shift = shifts.get(result.name)
        affine = TableCell(f"{2 * sum(shift.channels):,}") if shift else EMPTY
        words = (result.name, result.run.settings.model, family(result), norm(result), f"{result.run.model_params:,}")
        lines.append((*map(TableCell, words), affine))
    columns = ("run", "model", "family", "normalisation", "parameters", "of normalisation")
    notes = (f"of normalisation: known where distances were measured, {MEASURE}",) if len(shifts) < len(lines) else ()
    return Table("parameters", "Parameters", columns, tuple(lines), notes, folded=True)
