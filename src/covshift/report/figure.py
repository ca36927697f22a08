"""`Figure`: a chart as a Vega-Lite specification with the rows behind it; and the look of all charts."""

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from covshift.bench.methods import ANCHORED, FULL, NONE, PARTIAL
from covshift.bench.results.metrics import Rate
from covshift.support.writers import csv_text

if TYPE_CHECKING:
    import altair

Datum = Mapping[str, Any]
Spec = dict[str, Any]

WIDTH = 460
"""The width of a chart in files, in px; on the page it takes the width that there is."""

# Okabe and Ito's colours, which colour-blind readers can distinguish, too, without black and yellow.
BLUE, ORANGE, GREEN, RED, PINK, SKY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9"
COLOURS = (BLUE, ORANGE, GREEN, PINK, SKY, RED, "#8C8C8C", "#AA7744", "#6F63BB", "#7FA000")
# Shapes with an area, as filled ones are drawn; one fewer than colours, so that pairs of both last for 90 names.
SHAPES = (
    "circle",
    "square",
    "triangle-up",
    "diamond",
    "cross",
    "triangle-down",
    "triangle-right",
    "triangle-left",
    "wedge",
)
METHOD_COLOURS = {
    NONE: ORANGE,
    PARTIAL: SKY,
    FULL: BLUE,
    f"{PARTIAL}:{ANCHORED}": GREEN,
    f"{FULL}:{ANCHORED}": PINK,
}
KIND_COLOURS = {"noise": BLUE, "blur": ORANGE, "weather": GREEN, "digital": PINK, "clean": "#8C8C8C"}

UNADAPTED = "no adaptation"
DASHES = ([1, 0], [8, 3], [8, 3, 2, 3], [4, 2])
DOTS = [2, 3]

_PHONE = 300  # px that a chart has on a phone
_INK = "currentColor"  # so that the page's own colour, light or dark, is taken
_FONT = "Liberation Sans, Arial, Helvetica, sans-serif"
_CONFIG: Spec = {
    "background": None,
    "font": _FONT,
    "view": {"stroke": None},
    "axis": {
        "labelColor": _INK,
        "titleColor": _INK,
        "titleFontWeight": "normal",
        "domainColor": _INK,
        "domainOpacity": 0.4,
        "tickColor": _INK,
        "tickOpacity": 0.4,
        "gridColor": _INK,
        "gridOpacity": 0.12,
        "labelLimit": 220,
    },
    "legend": {
        "labelColor": _INK,
        "titleColor": _INK,
        "titleFontWeight": "normal",
        "orient": "top",
        "labelLimit": 260,
        # One legend above the other: side by side they are cut off on a phone.
        "layout": {"top": {"direction": "vertical", "anchor": "start"}},
    },
    "header": {"labelColor": _INK, "titleColor": _INK, "titleFontWeight": "normal"},
    "title": {"color": _INK, "fontWeight": "normal", "fontSize": 12, "anchor": "start"},
    "text": {"color": _INK},
    "rule": {"color": _INK},
}


class Figure(NamedTuple):
    """A chart.

    Attributes:
        name: the name of its files.
        title: one line.
        caption: what it shows, and how that is measured.
        spec: the Vega-Lite specification; colours of text are `currentColor`, and the width may be "container".
        rows: the data behind it.
        wide: whether it takes a whole line of the page.
        links: the anchors on the page that its marks lead to, by their names, for readers without a mouse.
    """

    name: str
    title: str
    caption: str
    spec: Spec
    rows: tuple[Datum, ...]
    wide: bool = False
    links: Mapping[str, str] = MappingProxyType({})

    def as_csv(self) -> str:
        """Return the data behind the chart, for a file that a spreadsheet may open."""
        return rows_as_csv(self.rows)

    @property
    def dataset(self) -> str | None:
        """The name under which the specification holds the same text; None where it holds another."""
        text = self.as_csv()
        return next((name for name, held in self.spec.get("datasets", {}).items() if held == text), None)

    def on_paper(self) -> Spec:
        """Return the specification for files: in black on white, with a width of its own."""
        text = json.dumps(self.spec).replace(f'"{_INK}"', '"#222222"')
        spec: Spec = json.loads(text, object_hook=_without_links)
        spec["config"]["background"] = "white"
        if spec.get("width") == "container":
            spec["width"] = WIDTH
        return spec


def _without_links(part: Spec) -> Spec:
    """Return a part of a specification without links, which lead to nothing in a file."""
    return {name: value for name, value in part.items() if name != "href"}


def figure(
    name: str,
    title: str,
    caption: str,
    chart: "altair.TopLevelMixin",
    rows: Sequence[Datum],
    *,
    wide: bool = False,
    links: Mapping[str, str] = MappingProxyType({}),
) -> Figure:
    """Return a figure of an altair chart; see `Figure`."""
    import altair

    with altair.data_transformers.enable("default", max_rows=None):
        spec = chart.to_dict()
    spec["config"] = _CONFIG
    if spec.get("width") == "container":
        spec["autosize"] = {"type": "fit-x", "contains": "padding"}
    return Figure(name, title, caption, spec, tuple(rows), wide, links)


