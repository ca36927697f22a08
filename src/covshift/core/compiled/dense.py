"""Moments of activations by compiled code, which reads them once, where they are dense and on the CPU."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covshift.core.moments import Moments, measure

_TYPES: dict[torch.dtype, NDArray[Any]] = {
    torch.float32: np.empty(0, np.float32),
    torch.float64: np.empty(0, np.float64),
}
_SMALL = 1 << 18  # values: with fewer, a second thread costs more than it saves


def measure_dense(x: Tensor, images: int) -> Moments:
    """Return the moments of `x` [rows, channels, ...] in double precision, or what `measure` returns.

    >>> measure_dense(torch.tensor([[1.0], [3.0]]), 2).var
    tensor([1.], dtype=torch.float64)
    """
    last = _layout(x)
    if last is None:
        return measure(x, images)
    from covshift.core.compiled.group_kernels import measure_channels  # numba takes a while to import

    channels, like = x.shape[1], _TYPES[x.dtype]
    mean, var = np.empty(channels), np.empty(channels)
    shape = (len(x), x.numel() // (len(x) * channels))

    def work(begin: int, end: int) -> None:
        measure_channels(x.data_ptr(), shape, last, begin, end, like, mean, var)

    count = 1 if last else min(torch.get_num_threads(), channels, 1 + x.numel() // _SMALL)
    if count == 1:
        work(0, channels)
    else:
        parts = [channels * i // count for i in range(count + 1)]
        with ThreadPoolExecutor(count) as pool:
            list(pool.map(work, parts[:-1], parts[1:]))
    return Moments(x.numel() // channels, images, torch.from_numpy(mean), torch.from_numpy(var))


def _layout(x: Tensor) -> bool | None:
    """Return whether channels are last in memory, or second; None where separate operations do better."""
    if x.device.type != "cpu" or x.dtype not in _TYPES or type(x) is not Tensor or not x.numel():
        return None
    if x.is_contiguous() and x.ndim > 2:
        return False
    # Sums over rows are not shared out over threads here, as they are in torch.
    rows = x if x.ndim == 2 else x.movedim(1, -1)
    return True if rows.is_contiguous() and torch.get_num_threads() == 1 else None
