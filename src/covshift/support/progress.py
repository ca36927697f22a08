"""A progress bar for whatever takes longer than two seconds."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from covshift.support.bar import Bar

_PATIENCE = 2.0  # seconds


@contextmanager
def progress_bar(title: str, total: float | None, *, enabled: bool = True) -> Iterator[Callable[[float], None]]:
    """Yield a function that advances the bar, which appears on a terminal's stderr after two seconds.

    >>> with progress_bar("counting", 3) as advance:
    ...     advance(1)
    """
    begun, done = time.monotonic(), 0.0
    bar: Bar | None = None

    def advance(steps: float) -> None:
        nonlocal done, bar
        done += steps
        if bar is not None:
            bar.advance(steps)
        elif enabled and time.monotonic() - begun > _PATIENCE:
            from covshift.support.bar import Bar  # its import takes a third of the time that torch's does

            bar = Bar(title, total, done)

    try:
        yield advance
    finally:
        if bar is not None:
            bar.stop()
