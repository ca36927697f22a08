"""The forms of a table: text, Markdown, CSV, JSON, LaTeX and HTML, with the same numbers in all of them."""

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Sequence
from html import escape

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from covshift.support.errors import printable, unknown
from covshift.support.tables import Table, TableCell

_WIDTH = 200
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-](inf|nan)")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def as_text(table: Table) -> str:
    """Return a table for a terminal: half of the interval's width follows a number, and a label is shown once."""
    drawn = RichTable()
    for name, left in zip(table.columns, table.wordy, strict=True):
        drawn.add_column(Text(printable(name)), justify="left" if left else "right")
    label = None
    for first, *cells in table.lines:
        new_label = "" if first.text == label else first.text
        label = first.text
        texts = [new_label, *(f"{cell.text} {cell.margin}".strip() for cell in cells)]
        drawn.add_row(*(Text(printable(text)) for text in texts))
    console = Console(file=io.StringIO(), width=_WIDTH)
    console.print(drawn)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    title, *notes = (printable(line) for line in (table.title, *table.notes))
    return "\n".join([title, *(line.rstrip() for line in text.splitlines()), *notes])


def harmless(text: str) -> str:
    """Return a text that a spreadsheet does not take for a formula: behind an apostrophe where it would.

    >>> harmless("=HYPERLINK(1)"), harmless("-3.1"), harmless("resnet20")
    ("'=HYPERLINK(1)", '-3.1', 'resnet20')
    """
    return f"'{text}" if text.startswith(_FORMULA) and not _NUMBER.fullmatch(text) else text


def csv_text(rows: Iterable[Iterable[object]], *, formulas: bool = False) -> str:
    """Return rows as CSV.

    Args:
        rows: the head, followed by the other lines.
        formulas: whether the reader is a program that texts which look like formulas cannot harm.
    """
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerows(
        [value if formulas or not isinstance(value, str) else harmless(value) for value in row] for row in rows
    )
    return file.getvalue()


def as_csv(table: Table) -> str:
    """Return a table for programs; intervals have columns of their own."""
    wide = [any(line[place].low is not None for line in table.lines) for place in range(len(table.columns))]

    def texts(cell: TableCell, with_interval: bool) -> list[str]:
        ends = (cell.low, cell.high) if with_interval else ()
        return [cell.text.strip(), *("" if end is None else cell.notation.end(end) for end in ends)]

    head = [
        text
        for name, interval in zip(table.columns, wide, strict=True)
        for text in ([name, f"{name} low", f"{name} high"] if interval else [name])
    ]
    body = [
        [text for cell, interval in zip(line, wide, strict=True) for text in texts(cell, interval)]
        for line in table.lines
    ]
    return csv_text([head, *body])


def markdown(text: str) -> str:
    r"""Return a text that Markdown shows as it is; some dialects do not accept a backslash before `<`.

    >>> markdown("my_net <b>"), markdown("|Δ|")
    ('my\\_net &lt;b&gt;', '\\|Δ\\|')
    """
    return re.sub(r"([\\`*_\[|])", r"\\\1", escape(text, quote=False))


def as_markdown(table: Table, *, intervals: bool = True) -> str:
    """Return a table for a README, without title and notes; intervals follow in small print."""

    def cell_text(cell: TableCell) -> str:
        text = markdown(cell.text.strip())
        text = f"**{text}**" if cell.strong and text else text
        return f"{text} <sub>{cell.ends[0]} to {cell.ends[1]}</sub>" if intervals and cell.ends else text

    lines = [
        [markdown(name) for name in table.columns],
        ["---" if left else "---:" for left in table.wordy],
        *([cell_text(cell) for cell in line] for line in table.lines),
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def as_markdown_block(table: Table) -> str:
    """Return a table for a page with its title and its notes, without intervals."""
    body = as_markdown(table, intervals=False).rstrip()
    return "\n\n".join([f"**{markdown(table.title)}**", body, *map(markdown, table.notes)])


_LATEX = {
    **{char: f"\\{char}" for char in "&%$#_{}"},
    "\\": "\\textbackslash{}",
    "|": "\\textbar{}",
    "<": "\\textless{}",
    ">": "\\textgreater{}",
    "~": "\\textasciitilde{}",
    "^": "\\textasciicircum{}",
    "Δ": "$\\Delta$",
    "×": "$\\times$",
    "±": "$\\pm$",
    "≤": "$\\leq$",
    "²": "$^2$",
}


def as_latex(table: Table) -> str:
    """Return a table for a paper: a tabular with booktabs' rules, without intervals, for which a page has no room."""

    def escaped(text: str) -> str:
        return "".join(_LATEX.get(char, char) for char in text)

    def cell_text(cell: TableCell) -> str:
        if cell.text[:1] in "+-" and cell.text[1:].replace(".", "", 1).isdigit():
            return f"$\\mathbf{{{cell.text}}}$" if cell.strong else f"${cell.text}$"
        text = escaped(cell.text.strip())
        return f"\\textbf{{{text}}}" if cell.strong and text else text

    lines = [
        f"% {table.title}",
        f"\\begin{{tabular}}{{{''.join('l' if left else 'r' for left in table.wordy)}}}",
        "\\toprule",
        " & ".join(map(escaped, table.columns)) + " \\\\",
        "\\midrule",
        *(" & ".join(map(cell_text, line)) + " \\\\" for line in table.lines),
        "\\bottomrule",
        "\\end{tabular}",
    ]
    return "\n".join(lines) + "\n"


def as_html(table: Table) -> str:
    """Return a table for a web page; intervals follow in small print."""

    def cell_text(cell: TableCell, tag: str) -> str:
        text = f"<b>{escape(cell.text)}</b>" if cell.strong else escape(cell.text)
        interval = f" <small>{escape(cell.ends[0])} to {escape(cell.ends[1])}</small>" if cell.ends else ""
        return f"<{tag}>{text}{interval}</{tag.split()[0]}>"

    classes = [' class="words"' if left else "" for left in table.wordy]
    head = "".join(
        f'<th scope="col"{given}>{escape(name)}</th>' for name, given in zip(table.columns, classes, strict=True)
    )
    body = "".join(
        "<tr>"
        + cell_text(line[0], 'th scope="row"')
        + "".join(cell_text(cell, f"td{given}") for cell, given in zip(line[1:], classes[1:], strict=True))
        + "</tr>\n"
        for line in table.lines
    )
    return f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody>\n</table>"


FILES: dict[str, Callable[[Table], str]] = {"csv": as_csv, "md": as_markdown, "tex": as_latex}
"""The writers of the files that a table can be saved to, by their ending."""

FORMS: dict[str, Callable[[Table], str]] = {
    "text": as_text,
    "markdown": as_markdown_block,
    "csv": as_csv,
    "latex": as_latex,
}
"""The writers of texts that commands print, for one table."""

FORMATS = (*FORMS, "json")
"""The names of all forms that commands print."""


def format_tables(tables: Sequence[Table], form: str) -> str:
    """Return tables as one text.

    Args:
        tables: the tables, in the order in which they are written.
        form: one of `FORMATS`; CSV has all lines under one head, and JSON is a list of tables.
    """
    if form == "json":
        return json.dumps([table.as_dict() for table in tables], indent=1)
    if form not in FORMS:
        raise unknown("kind of table", form, FORMATS)
    texts = [FORMS[form](table).rstrip() for table in tables]
    if form == "csv":
        return "\n".join([*texts[:1], *filter(None, (text.partition("\n")[2] for text in texts[1:]))])
    return "\n\n".join(texts)
