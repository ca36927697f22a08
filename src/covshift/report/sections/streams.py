"""Images as a stream: the error over time through a sequence of conditions, and in other orders than a random one."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from covshift.bench.methods import NONE
from covshift.bench.results.over_time import Counted, errors_over_time, pooled, sequence_table
from covshift.data.condition import CLEAN, SEQUENCE, Condition
from covshift.data.sequences import Domain
from covshift.report.criterion import unpaired
from covshift.report.figure import DASHES, DOTS, METHOD_COLOURS, Datum, Figure, colours, data, figure, legend, palette
from covshift.report.gather import Result
from covshift.report.naming import file_name
from covshift.report.parts import Part, Section
from covshift.report.sections import orders
from covshift.support.tables import Table, TableCell

if TYPE_CHECKING:
    import altair

_POINTS = 120  # on a line of a figure, at most
_NAMED = 24  # domains that have room for their names


def sections(results: Sequence[Result]) -> list[Section]:
    """Return a section where there is a sequence or another order than a random one, else none."""
    through = [result for result in results if result.run.settings.sequence]
    parts: list[Part] = [over_time(result) for result in through if any(_counted(result).values())]
    parts += [whole(result) for result in through]
    parts += orders.tables(results)
    text = (
        "A camera shows one class for a while, and one kind of weather after the other. Statistics that follow such a "
        "stream follow its classes, too; a method that is safe in front of a camera errs no more than the model as it "
        "is."
    )
    return [Section("streams", "Streams", text, tuple(parts))] if parts else []


def over_time(result: Result) -> Figure:
    """Draw the error of each method against the number of images seen, with the changes of domain marked."""
    settings = result.run.settings
    rows = [row for name, counted in _counted(result).items() for row in _line(name, counted)]
    domains = settings.domains(result.image_count)
    marks = [{"images": each.start, "domain": _label(each.condition)} for each in domains]
    sequence = ", ".join(settings.sequence[:6]) + (", …" if len(settings.sequence) > 6 else "")
    caption = (
        f"Top-1 error in % against the number of images seen, {_lengths(domains)} images in each domain, in the "
        f"order {settings.order}; nothing is reset. Lines mark where the domain changes."
    )
    title = f"Error over time of {result.name}: {sequence}"
    return figure(f"streams-{file_name(result)}", title, caption, _chart(rows, marks), rows, wide=True)


def whole(result: Result) -> Table:
    """Return the error of each method over the whole sequence and in each corruption."""
    found = sequence_table(result.rows, result.run)
    lines = tuple((TableCell(label.text.replace("_", " ")), *cells) for label, *cells in found.lines)
    title = f"{result.name}: error in % over the sequence"
    notes = (*found.notes, *unpaired([result]))
    return found._replace(name=f"sequence-{file_name(result)}", title=title, lines=lines, notes=notes)


def _lengths(domains: Sequence[Domain]) -> str:
    """Return the number of images in a domain, or the least and the largest."""
    lengths = {each.stop - each.start for each in domains}
    return f"{min(lengths):,}" if len(lengths) == 1 else f"{min(lengths):,} to {max(lengths):,}"


def _counted(result: Result) -> dict[str, list[Counted]]:
    rows = {name: result.table[name].get(SEQUENCE) for name in result.methods}
    return {name: errors_over_time(row, result.run) for name, row in rows.items() if row is not None}


def _line(method: str, counted: Sequence[Counted]) -> list[Datum]:
    """Return points of a line: pieces of the stream, several together where there are many, none across domains."""
    together = -(-len(counted) // _POINTS)
    groups: list[list[Counted]] = []
    for each in counted:
        last = groups[-1] if groups else []
        if last and len(last) < together and last[-1].piece.condition == each.piece.condition:
            last.append(each)
        else:
            groups.append([each])
    return [
        {
            "method": method,
            "images": (group[0].piece.start + group[-1].piece.stop) / 2,
            "error": round(100 * pooled(group).value, 3),
            "domain": _label(group[0].piece.condition),
        }
        for group in groups
    ]


def _label(condition: Condition) -> str:
    return CLEAN.corruption if condition == CLEAN else str(condition)


def _chart(rows: Sequence[Datum], marks: Sequence[Datum]) -> "altair.TopLevelMixin":
    import altair as alt

    methods = list(dict.fromkeys(str(row["method"]) for row in rows))
    x = alt.X("images:Q", title="images seen", axis=alt.Axis(grid=False, format=",d"))
    names = legend(methods, "stroke", beside=50)
    dashes = alt.Scale(domain=methods, range=_dashes(methods))
    lines = (
        alt.Chart(data(rows))
        .mark_line()
        .encode(
            x=x,
            y=alt.Y("error:Q", title="top-1 error in %"),
            color=alt.Color("method:N", legend=names, scale=palette(methods, METHOD_COLOURS)),
            strokeDash=alt.StrokeDash("method:N", legend=names, scale=dashes),
            tooltip=[f"{name}:N" for name in rows[0]],
        )
    )
    base = alt.Chart(data(marks)).encode(x=x)
    layers = [base.mark_rule(opacity=0.3), lines]
    if len(marks) <= _NAMED:
        layers.append(
            base.mark_text(angle=270, align="left", dy=7, fontSize=9, opacity=0.7).encode(
                y=alt.value(276), text="domain:N"
            )
        )
    return alt.layer(*layers).properties(width="container", height=280)


def _dashes(methods: Sequence[str]) -> list[list[int]]:
    """Return dots for the model as it is, and dashes for methods whose colours others have already."""
    given = colours(methods, METHOD_COLOURS)
    earlier = [given[:place].count(colour) for place, colour in enumerate(given)]
    return [DOTS if name == NONE else DASHES[many % len(DASHES)] for name, many in zip(methods, earlier, strict=True)]
