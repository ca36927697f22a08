"""`Table`: lines of typed cells under a title; `covshift.support.writers` has the forms that it is written in."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

CHANGE = "Δ"
"""The head of a column of differences, which follow from other columns."""


def signed(share: float) -> str:
    """Return a share as percentage points with their sign.

    >>> signed(-0.123), signed(-0.0001)
    ('-12.3', '+0.0')
    """
    return f"{round(100 * share, 1) + 0.0:+.1f}"


def bound(share: float) -> str:
    """Return the end of an interval, with as many digits as it takes to see on which side of zero it is.

    >>> bound(-0.123), bound(-0.0001)
    ('-12.3', '-0.01')
    """
    digits = next((digits for digits in range(1, 5) if round(100 * share, digits)), 1)
    return f"{round(100 * share, digits) + 0.0:+.{digits}f}"


class Notation(NamedTuple):
    """The way in which a cell writes its number, and the ends of its interval."""

    number: Callable[[float], str]
    end: Callable[[float], str]


def _in_percent(share: float) -> str:
    return f"{100 * share:.1f}"


PERCENT = Notation(_in_percent, _in_percent)
"""A share from 0 to 1, written in per cent."""

POINTS = Notation(signed, bound)
"""A difference of shares, written as points with their sign."""

DECIMAL = Notation("{:.1f}".format, "{:.1f}".format)
"""A number with one digit after the point."""

EXACT = Notation(repr, repr)
"""A number with all of its digits."""


@dataclass(frozen=True)
class TableCell:
    """The content of one cell.

    Attributes:
        value: words, a number, or None for an empty cell.
        low: the lower end of the number's interval; None where it has none.
        high: the upper end.
        strong: whether the cell is set in bold.
        notation: how the number is written.

    >>> percent_cell((0.5, 0.4038, 0.5962)).text, TableCell("fog").text
    ('50.0', 'fog')
    """

    value: str | float | None = None
    low: float | None = None
    high: float | None = None
    strong: bool = False
    notation: Notation = DECIMAL

    @property
    def text(self) -> str:
        """The content as readers see it."""
        if self.value is None or isinstance(self.value, str):
            return self.value or ""
        return self.notation.number(self.value)

    @property
    def ends(self) -> tuple[str, str] | None:
        """Both ends of the interval as readers see them; None where it has no width."""
        if self.low is None or self.high is None:
            return None
        low, high = self.notation.end(self.low), self.notation.end(self.high)
        return (low, high) if low != high else None

    @property
    def margin(self) -> str:
        """Half of the interval's width, or of the wider half where the number is not in its middle."""
        if not isinstance(self.value, int | float) or self.low is None or self.high is None or self.high <= self.low:
            return ""
        width = self.notation.number(max(self.high - self.value, self.value - self.low))
        return f"±{width.removeprefix('+')}"

    @property
    def data(self) -> str | float | dict[str, float] | None:
        """The content as programs read it, with the interval where there is one."""
        if isinstance(self.value, str) or self.value is None or self.low is None or self.high is None:
            return self.value
        return {"value": self.value, "low": self.low, "high": self.high}

    @property
    def is_number(self) -> bool:
        """Whether readers see a number."""
        return self.text[:1].isdigit() or (self.text[:1] in "+-" and self.text[1:2].isdigit())


EMPTY = TableCell()


class Table(NamedTuple):
    """Lines of cells under a title, in columns with heads.

    Attributes:
        name: the name of its files.
        title: the title, on one line.
        columns: the heads of the columns; the first is that of the labels.
        lines: the lines, each with a cell for every column, the label first.
        notes: remarks for the reader.
        folded: whether a page shows it only on request.
    """

    name: str
    title: str
    columns: tuple[str, ...]
    lines: tuple[tuple[TableCell, ...], ...]
    notes: tuple[str, ...] = ()
    folded: bool = False

    @property
    def wordy(self) -> list[bool]:
        """Whether each column has words, which are aligned left, and no numbers; labels are words."""
        columns = [[line[place] for line in self.lines] for place in range(len(self.columns))]
        words = [any(cell.text for cell in cells) and not any(cell.is_number for cell in cells) for cells in columns]
        return [True, *words[1:]]

    def as_dict(self) -> dict[str, Any]:
        """Return the table as programs read it: each line with its label, and the values of its other columns."""
        lines = [
            {
                "line": label.text.strip(),
                "values": {name: cell.data for name, cell in zip(self.columns[1:], cells, strict=True)},
            }
            for label, *cells in self.lines
        ]
        columns, notes = list(self.columns[1:]), list(self.notes)
        return {"name": self.name, "title": self.title, "columns": columns, "lines": lines, "notes": notes}


def percent_cell(rate: tuple[float, float, float] | None) -> TableCell:
    """Return the cell of a rate with its interval, in per cent.

    >>> percent_cell((0.5, 0.4038, 0.5962)).ends
    ('40.4', '59.6')
    """
    return EMPTY if rate is None else TableCell(*rate, notation=PERCENT)


def share_cell(share: float | None) -> TableCell:
    """Return the cell of a share without an interval, such as mCE, in per cent."""
    return TableCell(share, notation=PERCENT)


def change_cell(difference: tuple[float, float, float] | None) -> TableCell:
    """Return the cell of a change with its interval, in points; bold where the interval leaves out zero."""
    if difference is None:
        return EMPTY
    value, low, high = difference
    return TableCell(value, low, high, strong=low > 0 or high < 0, notation=POINTS)


def points_cell(share: float | None) -> TableCell:
    """Return the cell of a change without an interval, in points."""
    return TableCell(share, notation=POINTS)


def tidy(table: Table) -> Table:
    """Return a table with a line for each number of this one, with all of its digits; changes are left out."""
    lines = tuple(
        (
            TableCell(line[0].text),
            TableCell(column),
            *(TableCell(each, notation=EXACT) for each in (cell.value, cell.low, cell.high)),
        )
        for line in table.lines
        for column, cell in zip(table.columns[1:], line[1:], strict=True)
        if column != CHANGE and cell.value is not None
    )
    return table._replace(columns=("line", "column", "value", "low", "high"), lines=lines)
