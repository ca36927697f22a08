"""Castagnoli's checksum, in the form in which TensorFlow stores it."""

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covshift.support.jit import kernel


def masked_crc32c(content: bytes) -> int:
    """Return the masked checksum of some bytes: rotated and shifted, since the data themselves may hold checksums.

    >>> hex(masked_crc32c(b"123456789"))
    '0xc78ab0e5'
    """
    crc = int(_crc32c(np.frombuffer(content, np.uint8), _table()))
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


@cache
def _table() -> NDArray[np.uint32]:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(0x82F63B78), table >> 1).astype(np.uint32)
    return table


@kernel
def _crc32c(content: NDArray[np.uint8], table: NDArray[np.uint32]) -> Any:
    crc = np.uint32(0xFFFFFFFF)
    for byte in content:
        crc = table[np.uint8(crc ^ np.uint32(byte))] ^ (crc >> np.uint32(8))
    return crc ^ np.uint32(0xFFFFFFFF)
