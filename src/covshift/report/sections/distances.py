"""How far conditions move a model's statistics, and what follows for its error."""

from collections.abc import Mapping, Sequence

import numpy as np

from covshift.bench.measure import MEASURES, Shift, measurable
from covshift.bench.methods import FULL, NONE, REVERSE
from covshift.bench.results.table import grouped
from covshift.corruptions import category, names
from covshift.data.condition import CLEAN
from covshift.report.figure import BLUE, GREEN, KIND_COLOURS, ORANGE, Datum, Figure, data, figure, legend, palette
from covshift.report.gather import Result
from covshift.report.naming import file_name
from covshift.report.parts import Gap, Part, Section, lacking
from covshift.support.errors import CovshiftError
from covshift.support.tables import Table, TableCell

PANELS = {NONE: "(i) as it is", FULL: "(ii) adapted", REVERSE: "(iii) adapted to it, on clean images"}
KINDS = ("noise", "blur", "weather", "digital")
"""The published kinds of corruptions; users' own may be of others."""
MEASURE = "covshift report RUN --measure 1000"
_REVERSE = "covshift bench run --out RUN --extend --methods reverse"
_ALL = "covshift bench run --out RUN --extend --corruptions all --severities 1,2,3,4,5"
PUBLISHED = {
    NONE: (5.84, 11.04, 11.21, 6.97),
    FULL: (4.14, 5.65, 7.80, 4.14),
    REVERSE: (13.08, 13.43, 8.98, 12.97),
}
"""The paper's |Δ| for these kinds: ResNet-50 on ImageNet-C."""
_PANEL = 250  # px


def section(results: Sequence[Result], shifts: Mapping[str, Shift], measuring: str = MEASURE) -> Section:
    """Return scatter plots, layers, heat maps and maps of the runs that were measured; `measuring` measures others."""
    text = (
        "The distance is between the statistics that the model came with and those of a condition: the normalised "
        "Wasserstein distance, averaged over layers, unless stated otherwise."
    )
    parts: list[Part] = []
    for result in results:
        if result.name not in shifts:
            continue
        shift = shifts[result.name]
        parts += [*scatter(result, shift), *prediction(result, shift, measuring), layers(result, shift)]
        parts += [*tsne(result, shift), heat_map(result, shift)]
        planned = measurable(result)
        if missing := set(planned) - {each.condition for each in shift.conditions}:
            reason = f"distances were measured in {len(planned) - len(missing)} of {len(planned)} conditions"
            parts.append(Gap(f"{result.name}: distances in all conditions", reason, measuring))
    forward = [r for r in results if r.name in shifts and r.shared and not r.table.get(REVERSE)]
    if forward:
        reason = "it takes the method reverse, on the clean images with the statistics of a condition"
        parts.append(lacking(f"Distance and error, {PANELS[REVERSE]}", reason, forward, _REVERSE))
    unmeasured = [r for r in results if r.adaptable and r.name not in shifts]
    if unmeasured:
        reason = "how far conditions are from the source was not measured (shift.json)"
        parts.append(lacking("Distances, layers and the map of conditions", reason, unmeasured, then=measuring))
    return Section("distances", "How far the data have moved", text, tuple(parts))


def kind_of(corruption: str) -> str:
    """Return the kind of a corruption; a user's own whose code is not here is "registered", which is the default."""
    try:
        return category(corruption)
    except CovshiftError:
        return "registered"


def _kinds(rows: Sequence[Datum]) -> list[str]:
    """Return the published kinds, and others of these rows."""
    return [*KINDS, *dict.fromkeys(str(row["kind"]) for row in rows if row["kind"] not in (*KINDS, "clean"))]


def error_rows(result: Result, shift: Shift) -> list[Datum]:
    """Return a row for each condition and method, with its distance and its error."""
    rows: list[Datum] = []
    for method, panel in PANELS.items():
        for measured in shift.conditions:
            rate = result.rate(method, measured.condition)
            if rate is not None and measured.condition != CLEAN:
                rows.append(
                    {
                        "panel": panel,
                        "corruption": measured.corruption.replace("_", " "),
                        "kind": kind_of(measured.corruption),
                        "severity": measured.severity,
                        "used": "holdout" if measured.corruption in names("holdout") else "test",
                        "distance": round(measured.average(), 4),
                        "error": round(100 * rate.value, 3),
                    }
                )
    return rows


