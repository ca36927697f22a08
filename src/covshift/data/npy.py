"""NumPy's files: arrays from npy and npz files, whose headers are not believed before the files have their size."""

import math
import zipfile
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from numpy.lib import format as npy
from numpy.typing import NDArray

from covshift.support.errors import CovshiftError
from covshift.support.memory import free_memory

_MOST_DEFLATED = 1032
"""Bytes that deflate can make of one."""


def read_npy(file: Path) -> NDArray[Any]:
    """Return an array, mapped from its file."""
    try:
        found = file.stat()
    except FileNotFoundError:
        raise CovshiftError(f"there is no file {file}") from None
    except (OSError, ValueError) as error:
        raise CovshiftError(f"cannot read the file {file} ({error})") from error
    return _mapped(file, (found.st_mtime_ns, found.st_size, found.st_ino))


@lru_cache(maxsize=32)
def _mapped(file: Path, version: tuple[int, ...]) -> NDArray[Any]:
    """Return an array; it is mapped anew when its file is another, which `version` tells."""
    try:
        return np.load(file, mmap_mode="r", allow_pickle=False)  # type: ignore[no-any-return]
    except Exception as error:  # NumPy lets through whatever a damaged header makes it hit upon
        raise CovshiftError(f"{file} is not a whole npy file ({_reason(error)})") from error


def read_npz(file: Path, names: Sequence[str], optional: Sequence[str] = ()) -> dict[str, NDArray[Any]]:
    """Return arrays of an npz file by their names; whatever else it holds is not read.

    Args:
        file: the npz file.
        names: the arrays that it must hold.
        optional: arrays that are read, too, where it holds them.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            held = [name.removesuffix(".npy") for name in archive.namelist()]
            if not set(names) <= set(held):
                wanted = " and ".join(map(repr, (*names, *optional)))
                raise CovshiftError(f"expected arrays {wanted} in {file}, got {', '.join(held) or 'nothing'}")
            members = {name: archive.getinfo(f"{name}.npy") for name in (*names, *optional) if name in held}
            for member in members.values():
                _check_size(archive, member, file)
            return {name: _read_member(archive, member) for name, member in members.items()}
    except CovshiftError:
        raise
    except FileNotFoundError:
        raise CovshiftError(f"there is no file {file}") from None
    except Exception as error:  # of zip, of its decoders or of NumPy: whatever a damaged file makes them hit upon
        raise CovshiftError(
            f"{file} is not a whole npz file ({_reason(error)}); for npy files: npz:IMAGES?labels=LABELS"
        ) from error


def _check_size(archive: zipfile.ZipFile, member: zipfile.ZipInfo, file: Path) -> None:
    """Raise an error unless an array's header declares what its file can hold, and memory has room for it."""
    size = member.file_size
    with archive.open(member) as stream:
        declared = _declared_size(stream)
    growth = {zipfile.ZIP_STORED: 1, zipfile.ZIP_DEFLATED: _MOST_DEFLATED}.get(member.compress_type)
    if declared != size or (growth and size > growth * member.compress_size):
        packed = f"{size:,} bytes, packed in {member.compress_size:,}"
        raise ValueError(f"{member.filename} declares {declared:,} bytes, but has {packed}")
    if size > (free := free_memory(torch.device("cpu"))):
        raise CovshiftError(
            f"expected arrays in {file} that fit into {free / 1e9:.1f} GB of free memory, got {member.filename} with "
            f"{size / 1e9:.1f} GB; save images and labels as npy files, which are not loaded as a whole: "
            "npz:IMAGES?labels=LABELS"
        )


def _declared_size(stream: IO[bytes]) -> int:
    """Return the number of bytes that an npy file has according to its header."""
    version = npy.read_magic(stream)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"it has version {version} of the npy format, which arrays of numbers do not need")
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, _, dtype = read(stream)
    if dtype.hasobject:
        raise ValueError("it holds Python objects, not numbers")
    if min(shape, default=0) < 0:
        raise ValueError(f"it has the shape {shape}")
    return stream.tell() + dtype.itemsize * math.prod(shape)


def _read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> NDArray[Any]:
    with archive.open(member) as stream:
        return npy.read_array(stream, allow_pickle=False)


def _reason(error: Exception) -> str:
    return str(error).split("\n")[0] or type(error).__name__
