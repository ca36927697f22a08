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
    """A column with the number of steps per second."""

    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:.3g}/s" if task.speed else "", style="progress.data.speed")


@contextmanager
def progress_bar(title: str, total: float | None, *, enabled: bool = True) -> Iterator[Callable[[float], None]]:
    """Yield a function that advances the bar, which appears on a terminal's stderr after two seconds.

    >>> with progress_bar("counting", 3) as advance:
    ...     advance(1)
    """
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), _Rate(), TimeRemainingColumn())
    bar = Progress(*columns, console=console, transient=True, disable=not (enabled and console.is_terminal))
    task = bar.add_task(escape(printable(title)), total=total)
    begun = time.monotonic()
    started = False

    def advance(steps: float) -> None:
        nonlocal started
        bar.advance(task, steps)
        if not started and time.monotonic() - begun > _PATIENCE:
            bar.start()
            started = True

    try:
        yield advance
    finally:
        if started:
            bar.stop()