def scatter(result: Result, shift: Shift) -> list[Figure]:
    """Draw error against distance in up to three panels, with a line through the holdout corruption of each kind."""
    import altair as alt

    rows = error_rows(result, shift)
    if not rows:
        return []
    kinds = _kinds(rows)
    lines = [
        {"panel": panel, "kind": name, "distance": at, "fit": round(slope * at + intercept, 3)}
        for panel in dict.fromkeys(str(row["panel"]) for row in rows)
        for name in kinds
        if (fitted := _fit(rows, panel, name)) is not None
        for slope, intercept in [fitted]
        for at in _ends(rows, panel, name)
    ]
    color = alt.Color("kind:N", legend=legend(kinds), scale=palette(kinds, KIND_COLOURS))
    x = alt.X("distance:Q", title="distance", scale=alt.Scale(zero=True))
    used = alt.Scale(domain=["test", "holdout"], range=["circle", "triangle-up"])
    points = (
        alt.Chart()
        .mark_point(size=32, opacity=0.85)
        .encode(
            x=x,
            y=alt.Y("error:Q", title="top-1 error in %"),
            color=color,
            shape=alt.Shape("used:N", legend=legend(["test", "holdout"]), scale=used),
            tooltip=["corruption:N", "severity:Q", "distance:Q", "error:Q"],
        )
        .transform_filter("isValid(datum.error)")
    )
    fits = alt.Chart().mark_line(opacity=0.6, clip=True).encode(x=x, y="fit:Q", color=color, detail="kind:N")
    fits = fits.transform_filter("isValid(datum.fit)")
    chart = (
        alt.layer(points, *([fits] if lines else []), data=data([*rows, *lines]))
        .properties(width=_PANEL, height=_PANEL)
        .facet(alt.Facet("panel:N", title=None), columns=3)
    )
    correlations = [f"{panel}: {value:.2f}" for panel, value in _correlations(rows).items()]
    sentences = [f"Correlations: {', '.join(correlations)}."] if correlations else []
    sentences += ["Lines are fitted to the holdout corruption of a kind."] if lines else []
    title = f"{result.name}: distance and error"
    return [figure(f"distance-{file_name(result)}", title, " ".join(sentences), chart, rows, wide=True)]


def _chosen(rows: Sequence[Datum], panel: str, kind: str, used: str) -> tuple[np.ndarray, np.ndarray]:
    among = [row for row in rows if (row["panel"], row["kind"], row["used"]) == (panel, kind, used)]
    return np.array([row["distance"] for row in among]), np.array([row["error"] for row in among])


def _fit(rows: Sequence[Datum], panel: str, kind: str) -> tuple[float, float] | None:
    """Return slope and intercept of the line through the holdout corruption of a kind."""
    distance, error = _chosen(rows, panel, kind, "holdout")
    if len(distance) < 2 or np.ptp(distance) == 0:
        return None
    slope, intercept = np.polyfit(distance, error, 1)
    return float(slope), float(intercept)


def _ends(rows: Sequence[Datum], panel: str, kind: str) -> list[float]:
    distances = [row["distance"] for row in rows if row["panel"] == panel and row["kind"] == kind]
    return [min(distances), max(distances)]


def _correlations(rows: Sequence[Datum]) -> dict[str, float]:
    correlations = {}
    for panel in dict.fromkeys(str(row["panel"]) for row in rows):
        pairs = np.array([(row["distance"], row["error"]) for row in rows if row["panel"] == panel])
        if len(pairs) > 2 and np.ptp(pairs, axis=0).all():
            correlations[panel] = float(np.corrcoef(pairs.T)[0, 1])
    return correlations


def prediction(result: Result, shift: Shift, measuring: str = MEASURE) -> list[Part]:
    """Return what the line through a kind's holdout corruption predicts for its test corruptions."""
    rows = error_rows(result, shift)
    title = f"{result.name}: error predicted from distance, in %"
    lines = []
    for method, panel in PANELS.items():
        for kind, published in zip(KINDS, PUBLISHED[method], strict=True):
            fitted = _fit(rows, panel, kind)
            test = _chosen(rows, panel, kind, "test")
            if fitted is None or not len(test[0]):
                continue
            slope, intercept = fitted
            cells = [panel, kind]
            for distance, true in (test, _chosen(rows, panel, kind, "holdout")):
                guessed = slope * distance + intercept
                numbers = (true.mean(), guessed.mean(), np.abs(true - guessed).mean())
                cells += [f"{number:.2f}" for number in numbers]
            lines.append(tuple(map(TableCell, [*cells, f"{slope:.2f}", f"{intercept:.2f}", f"{published:.2f}"])))
    if not lines:
        reason = "it takes a holdout corruption and a test corruption of one kind, at several severities"
        return [lacking(title, reason, [result], _ALL, measuring)]
    columns = ("error", "kind", "true", "predicted", "|Δ|", "holdout", "fitted", "holdout |Δ|", "slope", "intercept")
    note = "The last column is the paper's |Δ|, of a ResNet-50 on ImageNet-C."
    return [
        Table(f"prediction-{file_name(result)}", title, (*columns, "paper |Δ|"), tuple(lines), (note,), folded=True)
    ]


