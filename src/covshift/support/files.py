"""Writing files so that nobody ever sees half of one."""

import hashlib
import os
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

from covshift.support.errors import CovshiftError

LONGEST = 255
"""Bytes of a file name, on all usual file systems."""

_ADDED = 64
"""Bytes that the name of a temporary file may have more than that of the file."""


_PART = ".part"


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary file name, which becomes `path` in one step if the block succeeds; its folder is created.

    Processes and threads that write the same file at the same time do not disturb each other: the last one wins.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with replacing(folder / "note.txt") as part:
    ...     _ = part.write_text("done")
    >>> [file.name for file in folder.iterdir()]
    ['note.txt']
    """
    # Not a suffix of pictures: a killed run may leave the file behind, and nobody should read it as one.
    part = path.with_name(f".{_short(path.name)}.{os.getpid()}-{threading.get_ident()}{_PART}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield part
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise CovshiftError(f"cannot write {path}: {error.strerror or error}") from error


def write_behind(file: FileIO, content: bytes, end: int) -> None:
    """Write to an open file behind its first `end` bytes, safely on disk when this returns, or nothing at all.

    Args:
        file: the file, without a buffer, which would write what is left of the content when the file is closed.
        content: what to write.
        end: the number of bytes that count; those behind, of a process that was killed, are cut off.
    """
    if file.tell() > end:
        file.truncate(end)
    try:
        rest = content
        while rest:
            rest = rest[file.write(rest) :]
        os.fsync(file.fileno())
    except OSError:
        file.truncate(end)
        raise


def remove_parts(folder: Path, names: Collection[str]) -> None:
    """Remove what `replacing` has left of files in a folder when processes of this machine were killed.

    Args:
        folder: the folder, which may be missing.
        names: the names of the files, which no process of another machine is writing.
    """
    for part in folder.glob(f".*{_PART}"):
        name, _, writer = part.name.removeprefix(".").removesuffix(_PART).rpartition(".")
        if name in map(_short, names) and not _is_running(writer.partition("-")[0]):
            part.unlink(missing_ok=True)


def _is_running(process: str) -> bool:
    """Return whether there is a process of this number; where that cannot be asked for, there may be one."""
    if os.name != "posix" or not process.isdecimal():  # on Windows, os.kill would end it
        return True
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # it is another user's
    return True


def _short(name: str) -> str:
    """Return a name, or its digest where a temporary file could not be called after it."""
    content = os.fsencode(name)
    return name if len(content) + _ADDED <= LONGEST else hashlib.sha256(content).hexdigest()[:32]
