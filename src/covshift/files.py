"""Writing files."""

import tempfile
from pathlib import Path

from covshift.errors import CovshiftError


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that nobody ever sees half of it under its final name."""
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=path.name, delete=False) as file:
            temporary = Path(file.name)
            try:
                file.write(content)
                file.close()
                temporary.replace(path)
            finally:
                temporary.unlink(missing_ok=True)
    except OSError as error:
        raise CovshiftError(f"cannot write {path}: {error.strerror}") from error
