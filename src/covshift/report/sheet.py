"""A table of the report, and what it looks like as HTML, CSV, LaTeX and Markdown: the same numbers everywhere."""

import csv
import io
import re
from collections.abc import Callable
from html import escape
from typing import NamedTuple

from covshift.bench.results.metrics import Rate
from covshift.report.difference import Difference


class Cell(NamedTuple):
    """What stands in a cell, as it is to be read, and its interval where it has one."""

    text: str
    low: str = ""
    high: str = ""
    strong: bool = False


class Sheet(NamedTuple):
    """A table.

    Attributes:
        name: of its files.
        title: one line.
        columns: their heads; the first is over the labels of the lines.
        lines: cells, as many as there are columns.
        notes: what a reader has to know.
        folded: whether the page shows it only when asked to.
    """

    name: str
    title: str
    columns: tuple[str, ...]
    lines: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()
    folded: bool = False


EMPTY = Cell("")


def percent(rate: Rate | None) -> Cell:
    """An error rate in per cent.

    >>> percent(Rate(0.5, 0.4038, 0.5962))
    Cell(text='50.0', low='40.4', high='59.6', strong=False)
    """
    if rate is None:
        return EMPTY
    value, low, high = (f"{100 * each:.1f}" for each in rate)
    return Cell(value, low, high)


def plain(value: float | None) -> Cell:
    """A share without an interval, such as mCE, in per cent."""
    return EMPTY if value is None else Cell(f"{100 * value:.1f}")


def change(found: Difference | None) -> Cell:
    """A change in points, with its sign, marked where its interval leaves out zero."""
    return Cell(signed(found.value), bound(found.low), bound(found.high), found.significant) if found else EMPTY


def signed(value: float) -> str:
    """A share as points with their sign.

    >>> signed(-0.123), signed(-0.0001)
    ('-12.3', '+0.0')
    """
    return f"{round(100 * value, 1) + 0.0:+.1f}"


def bound(value: float) -> str:
    """The end of an interval, with as many digits as it takes to see on which side of zero it is.

    >>> bound(-0.123), bound(-0.0001)
    ('-12.3', '-0.01')
    """
    digits = next((digits for digits in range(1, 5) if round(100 * value, digits)), 1)
    return f"{round(100 * value, digits) + 0.0:+.{digits}f}"


def as_html(sheet: Sheet) -> str:
    """For the page; the interval follows in small print."""
    words = _words(sheet)

    def cell(each: Cell, tag: str) -> str:
        text = f"<b>{escape(each.text)}</b>" if each.strong else escape(each.text)
        interval = f" <small>{escape(each.low)} to {escape(each.high)}</small>" if each.low != each.high else ""
        return f"<{tag}>{text}{interval}</{tag.split()[0]}>"

    head = "".join(
        f'<th scope="col"{_WORDS if left else ""}>{escape(name)}</th>'
        for name, left in zip(sheet.columns, words, strict=True)
    )
    body = "".join(
        "<tr>"
        + cell(line[0], 'th scope="row"')
        + "".join(cell(each, f"td{_WORDS if left else ''}") for each, left in zip(line[1:], words[1:], strict=True))
        + "</tr>\n"
        for line in sheet.lines
    )
    return f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody>\n</table>"


_WORDS = ' class="words"'


def _words(sheet: Sheet) -> list[bool]:
    """For each column, whether it has words, which begin at the left, and no numbers."""
    columns = [[line[place].text for line in sheet.lines] for place in range(len(sheet.columns))]
    return [any(texts) and not any(map(_number, texts)) for texts in columns]


def _number(text: str) -> bool:
    return text[:1].isdigit() or (text[:1] in "+-" and text[1:2].isdigit())


def as_csv(sheet: Sheet) -> str:
    """For programs; intervals have columns of their own."""
    wide = [any(line[place].low for line in sheet.lines) for place in range(len(sheet.columns))]
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(
        text
        for name, interval in zip(sheet.columns, wide, strict=True)
        for text in ([name, f"{name} low", f"{name} high"] if interval else [name])
    )
    for line in sheet.lines:
        writer.writerow(
            text
            for each, interval in zip(line, wide, strict=True)
            for text in ([each.text, each.low, each.high] if interval else [each.text])
        )
    return file.getvalue()


def markdown(text: str) -> str:
    r"""A text that Markdown shows as it is; some dialects know no backslash before `<`.

    >>> markdown("my_net <b>"), markdown("|Δ|")
    ('my\\_net &lt;b&gt;', '\\|Δ\\|')
    """
    return re.sub(r"([\\`*_\[|])", r"\\\1", escape(text, quote=False))


def as_markdown(sheet: Sheet) -> str:
    """For a README; the interval follows in small print."""

    def cell(each: Cell) -> str:
        text = markdown(each.text)
        text = f"**{text}**" if each.strong and text else text
        return f"{text} <sub>{each.low} to {each.high}</sub>" if each.low != each.high else text

    lines = [
        [markdown(name) for name in sheet.columns],
        ["---", *("---" if left else "---:" for left in _words(sheet)[1:])],
        *([cell(each) for each in line] for line in sheet.lines),
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


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


def as_latex(sheet: Sheet) -> str:
    """For a paper: a tabular with booktabs' rules; without intervals, for which a page has no room."""

    def text(value: str) -> str:
        return "".join(_LATEX.get(char, char) for char in value)

    def cell(each: Cell) -> str:
        if each.text[:1] in "+-" and each.text[1:].replace(".", "", 1).isdigit():
            return f"$\\mathbf{{{each.text}}}$" if each.strong else f"${each.text}$"
        return f"\\textbf{{{text(each.text)}}}" if each.strong and each.text else text(each.text)

    lines = [
        f"% {sheet.title}",
        f"\\begin{{tabular}}{{l{''.join('l' if left else 'r' for left in _words(sheet)[1:])}}}",
        "\\toprule",
        " & ".join(text(name) for name in sheet.columns) + " \\\\",
        "\\midrule",
        *(" & ".join(cell(each) for each in line) + " \\\\" for line in sheet.lines),
        "\\bottomrule",
        "\\end{tabular}",
    ]
    return "\n".join(lines) + "\n"


FORMATS: dict[str, Callable[[Sheet], str]] = {"csv": as_csv, "md": as_markdown, "tex": as_latex}
"""The files that a table is written to, by their ending."""
