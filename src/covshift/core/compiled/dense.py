"""Moments of activations by compiled code, which reads them once, where they are dense and on the CPU."""

from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covshift.core.compiled.sharing import share
from covshift.core.moments import Moments, measure, merge

_TYPES: dict[torch.dtype, NDArray[Any]] = {
    torch.float32: np.empty(0, np.float32),
    torch.float64: np.empty(0, np.float64),
}


def measure_dense(x: Tensor, images: int) -> Moments:
    """Return the moments of `x` [rows, channels, ...] in double precision, or what `measure` returns.

    >>> measure_dense(torch.tensor([[1.0], [3.0]]), 2).var
    tensor([1.], dtype=torch.float64)
    """
    last = _layout(x)
    if last is None:
        return measure(x, images)
    from covshift.core.compiled.group_kernels import measure_channels  # numba takes a while to import

    rows, channels = x.shape[0], x.shape[1]
    address, values, like = x.data_ptr(), x.numel(), _TYPES[x.dtype]
    row, positions = values // rows * x.element_size(), values // (rows * channels)
    of_rows: dict[int, Moments] = {}
    mean, var = np.empty(channels), np.empty(channels)

    def measure_rows(begin: int, end: int) -> None:
        middle, spread = np.empty(channels), np.empty(channels)
        some = (end - begin, positions)
        measure_channels(address + begin * row, some, True, 0, channels, like, middle, spread)
        of_rows[begin] = Moments(some[0] * positions, images, torch.from_numpy(middle), torch.from_numpy(spread))

    def measure_some_channels(begin: int, end: int) -> None:
        measure_channels(address, (rows, positions), False, begin, end, like, mean, var)

    if last:
        share(measure_rows, rows, values)
        parts = [of_rows[begin] for begin in sorted(of_rows)]
        return parts[0] if len(parts) == 1 else replace(reduce(merge, parts), images=images)
    share(measure_some_channels, channels, values)
    return Moments(rows * positions, images, torch.from_numpy(mean), torch.from_numpy(var))


def _layout(x: Tensor) -> bool | None:
    """Return whether channels are last in memory, or second; None where separate operations do better."""
    if x.device.type != "cpu" or x.dtype not in _TYPES or type(x) is not Tensor or not x.numel():
        return None
    if x.is_contiguous() and x.ndim > 2:
        return False
    rows = x if x.ndim == 2 else x.movedim(1, -1)
    return True if rows.is_contiguous() else None
