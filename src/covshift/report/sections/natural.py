"""Where there is no common corruption to remove: images as they are, natural shifts, and corruptions mixed."""

from collections.abc import Sequence

from covshift.bench.methods import NONE
from covshift.data.condition import CLEAN, MIXED, Condition
from covshift.report.criterion import unpaired, unshuffled, with_notes
from covshift.report.figure import UNADAPTED, Datum, figure, over_batch_sizes
from covshift.report.gather import Result
from covshift.report.parts import Gap, Part, Section, lacking
from covshift.report.sections.batches import GRID_COMMAND
from covshift.support.tables import EMPTY, Table, TableCell, change_cell, percent_cell

_TOP5 = 5
_MIXED = "covshift bench run --out RUN --extend --mixed"
_NATURAL = "covshift bench run --model MODEL --data folder:DIR --corruptions none --out runs/NAME"
_SIZES = "covshift bench run --out RUN --extend --clean --methods batch:n=8,N=0,batch:n=64,N=0,batch:n=512,N=0"


def section(results: Sequence[Result]) -> Section:
    """Return a table, and curves over the batch size."""
    text = (
        "Adapting removes what all images of a set have in common. Where there is no such shift, or every image has "
        "its own, it should neither help nor harm much."
    )
    parts: list[Part] = [table(results)] if any(_lines(result) for result in results) else []
    pure = [result for result in results if result.planned and not result.rate(NONE, MIXED)]
    if pure:
        reason = "it takes the control in which every image has a corruption of its own"
        parts.append(lacking("Mixed corruptions", reason, pure, _MIXED))
    if not any(result.natural for result in results):
        reason = "no run is on images as they are only, such as ImageNet-R or your own camera's"
        parts.append(Gap("Natural shifts", reason, _NATURAL))
    return Section("natural", "Natural shifts and mixtures", text, (*parts, *curves(results)))


def _lines(result: Result) -> list[tuple[str, Condition]]:
    lines = [("as they are" if result.natural else "clean", CLEAN), ("mixed corruptions", MIXED)]
    return [(label, condition) for label, condition in lines if result.rate(NONE, condition)]


def table(results: Sequence[Result]) -> Table:
    """Return top-1 and top-5 error without and with adaptation."""
    lines = []
    deep = any(result.run.model_classes > _TOP5 for result in results)
    for result in results:
        for label, condition in _lines(result):
            method = result.adapted_in([condition])
            line = [TableCell(result.name), TableCell(f"{result.run.settings.data}, {label}")]
            line += [percent_cell(result.rate(NONE, condition))]
            line += [percent_cell(result.rate(method, condition)) if method else EMPTY]
            line += [change_cell(result.gain(method, [condition])) if method else EMPTY]
            for name in (NONE, method) if deep else ():
                rate = result.rate(name, condition, top5=True) if name else None
                line.append(percent_cell(rate) if result.run.model_classes > _TOP5 else EMPTY)
            lines.append(tuple(line))
    columns = ("model", "images", "as it is", "adapted", "Δ", *(("top-5", "top-5 adapted") if deep else ()))
    notes = unpaired([result for result in results if result.natural])  # of others, the overview has the note
    return Table("natural", "Error in % where no corruption is common to all images", columns, tuple(lines), notes)


def curves(results: Sequence[Result]) -> list[Part]:
    """Draw the error on images as they are by batch size, with the least prior of those run with most sizes."""
    rows: list[Datum] = []
    drawn: list[Result] = []
    for result in results:
        lines: dict[float, dict[int, float]] = {}
        for (n, N), name in sorted(result.batches.items()):
            if rate := result.rate(name):
                lines.setdefault(N, {})[n] = rate.value
        most = max(map(len, lines.values()), default=0)
        if most < 2:
            continue
        drawn.append(result)
        least = min(N for N, line in lines.items() if len(line) == most)
        sizes = list(lines[least])
        rows += [_row(result, f"N = {least:g}", n, value) for n, value in lines[least].items()]
        if none := result.rate(NONE):
            rows += [_row(result, UNADAPTED, n, none.value) for n in (sizes[0], sizes[-1])]
    title = "Error on images as they are, by batch size"
    if not rows:
        corrupted = [result for result in results if result.adaptable and result.planned]
        natural = [result for result in results if result.adaptable and result.natural]
        reason = "it takes clean images and several batch sizes"
        wanted = ((corrupted, GRID_COMMAND), (natural, _SIZES))
        return [lacking(title, reason, some, command) for some, command in wanted if some]
    caption = with_notes("With the least prior N of those that were run with most batch sizes.", unshuffled(drawn))
    chart = over_batch_sizes(rows, "top-1 error in %")
    return [figure("natural-batches", title, caption, chart, rows, wide=True)]


def _row(result: Result, prior: str, n: int, value: float) -> Datum:
    return {
        "model": result.name,
        "data": result.run.settings.data,
        "prior": prior,
        "n": n,
        "error": round(100 * value, 3),
    }
