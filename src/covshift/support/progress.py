"""A progress bar for whatever takes longer than two seconds."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from covshift.support.errors import printable

_PATIENCE = 2.0  # seconds


class _Rate(ProgressColumn):
    """Steps a second."""

    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:.3g}/s" if task.speed else "", style="progress.data.speed")


@contextmanager
def progress_bar(title: str, total: float | None, *, show: bool = True) -> Iterator[Callable[[float], None]]:
    """Give a function that moves the bar on; the bar appears on a terminal's stderr once the user has waited.

    >>> with progress_bar("counting", 3) as advance:
    ...     advance(1)
    """
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), _Rate(), TimeRemainingColumn())
    bar = Progress(*columns, console=console, transient=True, disable=not (show and console.is_terminal))
    task = bar.add_task(escape(printable(title)), total=total)
    begun = time.monotonic()
    shown = False

    def advance(steps: float) -> None:
        nonlocal shown
        bar.advance(task, steps)
        if not shown and time.monotonic() - begun > _PATIENCE:
            bar.start()
            shown = True

    try:
        yield advance
    finally:
        if shown:
            bar.stop()
