"""Locks between processes, which the system releases when their holder dies.

Where there is `fcntl`, the bytes of one file are as many locks, so that processes share the work of a folder. Elsewhere
(Windows) the `filelock` package, which torch brings along, locks the folder as a whole, for one process at a time.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from covshift.support.errors import CovshiftError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_PRESENT = 2**30  # the byte of the lock file that all who work in a folder share


class Locks(Protocol):
    """The numbered locks of a folder."""

    @contextmanager
    def hold(self, number: int, *, wait: bool = True) -> Iterator[bool]:
        """Hold one of the locks for a block; yield whether it could be acquired."""

    def enter(self) -> bool:
        """Register this process for as long as it lives; return whether it is the only one. Hold a lock meanwhile."""

    def close(self) -> None:
        """Close the file, which releases all that this process holds of it."""


def locks(file: Path) -> Locks:
    """Return the numbered locks that live in a file, which is made when the first of them is taken."""
    return _OneWriter(file) if fcntl is None else _ByteLocks(file)


@contextmanager
def only_process(file: Path) -> Iterator[None]:
    """Wait until no other process is in this block with the same file; a process that dies releases its lock."""
    from filelock import FileLock  # not at import: it warns of systems that have no lock at all

    with FileLock(file):
        yield


class _ByteLocks:
    """A file whose bytes are locks."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._opened: int | None = None

    @contextmanager
    def hold(self, number: int, *, wait: bool = True) -> Iterator[bool]:
        try:
            if self._opened is None:
                # Kept open: closing any handle of a file releases all locks that the process has on it.
                self._opened = os.open(self._file, os.O_RDWR | os.O_CREAT, 0o644)
            fcntl.lockf(self._opened, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB), 1, number)
        except BlockingIOError:
            yield False
            return
        except OSError as error:
            raise CovshiftError(f"cannot lock {self._file}: {error.strerror or error}") from error
        try:
            self._check_there(self._opened)
            yield True
        finally:
            fcntl.lockf(self._opened, fcntl.LOCK_UN, 1, number)

    def _check_there(self, opened: int) -> None:
        """Raise a `CovshiftError` where the file is gone or another one: others would then hold other locks."""
        try:
            there = os.path.samestat(self._file.stat(), os.fstat(opened))
        except FileNotFoundError:
            there = False
        if not there:
            raise CovshiftError(
                f"{self._file}, or its folder, was deleted or replaced by something else while this process worked "
                "there, which therefore stops; run the same command again"
            )

    def enter(self) -> bool:
        assert self._opened is not None
        try:
            fcntl.lockf(self._opened, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _PRESENT)
            alone = True
        except BlockingIOError:
            alone = False
        fcntl.lockf(self._opened, fcntl.LOCK_SH, 1, _PRESENT)
        return alone

    def close(self) -> None:
        if self._opened is not None:
            os.close(self._opened)
            self._opened = None


class _OneWriter:
    """A file that is one lock: its holder has all numbers, until the last of its objects in this process is gone."""

    def __init__(self, file: Path) -> None:
        from filelock import FileLock

        self._file = file
        self._lock = FileLock(file, thread_local=False, is_singleton=True)

    @contextmanager
    def hold(self, number: int, *, wait: bool = True) -> Iterator[bool]:
        from filelock import Timeout

        try:
            if not self._lock.is_locked:
                self._lock.acquire(timeout=0)
        except Timeout:
            raise CovshiftError(
                f"expected one process at a time in {self._file.parent}, as this system has no locks (fcntl) "
                "for more; another process works there: wait until it ends, or compute shards, each in its own folder"
            ) from None
        except OSError as error:
            raise CovshiftError(f"cannot lock {self._file}: {error.strerror or error}") from error
        yield True

    def enter(self) -> bool:
        return True

    def close(self) -> None:
        self._lock.release(force=True)