def layers(result: Result, shift: Shift) -> Figure:
    """Draw the three distances by layer, each as a share of its largest, as means over the corrupted conditions."""
    import altair as alt

    corrupted = [each for each in shift.conditions if each.condition != CLEAN] or shift.conditions
    rows = []
    for measure in MEASURES:
        means = np.mean([each.distances[measure] for each in corrupted], axis=0)
        largest = means.max() or 1.0  # nothing has moved at all where that is 0
        rows += [
            {"layer": path, "measure": measure, "distance": float(f"{mean:.5g}"), "share": round(mean / largest, 4)}
            for path, mean in zip(shift.layers, means, strict=True)
        ]
    colours = dict(zip(MEASURES, (BLUE, ORANGE, GREEN), strict=True))
    axis = alt.Axis(labelOverlap=True, labelAngle=-60)
    chart = (
        alt.Chart(data(rows))
        .mark_line(point=alt.OverlayMarkDef(size=30))
        .encode(
            x=alt.X("layer:N", sort=shift.layers, title=None, axis=axis),
            y=alt.Y("share:Q", title="distance, largest = 1"),
            color=alt.Color("measure:N", legend=legend(MEASURES), scale=palette(MEASURES, colours)),
            tooltip=["layer:N", "measure:N", "distance:Q"],
        )
        .properties(width="container", height=240)
    )
    title = f"{result.name}: distance by layer"
    caption = "From the input to the output; mean over the corrupted conditions."
    return figure(f"layers-{file_name(result)}", title, caption, chart, rows)


def tsne(result: Result, shift: Shift) -> list[Figure]:
    """Draw the map of conditions."""
    import altair as alt

    rows = [
        {
            "condition": str(each.condition),
            "corruption": each.corruption.replace("_", " "),
            "kind": "clean" if each.condition == CLEAN else kind_of(each.corruption),
            "severity": each.severity,
            "x": each.x,
            "y": each.y,
        }
        for each in shift.conditions
        if each.x is not None
    ]
    if not rows:
        return []
    kinds = [name for name in (*_kinds(rows), "clean") if any(row["kind"] == name for row in rows)]
    hidden = alt.Axis(labels=False, ticks=False, grid=False, domain=False)
    base = alt.Chart(data(rows)).encode(
        x=alt.X("x:Q", title=None, axis=hidden, scale=alt.Scale(zero=False, padding=16)),
        y=alt.Y("y:Q", title=None, axis=hidden, scale=alt.Scale(zero=False, padding=16)),
        color=alt.Color("kind:N", legend=legend(kinds), scale=palette(kinds, KIND_COLOURS)),
    )
    tracks = base.mark_line(opacity=0.35).encode(detail="corruption:N", order="severity:Q")
    severity = alt.Size("severity:Q", legend=None, scale=alt.Scale(domain=[0, 5], range=[15, 110]))
    points = base.mark_circle(opacity=0.9).encode(
        # By severity the clean images would be the smallest point, and they are what others are seen from.
        size=alt.condition("datum.kind == 'clean'", alt.value(150), severity),
        tooltip=["corruption:N", "severity:Q"],
    )
    chart = (tracks + points).properties(width="container", height=300)
    title = f"{result.name}: map of the conditions"
    caption = "t-SNE of the statistics; large points are severe, lines join the severities of a corruption."
    return [figure(f"map-{file_name(result)}", title, caption, chart, rows)]


def heat_map(result: Result, shift: Shift) -> Figure:
    """Draw the three distances by layer and condition."""
    import altair as alt

    known = ("clean", *grouped([*names("all"), *(each.corruption for each in shift.conditions)]).all)
    conditions = sorted(shift.conditions, key=lambda each: (known.index(each.corruption), each.severity))
    order = [str(each.condition) for each in conditions]
    # A column for each measure, and one set of rows for all panels: the page would be large otherwise.
    rows = [
        {"condition": str(each.condition), "layer": path}
        | {measure: each.distances[measure][place] for measure in MEASURES}
        for each in conditions
        for place, path in enumerate(shift.layers)
    ]
    wide = max(120, min(260, 13 * len(shift.layers)))
    key = alt.Legend(title=None, orient="bottom", direction="horizontal", gradientLength=wide, tickCount=3)
    panels, held = [], data(rows)
    for place, measure in enumerate(MEASURES):
        labels = alt.Axis(labels=place == 0, ticks=False, domain=False, labelFontSize=8, labelOverlap=False)
        panels.append(
            alt.Chart(held, title=measure)
            .mark_rect()
            .encode(
                x=alt.X("layer:N", sort=shift.layers, title=None, axis=alt.Axis(labelOverlap=True, labelFontSize=8)),
                y=alt.Y("condition:N", sort=order, title=None, axis=labels),
                color=alt.Color(f"{measure}:Q", legend=key, scale=alt.Scale(type="sqrt", scheme="viridis")),
                tooltip=["condition:N", "layer:N", f"{measure}:Q"],
            )
            .properties(width=wide, height=9 * len(order))
        )
    chart = alt.hconcat(*panels, spacing=12).resolve_scale(color="independent")
    title = f"{result.name}: distance by layer and condition"
    caption = "Each panel has its own scale, from dark, near the source, to bright, far from it."
    return figure(f"heat-{file_name(result)}", title, caption, chart, rows, wide=True)
