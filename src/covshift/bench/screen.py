"""The progress of a run as a user sees it: a bar on a terminal, a line for each condition in a log file."""

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from covshift.support.errors import printable


class Screen:
    """Progress of a run on stderr.

    Args:
        enabled: whether anything is printed.
    """

    def __init__(self, enabled: bool = True) -> None:
        self._console = Console(stderr=True, quiet=not enabled, soft_wrap=True, highlight=False)
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[cells]} cells  {task.fields[rate]} images/s"),
            TimeRemainingColumn(),
        )
        self._bar = Progress(*columns, console=self._console, transient=True, disable=not self._console.is_terminal)
        self._task = self._bar.add_task("", total=None, cells="", rate="-")
        self._cells = self._done = 0
        self._per_cell = 1
        self._images = 0
        self._begun = time.monotonic()

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def say(self, text: str) -> None:
        """Print one line."""
        self._console.print(printable(text), markup=False)

    def begin(self, cells: int, done: int, images: int) -> None:
        """Begin with these numbers of cells, of cells that are done, and of images in a cell."""
        self._cells, self._done, self._per_cell, self._images = cells, done, images, 0
        self._begun = time.monotonic()
        self._bar.update(self._task, total=(cells - done) * images, cells=f"{done}/{cells}")

    def at(self, what: str) -> None:
        """Show the cell that is next."""
        self._bar.update(self._task, description=escape(printable(what)))

    def images(self, number: int) -> None:
        """Count images that have gone through the model."""
        self._images += number
        self._bar.update(self._task, advance=number, rate=f"{self._rate():.0f}")

    def cells_done(self, number: int) -> None:
        """Show the number of cells that are stored by now, by this process or another."""
        self._done = number
        self._bar.update(self._task, cells=f"{self._done}/{self._cells}")

    def condition_done(self, what: str) -> None:
        """Report that a condition is complete; in a log file, that is a line."""
        if not self._console.is_terminal:
            left = (self._cells - self._done) * self._per_cell / max(self._rate(), 1e-9)
            done = f"{self._done}/{self._cells} cells"
            self.say(f"{done}  {what}  {self._rate():.0f} images/s  {left // 60:.0f}:{left % 60:02.0f} left")

    def _rate(self) -> float:
        return self._images / max(time.monotonic() - self._begun, 1e-9)
