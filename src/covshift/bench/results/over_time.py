"""A sequence of conditions in numbers: the error of each method over time, and in each domain."""

from collections.abc import Sequence
from typing import NamedTuple

from covshift.bench.results.metrics import Rate, rate
from covshift.bench.results.records import Row, Run
from covshift.data.sequences import Domain
from covshift.support.tables import Notation, Table, TableCell, percent_cell

TIME = Notation("{:.2f}".format, "{:.2f}".format)
"""Milliseconds."""


class Counted(NamedTuple):
    """The number of errors of a method in one piece of a sequence."""

    piece: Domain
    errors: int

    @property
    def images(self) -> int:
        """The number of images in the piece."""
        return self.piece.stop - self.piece.start


def errors_over_time(row: Row, run: Run) -> list[Counted]:
    """Return the errors of a row piece by piece; none where it is not of a whole sequence."""
    pieces = run.time_pieces
    if row.over_time is None or len(row.over_time) != len(pieces):
        return []
    return [Counted(*pair) for pair in zip(pieces, row.over_time, strict=True)]


def pooled(counted: Sequence[Counted]) -> Rate:
    """Return the error over several pieces."""
    return rate(sum(each.errors for each in counted), sum(each.images for each in counted))


def sequence_table(rows: Sequence[Row], run: Run) -> Table:
    """Return the error of each method over the whole sequence and in each corruption, and its time for an image."""
    settings = run.settings
    by_method = {row.method: row for row in rows if row.method in settings.methods}
    counted = {name: errors_over_time(row, run) for name, row in by_method.items()}
    corruptions = dict.fromkeys(each.condition.corruption for each in settings.domains(run.image_count))
    lines = [_line("whole stream", [rate(row.top1_errors, row.images) for row in by_method.values()])]
    for name in corruptions if len(corruptions) > 1 else ():
        mine = [[each for each in found if each.piece.condition.corruption == name] for found in counted.values()]
        lines.append(_line(name, [pooled(each) if each else None for each in mine]))
    times = [TableCell(1000 * row.seconds / row.images, notation=TIME) for row in by_method.values()]
    lines.append((TableCell("ms an image"), *times))
    title = f"{settings.model} on {settings.data}: error in % over a sequence, {','.join(settings.sequence)}"
    notes = [f"order of the images: {settings.order}; nothing is reset from one condition to the next"]
    if run.shows_images_again:
        notes.append("intervals, also those of differences, take an image that is shown again for another one")
    missing = len(set(settings.plan.all_names()) - {row.cell for row in rows})
    notes += [f"{missing} cells are not done yet"] if missing else []
    return Table("sequence", title, ("", *by_method), tuple(lines), tuple(notes))


def _line(label: str, rates: Sequence[Rate | None]) -> tuple[TableCell, ...]:
    return (TableCell(label), *map(percent_cell, rates))
