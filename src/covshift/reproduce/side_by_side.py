"""Our numbers beside the paper's, with the differences."""

from collections.abc import Mapping, Sequence

from covshift.bench.results.store import Row
from covshift.reproduce.target import Target
from covshift.support.tables import DECIMAL, Notation, Table, TableCell
from covshift.support.writers import format_tables

_DIFFERENCE = DECIMAL._replace(number=lambda value: f"{round(value, 1) + 0.0:+.1f}")
_COLUMNS = ("row", "column", "ours", "paper", "difference")


def numbers_table(target: Target, rows: Mapping[str, list[Row]]) -> Table:
    """Return the numbers of a table or figure in per cent: ours, from the rows of its runs, and the paper's.

    Args:
        target: the table or figure.
        rows: the rows of each run, by its name.
    """
    lines = []
    for number in target.numbers:
        ours, paper = number.metric.of(rows.get(number.run, [])), number.paper
        difference = None if ours is None or paper is None else ours - paper
        cells = (_cell(ours), _cell(paper), _cell(difference, _DIFFERENCE))
        lines.append((TableCell(number.row), TableCell(number.column), *cells))
    notes = (target.note,) if target.note else ()
    return Table(target.name, target.title, _COLUMNS, tuple(lines), notes)


def format_comparison(tables: Sequence[Table], form: str = "text") -> str:
    """Return tables as one text: text, markdown, csv, latex or json."""
    if form not in ("csv", "json"):  # readers see which column has the labels, and need the name
        tables = [
            table._replace(title=f"{table.name}: {table.title}", columns=("", "", *_COLUMNS[2:])) for table in tables
        ]
    return format_tables(tables, form)


def _cell(value: float | None, notation: Notation = DECIMAL) -> TableCell:
    return TableCell(value, notation=notation)
