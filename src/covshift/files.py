"""Writing files so that nobody ever sees half of one."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from covshift.errors import CovshiftError


@contextmanager
def replacing(path: Path, writer: str = "") -> Iterator[Path]:
    """A file name to write to, which becomes `path` in one step when all went well.

    Args:
        path: the final name; its folder is made.
        writer: tells apart those who may write the same file at the same time. Without it the name is the same each
            time, and what a killed run left is overwritten by the next one.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with replacing(folder / "note.txt") as part:
    ...     _ = part.write_text("done")
    >>> [file.name for file in folder.iterdir()]
    ['note.txt']
    """
    part = path.with_name(f".part-{writer}{path.name}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield part
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise CovshiftError(f"cannot write {path}: {error.strerror or error}") from error
