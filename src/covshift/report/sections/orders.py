"""Methods by the order in which images come: the error in each, the cell where a method is worst, and its time."""

from collections.abc import Sequence
from typing import NamedTuple

from covshift.bench.methods import NONE, stored_method
from covshift.bench.results.difference import Difference
from covshift.bench.results.over_time import TIME
from covshift.data.condition import SEQUENCE, Condition
from covshift.report.gather import Result
from covshift.report.naming import file_name
from covshift.support.tables import EMPTY, Table, TableCell, change_cell, percent_cell

HARM = 0.01
"""By how much a method may be worse than the model as it is before a cell is counted, as a share."""

_WORST = "worst against none"


class Cell(NamedTuple):
    """A condition of a run, and by how much a method changes the error of the model as it is there."""

    change: float
    result: Result
    condition: Condition

    @property
    def where(self) -> str:
        """The condition and the order."""
        return f"{self.condition}, {self.result.run.settings.order}"

    def difference(self, method: str) -> Difference | None:
        """Return the change with its interval, which is paired where the answers were kept."""
        return self.result.gain(method, [self.condition])


def tables(results: Sequence[Result]) -> list[Table]:
    """Return a table for each model whose images came in several orders, and one for all of them together."""
    groups = _grouped(results)
    together = [worst_cells([result for group in groups for result in group])] if len(groups) > 1 else []
    return together + [table(group) for group in groups]


def _grouped(results: Sequence[Result]) -> list[list[Result]]:
    """Return results of the same model on the same images in several orders, or in one that is not random."""
    groups: dict[object, list[Result]] = {}
    for result in results:
        settings = result.run.settings
        conditions = (settings.sequence, settings.corruptions, settings.severities)
        groups.setdefault((result.run.model_digest, result.images, settings.seed, conditions), []).append(result)
    return [group for group in groups.values() if any(each.run.settings.order != "shuffled" for each in group)]


def table(group: Sequence[Result]) -> Table:
    """Return the error of each method in each order, where it is worst, and its time for an image."""
    orders = {result.run.settings.order: result for result in group}
    lines = []
    for name in _methods(group):
        cells = [_error(result, name) for result in orders.values()]
        if any(cell.value is not None for cell in cells):
            worst = max(compared(group, name), default=None, key=lambda cell: cell.change)
            found = (EMPTY, EMPTY) if worst is None else (change_cell(worst.difference(name)), TableCell(worst.where))
            lines.append((TableCell(name), *cells, *found, _time(group, name)))
    first = group[0].run.settings
    where = f"over the sequence {', '.join(first.sequence)}" if first.sequence else "as mean over the corruptions"
    title = f"Error in % by order, {first.model} on {first.data}, {where}"
    note = f"{_WORST}: in points, of all conditions, clean images included; a time is that of the quickest condition"
    columns = ("method", *orders, _WORST, "in", "ms an image")
    return Table(f"orders-{file_name(group[0])}", title, columns, tuple(lines), (note,))


def worst_cells(results: Sequence[Result]) -> Table:
    """Return the cell of all runs that each method is worst in, and how many there are in which it does harm."""
    lines = []
    for name in _methods(results):
        cells = compared(results, name)
        if not cells:
            continue
        worst = max(cells, key=lambda cell: cell.change)
        where = f"{worst.result.run.settings.model}, {worst.where}"
        harmed = sum(cell.change > HARM for cell in cells)
        number = TableCell(f"{harmed} of {len(cells)}")
        lines.append((TableCell(name), change_cell(worst.difference(name)), TableCell(where), number))
    title = "The worst cell of each method, over models, orders and conditions"
    columns = ("method", _WORST, "in", "cells worse by more than a point")
    note = "the worst of many cells is also the unluckiest: its interval is that of a cell that was not chosen"
    return Table("worst-cells", title, columns, tuple(lines), (note,))


def compared(results: Sequence[Result], method: str) -> list[Cell]:
    """Return the cells in which both a method and the model as it is were run; none for what does not compare."""
    if method == NONE or stored_method(method).needs_clean:
        return []
    cells = []
    for result in results:
        plain = result.table.get(NONE, {})
        for condition, row in result.table.get(method, {}).items():
            if condition in plain and row.images:
                before = plain[condition]
                change = row.top1_errors / row.images - before.top1_errors / before.images
                cells.append(Cell(change, result, condition))
    return cells


def _methods(results: Sequence[Result]) -> list[str]:
    return list(dict.fromkeys(name for result in results for name in result.run.settings.methods))


def _error(result: Result, method: str) -> TableCell:
    if result.run.settings.sequence:
        return percent_cell(result.rate(method, SEQUENCE))
    return percent_cell(result.mean(method))


def _time(group: Sequence[Result], method: str) -> TableCell:
    rows = [row for result in group for row in result.table.get(method, {}).values()]
    quickest = min((row.seconds / row.images for row in rows if row.images), default=None)
    return EMPTY if quickest is None else TableCell(1000 * quickest, notation=TIME)
