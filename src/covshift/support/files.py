"""Writing files so that nobody ever sees half of one."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from covshift.support.errors import CovshiftError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A file name to write to, which becomes `path`, whose folder is made, in one step when all went well.

    Processes and threads that write the same file at the same time do not meet: one of them comes last.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with replacing(folder / "note.txt") as part:
    ...     _ = part.write_text("done")
    >>> [file.name for file in folder.iterdir()]
    ['note.txt']
    """
    # No suffix that a reader of pictures would take for one, should a killed run leave it behind.
    part = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield part
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise CovshiftError(f"cannot write {path}: {error.strerror or error}") from error
