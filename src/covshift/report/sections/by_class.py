"""Sections on classes, from the answers to each image: which suffer, what they are taken for, how sure the model is."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from covshift.bench.methods import NONE
from covshift.bench.results.by_class import BINS, Pooled, by_class, calibration_error, confusions, pool, reliability
from covshift.bench.results.metrics import rate
from covshift.bench.results.paired import evenly, pairs
from covshift.data.condition import CLEAN, Condition
from covshift.report.figure import METHOD_COLOURS, Datum, Figure, data, figure, legend, palette
from covshift.report.gather import Result
from covshift.report.naming import class_name, file_name
from covshift.report.parts import Part, Section
from covshift.support.tables import Table, TableCell, change_cell, percent_cell, points_cell, share_cell

_MOST_CLASSES = 20
_MOST_PAIRS = 12


class Compared(NamedTuple):
    """The answers of a result as it is and adapted, over the same corrupted conditions."""

    result: Result
    method: str
    before: Pooled
    after: Pooled


def section(results: Sequence[Result]) -> Section:
    """Return tables and reliability diagrams of the results that kept their answers."""
    where = "" if all(result.natural for result in results) else ", over the corrupted conditions"
    text = (
        f"From the answers to every image{where}: the error of each class, the classes that are taken for each other, "
        "and calibration: how far the model's confidence is from the share of answers that are right (expected "
        f"calibration error, {BINS} bins)."
    )
    compared = [each for result in results if (each := _compared(result)) is not None]
    parts: list[Part] = []
    if compared:
        parts += [_calibration(compared), *(_diagram(each) for each in compared)]
    for each in compared:
        parts += [_classes(each), _confusions(each)]
    return Section("classes", "Classes and confidence", text, tuple(parts))


def _compared(result: Result) -> Compared | None:
    method, conditions = (result.adapted, result.judged) if result.judged else (result.adapted_in([CLEAN]), (CLEAN,))
    if method is None or result.errors is None:
        return None
    before, after = (_pooled(result, name, conditions) for name in (NONE, method))
    return Compared(result, method, before, after) if before and after else None


def _pooled(result: Result, method: str, conditions: Sequence[Condition]) -> Pooled | None:
    rows = [result.table.get(method, {}).get(condition) for condition in conditions]
    known = [row for row in rows if row is not None]
    return pool(result.book, known) if result.book and known and len(known) == len(rows) else None


def _calibration(compared: Sequence[Compared]) -> Table:
    lines = []
    for each in compared:
        result = each.result
        clean = [_pooled(result, method, [CLEAN]) for method in (NONE, each.method)]
        pairs = {"corrupted": (each.before, each.after)} if result.shared else {}
        pairs |= {"as they are" if result.natural else "clean": tuple(clean)} if all(clean) else {}  # type: ignore[dict-item]
        for label, (before, after) in pairs.items():
            errors = [calibration_error(reliability(pooled)) for pooled in (before, after)]
            sure = [float(pooled.confidence.mean()) for pooled in (before, after)]
            right = [float(pooled.right.mean()) for pooled in (before, after)]
            line = (*map(share_cell, errors), points_cell(errors[1] - errors[0]), *map(share_cell, (*sure, *right)))
            lines.append((TableCell(result.name), TableCell(label), *line))
    columns = ("model", "images", "ECE", "adapted", "Δ", "confidence", "confidence adapted", "right", "right adapted")
    notes = ("ECE: expected calibration error; a model that is more confident than right does not know its errors",)
    return Table("calibration", "Does the model know its errors? In %", columns, tuple(lines), notes)


def _diagram(each: Compared) -> Figure:
    """Draw the share of right answers against confidence, before and after."""
    import altair as alt

    sides = {NONE: each.before, each.method: each.after}
    rows: list[Datum] = [
        {"method": name, "confidence": _percent(b.confidence), "right": _percent(b.right), "answers": b.answers}
        for name, pooled in sides.items()
        for b in reliability(pooled)
    ]
    scale, axis = alt.Scale(domain=[0, 100]), alt.Axis(tickCount=5)
    ideal = alt.Chart(data([{"x": 0, "y": 0}, {"x": 100, "y": 100}])).mark_line(strokeDash=[4, 4], opacity=0.5)
    ideal = ideal.encode(x=alt.X("x:Q", scale=scale), y=alt.Y("y:Q", scale=scale))
    lines = alt.Chart(data(rows)).mark_line(point=alt.OverlayMarkDef(filled=True, size=40))
    lines = lines.encode(
        x=alt.X("confidence:Q", title="confidence in %", scale=scale, axis=axis),
        y=alt.Y("right:Q", title="right in %", scale=scale, axis=axis),
        color=alt.Color("method:N", legend=legend(list(sides)), scale=palette(list(sides), METHOD_COLOURS)),
        tooltip=["method:N", "confidence:Q", "right:Q", "answers:Q"],
    )
    drawn = (ideal + lines).properties(width="container", height=260)
    caption = "Answers of about the same confidence, and how many of them are right; below the diagonal it is too sure."
    name = f"reliability-{file_name(each.result)}"
    return figure(name, f"{each.result.name}: confidence and right answers", caption, drawn, rows)


def _percent(share: float) -> float:
    return round(100 * share, 2)


def _classes(each: Compared) -> Table:
    """Return the errors of classes before and after; of many classes, those that change most."""
    result, errors = each.result, each.result.errors
    images = result.book.images if result.book else None
    assert errors is not None
    assert images is not None
    weights = evenly(result.judged or (CLEAN,))
    paired = pairs((errors, NONE), (errors, each.method), weights)
    labels = images.labels[np.argsort(images.indices)]
    after = {share.label: share for share in by_class(each.after)}
    lines = []
    for share in by_class(each.before):
        mine = labels == share.label
        other = after[share.label]
        value = other.wrong / other.answers - share.wrong / share.answers
        rates = [rate(round(x.wrong / x.answers * mine.sum()), int(mine.sum())) for x in (share, other)]
        exact = [r._replace(value=x.wrong / x.answers) for r, x in zip(rates, (share, other), strict=True)]
        cells = (*map(percent_cell, exact), change_cell(paired.among(mine).change()) if paired else points_cell(value))
        lines.append((value, (TableCell(class_name(result, share.label)), TableCell(str(int(mine.sum()))), *cells)))
    lines.sort(key=lambda line: line[0])
    shown = lines if len(lines) <= _MOST_CLASSES else [*lines[: _MOST_CLASSES // 2], *lines[-_MOST_CLASSES // 2 :]]
    notes = () if len(shown) == len(lines) else (f"the {len(shown)} of {len(lines)} classes that change most",)
    columns = ("class", "images", NONE, each.method, "Δ")
    title = f"{result.name}: error in % by class"
    found = tuple(line for _, line in shown)
    return Table(f"classes-{file_name(result)}", title, columns, found, notes, folded=True)


def _confusions(each: Compared) -> Table:
    """Return the pairs of classes whose confusion changes most."""
    lines = []
    for pair in confusions(each.before, each.after)[:_MOST_PAIRS]:
        cells = (share_cell(pair.before), share_cell(pair.after), points_cell(pair.change))
        lines.append((*(TableCell(class_name(each.result, label)) for label in (pair.label, pair.answer)), *cells))
    title = f"{each.result.name}: confusions that adaptation removes or adds, in %"
    columns = ("class", "taken for", NONE, each.method, "Δ")
    notes = ("share of the answers to images of the class; the largest changes",)
    return Table(f"confusions-{file_name(each.result)}", title, columns, tuple(lines), notes, folded=True)
