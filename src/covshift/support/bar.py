"""What a progress bar looks like."""

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from covshift.support.errors import printable


class Bar:
    """A bar on stderr, where that is a terminal.

    Args:
        title: what is done.
        total: the number of steps; None if it is not known.
        done: how many of them are done already.
    """

    def __init__(self, title: str, total: float | None, done: float) -> None:
        console = Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), _Rate(), TimeRemainingColumn())
        self._progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._task = self._progress.add_task(escape(printable(title)), total=total)
        self._progress.advance(self._task, done)
        self._progress.start()

    def advance(self, steps: float) -> None:
        """Show that some more steps are done."""
        self._progress.advance(self._task, steps)

    def stop(self) -> None:
        """Remove the bar."""
        self._progress.stop()


class _Rate(ProgressColumn):
    """A column with the number of steps per second."""

    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:.3g}/s" if task.speed else "", style="progress.data.speed")
