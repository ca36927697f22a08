"""Writing files."""

import os
from pathlib import Path

from covshift.errors import CovshiftError


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that nobody ever sees half of it under its final name."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        try:
            temporary.write_bytes(content)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise CovshiftError(f"cannot write {path}: {error.strerror}") from error
