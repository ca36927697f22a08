"""Writing and reading the safetensors files of covshift."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from covshift.support.errors import CovshiftError

_LENGTH = 8
"""Bytes of the number that a file begins with, the length of its header; and what the header is aligned to."""


def to_safetensors(tensors: dict[str, Tensor], metadata: dict[str, str]) -> bytes:
    """Return the content of a file, the same each time: safetensors itself writes the metadata in random order."""
    content = save(tensors, metadata)
    end = _LENGTH + int.from_bytes(content[:_LENGTH], "little")
    header = {**json.loads(content[_LENGTH:end]), "__metadata__": dict(sorted(metadata.items()))}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % _LENGTH)
    return len(text).to_bytes(_LENGTH, "little") + text + content[end:]


class TensorFile(NamedTuple):
    """An open safetensors file: its tensors, by `tensors.get_tensor(name)`, and its metadata."""

    tensors: Any
    metadata: dict[str, str]


@contextmanager
def reading(path: Path, form: str, what: str, *, again: str = "save it again") -> Iterator[TensorFile]:
    """Open a file for the length of a block; whatever is missing or damaged in it is one clear error.

    Args:
        path: the file.
        form: the format that its metadata must name, with the version.
        what: what the file holds, for errors.
        again: what to do where it is damaged, for errors.
    """
    if not path.is_file():
        raise CovshiftError(f"there is no {what} at {path}")
    try:
        with safe_open(path, framework="pt") as tensors:
            metadata = tensors.metadata() or {}
            if metadata.get("format") != form:
                raise CovshiftError(f"{path} is a safetensors file but not a {what} of this version")
            yield TensorFile(tensors, metadata)
    except (SafetensorError, OSError, LookupError, ValueError, TypeError, RecursionError) as error:
        raise CovshiftError(f"{path} is not a whole {what} ({error}); {again}") from error
