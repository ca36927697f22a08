"""Locks by which processes share a run folder."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from covshift.support.errors import CovshiftError

_PRESENT = 2**30  # the byte of the lock file that all who work in a folder share


class Lock:
    """A file whose bytes are locks; the system lets go of them when the process dies."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._opened: int | None = None

    @contextmanager
    def hold(self, byte: int, *, wait: bool = True) -> Iterator[bool]:
        """Hold one of the locks, and yield whether it could be had."""
        try:
            if self._opened is None:
                # Kept open: closing any handle of a file lets go of all locks that the process has on it.
                self._opened = os.open(self._file, os.O_RDWR | os.O_CREAT, 0o644)
            fcntl.lockf(self._opened, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB), 1, byte)
        except BlockingIOError:
            yield False
            return
        except OSError as error:
            raise CovshiftError(f"cannot lock {self._file}: {error.strerror or error}") from error
        try:
            yield True
        finally:
            fcntl.lockf(self._opened, fcntl.LOCK_UN, 1, byte)

    def enter(self) -> bool:
        """Count this process in for as long as it lives, and return whether it is the only one; call it with a lock."""
        assert self._opened is not None
        try:
            fcntl.lockf(self._opened, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _PRESENT)
            alone = True
        except BlockingIOError:
            alone = False
        fcntl.lockf(self._opened, fcntl.LOCK_SH, 1, _PRESENT)
        return alone


