"""The common form of the speed figures: a table for each subject, the goal beside each figure, and what falls short.

A benchmark script fills a `Subject` and calls `report`; `make speed` runs the scripts one after the other and ends with
`python benchmarks/subjects.py`, which lists the figures that miss their goals. Others can be added as one entry each.
"""

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

FILE = "COVSHIFT_SPEED"
"""The environment variable with the file that collects the figures of several scripts, one line each."""


@dataclass(frozen=True)
class Figure:
    """One measured number.

    Attributes:
        name: what was measured.
        value: the number.
        goal: the number to reach; None where the figure is shown only.
        higher: whether more is better.
        unit: the unit, which is printed behind number and goal.
    """

    name: str
    value: float
    goal: float | None = None
    higher: bool = False
    unit: str = "x"

    @property
    def is_short(self) -> bool:
        """Whether the figure misses its goal."""
        if self.goal is None:
            return False
        return self.value < self.goal if self.higher else self.value > self.goal

    def write(self, value: float) -> str:
        """Return a number with the unit."""
        return f"{value:.3g} {self.unit}"

    def row(self, width: int) -> str:
        """Return the figure as a line of its table."""
        goal = "" if self.goal is None else f"{'at least' if self.higher else 'at most'} {self.write(self.goal)}"
        return (
            f"{self.name:<{width}}{self.write(self.value):>14}{goal:>22}{'  short' if self.is_short else ''}".rstrip()
        )


@dataclass
class Subject:
    """Figures that belong together, in one table."""

    name: str
    figures: list[Figure] = field(default_factory=list)

    def add(self, name: str, value: float, goal: float | None = None, *, higher: bool = False, unit: str = "x") -> None:
        """Add a figure."""
        self.figures.append(Figure(name, value, goal, higher, unit))

    def table(self) -> str:
        """Return the table as text."""
        width = max((len(figure.name) for figure in self.figures), default=0) + 2
        head = f"{'':<{width}}{'measured':>14}{'goal':>22}"
        return "\n".join((f"\n{self.name}", head, *(figure.row(width) for figure in self.figures)))


def report(subject: Subject) -> None:
    """Print a subject's table, and append its figures to the file that `make speed` collects them in."""
    print(subject.table(), flush=True)
    if path := os.environ.get(FILE):
        with Path(path).open("a") as file:
            file.write(json.dumps(asdict(subject)) + "\n")


def collected(path: Path) -> list[Subject]:
    """Return the subjects that were reported to a file."""
    lines = path.read_text().splitlines() if path.exists() else []
    rows = map(json.loads, lines)
    return [Subject(row["name"], [Figure(**figure) for figure in row["figures"]]) for row in rows]


def shortfalls(subjects: Sequence[Subject]) -> str:
    """Return the closing list: how many figures have a goal, and those that miss theirs.

    >>> subject = Subject("Start")
    >>> subject.add("covshift --help", 0.5, 0.3, unit="s")
    >>> print(shortfalls([subject]))
    1 of 1 goals missed:
    - Start: covshift --help 0.5 s, goal 0.3 s
    """
    with_goals = [(subject, figure) for subject in subjects for figure in subject.figures if figure.goal is not None]
    missed = [(subject, figure) for subject, figure in with_goals if figure.is_short]
    lines = [
        f"- {subject.name}: {figure.name} {figure.write(figure.value)}, goal {figure.write(figure.goal or 0)}"
        for subject, figure in missed
    ]
    return "\n".join([f"{len(missed)} of {len(with_goals)} goals missed{':' if missed else ''}", *lines])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="file of the figures, one subject a line")
    print("\n" + shortfalls(collected(parser.parse_args().file)))
