"""The loops that NumPy cannot express, compiled by numba and cached on disk.

Where the published code works in double precision, so do these, one operation at a time and in the same order: an image
of one colour sits exactly on the edge that the final truncation cuts at, and there one rounding decides a whole level.
That is also why none of them may be compiled with fast math.
"""

import numpy as np

from covshift.support.arrays import Array
from covshift.support.jit import kernel


@kernel
def level(value: float) -> np.uint8:
    """Return a value in [0, 1] as one of 256 levels: clipped, scaled and truncated, as published."""
    return np.uint8(np.int32(min(max(value, type(value)(0)), type(value)(1)) * type(value)(255)))


@kernel
def quantise(values: Array, out: Array) -> None:
    """Apply `level` to a whole array, into a uint8 array of the same shape."""
    flat, target = values.reshape(-1), out.reshape(-1)
    for i in range(flat.size):
        target[i] = level(flat[i])
