"""Ours beside the paper's, with the difference."""

import io
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from covshift.bench.results.store import Row
from covshift.reproduce.target import Target


class Line(NamedTuple):
    """One number twice, in per cent."""

    row: str
    column: str
    ours: float | None
    paper: float | None

    @property
    def difference(self) -> float | None:
        """How much more ours is."""
        return None if self.ours is None or self.paper is None else self.ours - self.paper


def compare(target: Target, rows: Mapping[str, list[Row]]) -> list[Line]:
    """The numbers of a target, from the rows of its runs."""
    return [
        Line(number.row, number.column, number.metric.of(rows.get(number.run, [])), number.paper)
        for number in target.numbers
    ]


def as_text(target: Target, lines: list[Line]) -> str:
    """For a terminal."""
    drawn = Table()
    for title in ("", "", "ours", "paper", "difference"):
        drawn.add_column(title, justify="right" if title else "left")
    before = ""
    for line in lines:
        label, before = ("" if line.row == before else line.row), line.row
        drawn.add_row(label, line.column, _cell(line.ours), _cell(line.paper), _cell(line.difference, signed=True))
    console = Console(file=io.StringIO(), width=160)
    console.print(drawn)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    title = f"{target.name}: {target.title}"
    return "\n".join([title, *(each.rstrip() for each in text.splitlines()), *([target.note] if target.note else [])])


def as_markdown(target: Target, lines: list[Line]) -> str:
    """For a page."""
    head = ["| | | ours | paper | difference |", "|---|---|---:|---:|---:|"]
    cells = [
        (line.row, line.column, _cell(line.ours), _cell(line.paper), _cell(line.difference, signed=True))
        for line in lines
    ]
    body = [f"| {' | '.join(each)} |" for each in cells]
    return "\n".join([f"**{target.name}: {target.title}**", "", *head, *body, "", target.note]).rstrip()


def as_json(target: Target, lines: list[Line]) -> dict[str, Any]:
    """For a program."""
    numbers = [line._asdict() | {"difference": line.difference} for line in lines]
    return {"name": target.name, "title": target.title, "note": target.note, "numbers": numbers}


def write(found: Sequence[tuple[Target, list[Line]]], kind: str) -> str:
    """All of them, as text, markdown or json."""
    if kind == "json":
        return json.dumps([as_json(*each) for each in found], indent=1)
    return "\n\n".join((as_markdown if kind == "markdown" else as_text)(*each) for each in found)


def _cell(value: float | None, *, signed: bool = False) -> str:
    return "" if value is None else f"{value:+.1f}" if signed else f"{value:.1f}"
