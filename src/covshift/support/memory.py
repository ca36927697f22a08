"""Amounts of memory: as a user writes them, and as a device has them free."""

import mmap
import re
from pathlib import Path

import torch

from covshift.support.errors import CovshiftError, is_number

_SMALL_MACHINE = 8 * 2**30  # bytes, where the machine does not report its memory


def parse_bytes(size: float | str) -> float:
    """Return the number of bytes that a number, or a text such as "4 GiB", stands for.

    >>> parse_bytes("1.5 GiB"), parse_bytes("200MB")
    (1610612736.0, 200000000.0)
    """
    if isinstance(size, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(i?)B?\s*", size, re.IGNORECASE)
        base = 1024.0 if match and match[3] else 1000.0
        number = float(match[1]) * base ** " KMGT".index(match[2].upper() or " ") if match else 0.0
    else:
        number = float(size) if is_number(size) else 0.0
    if not number > 0:
        raise CovshiftError(f"expected a number of bytes above 0, such as '4 GiB', got {size!r}")
    return number


def free_memory(device: torch.device) -> float:
    """Return the number of bytes that the device, or for a CPU the machine, has free."""
    if device.type == "cuda":
        return float(torch.cuda.mem_get_info(device)[0])
    try:
        available = re.search(r"MemAvailable:\s*(\d+) kB", Path("/proc/meminfo").read_text())
        return int(available[1]) * 1024 if available else _SMALL_MACHINE
    except OSError:
        return _SMALL_MACHINE


def resident_memory() -> int | None:
    """Return the number of bytes that this process has in memory; None where the system does not report it."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE
    except (OSError, ValueError, IndexError):
        return None
