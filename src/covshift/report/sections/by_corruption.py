"""Errors by corruption: a table, and bars before and after for each model."""

import json
from collections.abc import Mapping, Sequence

from covshift.bench.methods import NONE
from covshift.report.figure import METHOD_COLOURS, Datum, Figure, data, figure, in_percent, legend, palette
from covshift.report.gather import Result
from covshift.report.naming import file_name
from covshift.report.parts import Gap, Part, Section, lacking
from covshift.report.sections.gallery import NONE_SHOWN, Galleries
from covshift.support.tables import EMPTY, Table, TableCell, change_cell, percent_cell

_CORRUPT = "covshift bench run --out RUN --extend --corruptions all --methods none"


def section(results: Sequence[Result], galleries: Galleries = NONE_SHOWN) -> Section:
    """Return bars, which lead to the galleries that there are, and tables for all models."""
    text = "Mean over the severities of each corruption. Holdout corruptions, where shown, come last."
    parts: list[Part] = [*bars(results, galleries), *(table(result) for result in results if _complete(result))]
    if not parts:
        parts = [_gap(results)]
    return Section("corruptions", "By corruption", text, tuple(parts))


def _gap(results: Sequence[Result]) -> Gap:
    title, unfinished = "Errors by corruption", [result for result in results if result.left]
    if not unfinished:
        return lacking(title, "no run has corruptions as the model is (method none)", results, _CORRUPT)
    commands = [result.run.settings.command(str(result.folder)) for result in unfinished]
    return Gap(title, "no corruption has all of its severities yet", "\n".join(commands))


def _complete(result: Result) -> list[str]:
    """Return the corruptions that some method has at all severities, users' own last."""
    return [name for name in result.corruptions.all if any(result.over(method, name) for method in result.scenarios)]


def table(result: Result) -> Table:
    """Return one model's errors by corruption."""
    methods = result.scenarios
    lines = []
    for name in _complete(result):
        line = [TableCell(name.replace("_", " ")), *(percent_cell(result.over(each, name)) for each in methods)]
        if result.adapted:
            conditions = [c for c in result.table.get(NONE, {}) if c.corruption == name]
            line.append(change_cell(result.gain(result.adapted, conditions)) if conditions else EMPTY)
        lines.append(tuple(line))
    columns = ("corruption", *methods, *(["Δ"] if result.adapted else []))
    title = f"{result.name}: error in % by corruption"
    return Table(f"corruptions-{file_name(result)}", title, columns, tuple(lines), folded=True)


def bars(results: Sequence[Result], galleries: Galleries = NONE_SHOWN) -> list[Figure]:
    """Return charts of the error before and after, by corruption; all have the same axis."""
    rows = {result.name: _rows(result) for result in results}
    top = max((float(row["high"]) for each in rows.values() for row in each), default=100.0)
    return [_bars(result, rows[result.name], top, galleries.links(result)) for result in results if rows[result.name]]


def _rows(result: Result) -> list[Datum]:
    return [
        {"corruption": name.replace("_", " "), "method": method, **in_percent(rate)}
        for name in _complete(result)
        for method in result.scenarios
        if (rate := result.over(method, name)) is not None
    ]


def _bars(result: Result, rows: Sequence[Datum], top: float, anchors: Mapping[str, str]) -> Figure:
    import altair as alt

    corruptions = [name.replace("_", " ") for name in _complete(result)]
    methods = [name for name in result.scenarios if any(row["method"] == name for row in rows)]
    base = alt.Chart(data(rows)).encode(
        y=alt.Y("corruption:N", sort=corruptions, title=None),
        yOffset=alt.YOffset("method:N", scale=alt.Scale(domain=methods)),
    )
    links = {name.replace("_", " "): anchor for name, anchor in anchors.items()}
    target = json.dumps({name: f"#{anchor}" for name, anchor in links.items()})
    linked = base.transform_calculate(gallery=f"({target})[datum.corruption]") if links else base
    drawn = linked.mark_bar().encode(
        x=alt.X("error:Q", title="top-1 error in %", scale=alt.Scale(domain=[0, top], nice=False)),
        color=alt.Color("method:N", legend=legend(methods, beside=110), scale=palette(methods, METHOD_COLOURS)),
        tooltip=["corruption:N", "method:N", "error:Q", "low:Q", "high:Q"],
        **({"href": alt.Href("gallery:N")} if links else {}),
    )
    intervals = base.mark_rule(opacity=0.6).encode(x="low:Q", x2="high:Q")
    height = len(corruptions) * max(16, 9 * len(methods))
    chart = (drawn + intervals).properties(width="container", height=height)
    caption = "Mean over severities; thin lines are 95 % intervals."
    caption += " A bar leads to images that adaptation repaired or broke." if links else ""
    name, title = f"corruptions-{file_name(result)}", f"{result.name}: error by corruption"
    return figure(name, title, caption, chart, rows, links=links)