def in_percent(rate: Rate) -> dict[str, float]:
    """Return the columns of a rate: its value and its interval.

    >>> in_percent(Rate(0.5, 0.4038, 0.5962))
    {'error': 50.0, 'low': 40.38, 'high': 59.62}
    """
    return {name: round(100 * value, 3) for name, value in zip(("error", "low", "high"), rate, strict=True)}


def data(rows: Sequence[Datum]) -> Any:
    """Return rows as a chart takes them: as CSV, which is a fraction of the size of a list of objects."""
    import altair

    numbers = {name for row in rows for name, value in row.items() if isinstance(value, int | float)}
    parse = dict.fromkeys(sorted(numbers), "number")
    return altair.InlineData(
        values=rows_as_csv(rows, formulas=True), format=altair.CsvDataFormat(type="csv", parse=parse)
    )


def rows_as_csv(rows: Sequence[Datum], *, formulas: bool = False) -> str:
    r"""Return rows as CSV, with a column for every name that one of them has.

    >>> rows_as_csv([{"model": "a", "n": 8}, {"model": "b"}])
    'model,n\na,8\nb,\n'
    """
    columns = list(dict.fromkeys(name for row in rows for name in row))
    return csv_text([columns, *([row.get(name) for name in columns] for row in rows)], formulas=formulas)


def batch_sizes() -> Any:
    """Return the axis of n."""
    import altair

    axis = altair.Axis(grid=False, labelOverlap=True, labelSeparation=4, format="~d")
    return altair.X("n:Q", title="batch size n", scale=altair.Scale(type="log", base=2, nice=False), axis=axis)


def over_batch_sizes(rows: Sequence[Datum], title: str) -> "altair.TopLevelMixin":
    """Draw `error` over `n`, a colour for each `model`, dashes for each `prior`, of which `UNADAPTED` comes last."""
    import altair as alt

    models, priors = (list(dict.fromkeys(str(row[name]) for row in rows)) for name in ("model", "prior"))
    adapted = [name for name in priors if name != UNADAPTED]
    dashes = {name: DASHES[place % len(DASHES)] for place, name in enumerate(adapted)}
    dashes |= {UNADAPTED: DOTS} if UNADAPTED in priors else {}
    scale = alt.Scale(domain=list(dashes), range=list(dashes.values()))
    base = alt.Chart(data(rows)).encode(
        x=batch_sizes(),
        y=alt.Y("error:Q", title=title, scale=alt.Scale(zero=False)),
        color=alt.Color("model:N", legend=legend(models, "stroke"), scale=palette(models)),
    )
    lines = base.mark_line().encode(
        strokeDash=alt.StrokeDash("prior:N", legend=legend(list(dashes), "stroke"), scale=scale)
    )
    # Points of their own: as part of the lines they would hide the dashes in the legend.
    points = base.mark_point(filled=True, size=28, opacity=1).encode(tooltip=[f"{name}:N" for name in rows[0]])
    return alt.layer(lines, points).properties(width="container", height=280)


def legend(
    names: Sequence[str], symbol: str | None = None, title: str | None = None, *, beside: int | None = None
) -> Any:
    """Return a legend in as many columns as fit a phone.

    With `beside`, the px that an axis takes at its left, it has as many as fit the page, for a chart that stands alone.
    """
    import altair

    column = 26 + 7 * max(len(name) for name in names)  # px
    columns: Any = max(1, min(_PHONE // column, len(names)))
    if beside is not None:
        # Not the width of the chart, which follows from the legend; files have no container.
        width = f"(containerSize()[0] || {WIDTH}) - {beside}"
        columns = altair.ExprRef(f"max(1, min({len(names)}, floor(({width}) / {column})))")
    given: dict[str, Any] = {"title": title, "columns": columns, "symbolOpacity": 1}
    if symbol is not None:
        given |= {"symbolType": symbol, "symbolStrokeColor": _INK, "symbolSize": 250}
    return altair.Legend(**given)


def palette(names: Sequence[str], known: Mapping[str, str] | None = None) -> Any:
    """Return a scale that gives every name its colour; see `colours`."""
    import altair

    return altair.Scale(domain=list(names), range=colours(names, known))


def colours(names: Sequence[str], known: Mapping[str, str] | None = None) -> list[str]:
    """Return a colour for every name: a known one, or the next that is free; they repeat where there are many names."""
    free = [colour for colour in COLOURS if colour not in (known or {}).values()] or list(COLOURS)
    others = [name for name in names if name not in (known or {})]
    given = {name: free[place % len(free)] for place, name in enumerate(others)} | dict(known or {})
    return [given[name] for name in names]


def by_prior(**given: Any) -> Any:
    """Return colours for N, from few to many, without the ends of the scheme, dark on dark and light on light."""
    import altair

    shades = altair.Scale(scheme=altair.SchemeParams(name="plasma", extent=[0.2, 0.85]))
    return altair.Color("N:O", legend=legend(["256"] * 10, title="N"), scale=shades, **given)


def shapes(names: Sequence[str]) -> Any:
    """Return a scale that gives every name its shape, for readers who cannot distinguish colours."""
    import altair

    return altair.Scale(domain=list(names), range=[SHAPES[place % len(SHAPES)] for place in range(len(names))])
