"""Two runs side by side: what one does better than the other, and whether that may be chance."""

from collections.abc import Sequence

from covshift.bench.results.difference import Difference, difference, mean_difference
from covshift.bench.results.paired import change, evenly
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
        f"Differences are {second.name} minus {first.name}, in points, with 95 % intervals {_kind(first, second)}; "
        "bold ones leave out zero. Conditions that only one of the runs has are left out"
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


def _kind(first: Result, second: Result) -> str:
    """Return what intervals are of."""
    if first.images != second.images:
        return "for independent runs, since their images are not the same"
    if first.errors is None or second.errors is None:
        return "for independent runs, too wide for runs on the same images, since not both kept their answers"
    return "of paired differences, since both answered the same images"


def compare(first: Result, second: Result, method: str) -> list[tuple[str, list[Condition], Difference]]:
    """Return the groups that are compared, with their conditions: all test corruptions, controls, each corruption."""
    shared = [c for c in first.table[method] if c in second.table[method]]
    corruptions = grouped([*names("all"), *(c.corruption for c in shared if c not in (CLEAN, MIXED, SEQUENCE))])
    groups = {
        "all test corruptions": [c for c in shared if c.corruption in corruptions.test],
        "clean": [c for c in shared if c == CLEAN],
        "mixed": [c for c in shared if c == MIXED],
        "whole stream": [c for c in shared if c == SEQUENCE],
        **{name.replace("_", " "): [c for c in shared if c.corruption == name] for name in corruptions.all},
    }
    return [(label, among, _difference(first, second, method, among)) for label, among in groups.items() if among]


def _difference(first: Result, second: Result, method: str, conditions: Sequence[Condition]) -> Difference:
    if first.images == second.images and first.errors and second.errors:
        paired = change((first.errors, method), (second.errors, method), evenly(conditions))
        if paired is not None:
            return paired
    pairs = [(first.rate(method, condition), second.rate(method, condition)) for condition in conditions]
    return mean_difference(difference(before, after) for before, after in pairs if before and after)


def _table(
    first: Result, second: Result, method: str, lines: Sequence[tuple[str, list[Condition], Difference]]
) -> Table:
    cells = tuple(
        (
            TableCell(label),
            percent_cell(first.mean(method, among)),
            percent_cell(second.mean(method, among)),
            change_cell(each),
        )
        for label, among, each in lines
    )
    significant = sum(each.significant for _, _, each in lines)
    notes = [f"{significant} of {len(lines)} differences exceed chance; without a cause, fewer than one in 20 would"]
    if first.images != second.images:
        notes.append("the two runs are on different images")
    title = f"{method}: error in %"
    return Table(_name(method), title, ("condition", first.name, second.name, "difference"), cells, tuple(notes))


def _chart(
    first: Result, second: Result, method: str, lines: Sequence[tuple[str, list[Condition], Difference]]
) -> Figure:
    import altair as alt

    rows: list[Datum] = [
        {
            "condition": label,
            **{name: round(100 * value, 3) for name, value in each._asdict().items()},
            "exceeds chance": "yes" if each.significant else "no",
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
