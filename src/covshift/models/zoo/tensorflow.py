"""TensorFlow's checkpoints (`model.ckpt-37535.index` and its data), read without TensorFlow.

The index is a table sorted by name, in LevelDB's format: blocks of entries that share their keys' beginnings, an index
of the blocks, and a footer. Its values are small protocol buffers that say where a tensor's bytes are in the data.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covshift.support.errors import CovshiftError

_FOOTER = 48
_MAGIC = bytes.fromhex("57fb808b247547db")
_TYPES: dict[int, np.dtype[Any]] = {
    1: np.dtype("<f4"),
    2: np.dtype("<f8"),
    3: np.dtype("<i4"),
    9: np.dtype("<i8"),
    19: np.dtype("<f2"),
}


class Place(NamedTuple):
    """The place of a tensor in the data files, and the checksum of its bytes."""

    dtype: int
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    crc: int


def prefix_of(path: Path) -> Path:
    """Return the common prefix of a checkpoint's files, of which a user may name any.

    >>> prefix_of(Path("r50/model.ckpt-37535.data-00000-of-00001")).name
    'model.ckpt-37535'
    """
    for mark in (".index", ".meta", ".data-"):
        head, found, _ = path.name.rpartition(mark)
        if found:
            return path.with_name(head)
    return path


def is_tensorflow(path: Path) -> bool:
    """Return whether a path names a TensorFlow checkpoint."""
    return _index(path).is_file()


def list_tensors(path: Path) -> dict[str, Place]:
    """Return the tensors that a checkpoint lists, by name, without reading its data."""
    return _read_index(_index(path))[1]


def read_tensors(path: Path, wanted: Callable[[str], bool] = lambda name: True) -> dict[str, Tensor]:
    """Return the tensors of a checkpoint whose names are wanted.

    Raises:
        CovshiftError: if it is not a TensorFlow checkpoint, or bytes are missing or damaged.
    """
    shards, places = _read_index(_index(path))
    prefix, found = prefix_of(path), {}
    for name, place in places.items():
        if not wanted(name):
            continue
        if place.dtype not in _TYPES:
            raise CovshiftError(f"expected {name} in {prefix} to hold numbers, got TensorFlow's type {place.dtype}")
        data = prefix.with_name(f"{prefix.name}.data-{place.shard:05d}-of-{shards:05d}")
        found[name] = torch.from_numpy(_read(data, place, name))
    return found


def _index(path: Path) -> Path:
    prefix = prefix_of(path)
    return prefix.with_name(f"{prefix.name}.index")


def _read(data: Path, place: Place, name: str) -> NDArray[Any]:
    try:
        with data.open("rb") as file:
            file.seek(place.offset)
            content = file.read(place.size)
    except OSError as error:
        raise CovshiftError(f"cannot read {data}: {error.strerror or error}") from error
    if len(content) < place.size:
        raise CovshiftError(f"{data} ends before {name}; fetch it again")
    from covshift.models.zoo.crc32c import masked_crc32c  # numba takes a while to import

    if masked_crc32c(content) != place.crc:
        raise CovshiftError(f"{name} in {data} is damaged: its checksum is not that of the index; fetch it again")
    dtype = _TYPES[place.dtype]
    if np.prod(place.shape, dtype=np.int64) * dtype.itemsize != place.size:
        raise CovshiftError(f"expected {name} in {data} of shape {place.shape}, got {place.size} bytes")
    found: NDArray[Any] = np.frombuffer(bytearray(content), dtype).reshape(place.shape)
    return found


def _read_index(index: Path) -> tuple[int, dict[str, Place]]:
    """Return the number of data files, and all entries."""
    try:
        table = index.read_bytes()
    except OSError as error:
        raise CovshiftError(f"cannot read {index}: {error.strerror or error}") from error
    if len(table) < _FOOTER or table[-8:] != _MAGIC:
        raise CovshiftError(f"{index} is not a complete index of a TensorFlow checkpoint; fetch it again")
    try:
        _, place = _handle(table, len(table) - _FOOTER)
        handle, _ = _handle(table, place)
        entries = {
            key: value
            for _, where in _entries(_block(table, *handle))
            for key, value in _entries(_block(table, *_handle(where, 0)[0]))
        }
        header = dict(_fields(entries.pop(b"")))
        return int(header.get(1, 1)), {key.decode(): _place(value) for key, value in entries.items()}
    except (IndexError, KeyError, ValueError, TypeError) as error:
        raise CovshiftError(f"{index} is a damaged index of a TensorFlow checkpoint; fetch it again") from error


def _block(table: bytes, offset: int, size: int) -> bytes:
    from covshift.models.zoo.crc32c import masked_crc32c  # numba takes a while to import

    end = offset + size + 1  # a byte says whether it is compressed, which TensorFlow does not do
    if table[end - 1] or masked_crc32c(table[offset:end]) != int.from_bytes(table[end : end + 4], "little"):
        raise ValueError("damaged")
    return table[offset : offset + size]


def _entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of a block; the restart points at its end, which serve searching, are ignored."""
    end = len(block) - 4 - 4 * int.from_bytes(block[-4:], "little")
    at, key = 0, b""
    while at < end:
        shared, at = _varint(block, at)
        fresh, at = _varint(block, at)
        length, at = _varint(block, at)
        key = key[:shared] + block[at : at + fresh]
        at += fresh
        yield key, block[at : at + length]
        at += length


def _handle(buffer: bytes, at: int) -> tuple[tuple[int, int], int]:
    offset, at = _varint(buffer, at)
    size, at = _varint(buffer, at)
    return (offset, size), at


def _varint(buffer: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = buffer[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the fields of a protocol buffer: numbers of any kind, and bytes."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        kind = tag & 7
        if kind == 0:
            value, at = _varint(message, at)
            yield tag >> 3, value
            continue
        size, at = _varint(message, at) if kind == 2 else ({5: 4, 1: 8}[kind], at)
        content = message[at : at + size]
        at += size
        yield tag >> 3, content if kind == 2 else int.from_bytes(content, "little")


def _place(message: bytes) -> Place:
    found = dict(_fields(message))
    shape = found.get(2, b"")
    if not isinstance(shape, bytes):
        raise ValueError("damaged")
    sides = [dict(_fields(side)).get(1, 0) for field, side in _fields(shape) if field == 2 and isinstance(side, bytes)]
    numbers = [int(found.get(field, 0)) for field in (1, 3, 4, 5, 6)]
    return Place(numbers[0], tuple(int(side) for side in sides), *numbers[1:])
