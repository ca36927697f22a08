"""Two runs side by side: what one does better than the other, and whether that may be chance."""

from collections.abc import Sequence
from typing import NamedTuple

from covshift.bench.results.changes import Change, change_of, kinds_of_intervals
from covshift.bench.results.paired import evenly
from covshift.bench.results.table import grouped
from covshift.corruptions import names
from covshift.data.condition import CLEAN, MIXED, SEQUENCE, Condition
from covshift.report.figure import RED, Datum, Figure, data, figure
from covshift.report.gather import Result
from covshift.report.parts import Section
from covshift.support.errors import CovshiftError
from covshift.support.tables import Table, TableCell, change_cell, percent_cell


def section(first: Result, second: Result) -> Section:
    """Return a table and a chart for every method that both runs have."""
    methods = [name for name in first.run.settings.methods if name in first.table and name in second.table]
    asked = dict.fromkeys([*first.run.settings.methods, *second.run.settings.methods])
    alone = [name for name in asked if (name in first.table) != (name in second.table)]
    if not methods:
        raise CovshiftError(
            f"expected two runs with a method in common, got {', '.join(first.methods)} and {', '.join(second.methods)}"
        )
    text = (
        f"Differences are {second.name} minus {first.name}, in points, with 95 % intervals; bold ones leave out zero. "
        "Conditions that only one of the runs has are left out"
    )
    text += f", and so are the methods {', '.join(alone)}." if alone else "."
    parts: list[Table | Figure] = []
    for method in methods:
        lines = compare(first, second, method)
        if lines:
            parts += [_chart(first, second, method, lines), _table(first, second, method, lines)]
    if not parts:
        raise CovshiftError(f"{first.name} and {second.name} have no condition in common; run both on the same")
    return Section("compare", f"{first.name} and {second.name}", text, tuple(parts))


class Line(NamedTuple):
    """A line of the comparison: its label, the conditions that it is the mean of, and what changes there."""

    label: str
    conditions: list[Condition]
    change: Change


def compare(first: Result, second: Result, method: str) -> list[Line]:
    """Return the groups that are compared: all test corruptions, controls, each corruption."""
    shared = [c for c in first.table[method] if c in second.table[method]]
    corruptions = grouped([*names("all"), *(c.corruption for c in shared if c not in (CLEAN, MIXED, SEQUENCE))])
    groups = {
        "all test corruptions": [c for c in shared if c.corruption in corruptions.test],
        "clean": [c for c in shared if c == CLEAN],
        "mixed": [c for c in shared if c == MIXED],
        "whole stream": [c for c in shared if c == SEQUENCE],
        **{name.replace("_", " "): [c for c in shared if c.corruption == name] for name in corruptions.all},
    }
    before, after = first.side(method), second.side(method)
    if first.images != second.images:
        before = before._replace(errors=None)
    changes = {label: change_of(before, after, evenly(among)) for label, among in groups.items()}
    return [Line(label, groups[label], each) for label, each in changes.items() if each is not None]


def _table(first: Result, second: Result, method: str, lines: Sequence[Line]) -> Table:
    cells = tuple(
        (
            TableCell(label),
            percent_cell(first.mean(method, among)),
            percent_cell(second.mean(method, among)),
            change_cell(each.difference),
        )
        for label, among, each in lines
    )
    significant = sum(each.change.difference.significant for each in lines)
    notes = [f"{significant} of {len(lines)} differences exceed chance; without a cause, fewer than one in 20 would"]
    if first.images == second.images:
        notes += kinds_of_intervals({each.label: each.change for each in lines}, "differences")
    else:
        notes.append("intervals of differences: 95 %, of independent images, since the runs are on different ones")
    title = f"{method}: error in %"
    return Table(_name(method), title, ("condition", first.name, second.name, "difference"), cells, tuple(notes))


def _chart(first: Result, second: Result, method: str, lines: Sequence[Line]) -> Figure:
    import altair as alt

    rows: list[Datum] = [
        {
            "condition": label,
            **{name: round(100 * value, 3) for name, value in each.difference._asdict().items()},
            "exceeds chance": "yes" if each.difference.significant else "no",
        }
        for label, _, each in lines
    ]
    base = alt.Chart(data(rows)).encode(
        y=alt.Y("condition:N", sort=[label for label, _, _ in lines], title=None),
        color=alt.Color("exceeds chance:N", scale=alt.Scale(domain=["yes", "no"], range=[RED, "#8C8C8C"])),
        tooltip=["condition:N", "value:Q", "low:Q", "high:Q"],
    )
    # No names: on a phone there is no room for long ones.
    spans = base.mark_rule(strokeWidth=2).encode(x=alt.X("low:Q", title="difference in points"), x2="high:Q")
    points = base.mark_point(filled=True, size=60, opacity=1).encode(x="value:Q")
    zero = alt.Chart(data([{"zero": 0}])).mark_rule(opacity=0.6).encode(x="zero:Q")
    chart = (zero + spans + points).properties(width="container", height=18 * len(rows))
    caption = f"Left of zero, {second.name} errs less than {first.name}."
    return figure(_name(method), f"{method}: what differs", caption, chart, rows, wide=True)


def _name(method: str) -> str:
    return f"compare-{method.replace(':', '-').replace(',', '-').replace('=', '')}"
