"""Moments of activations by compiled code, which reads them once, where they are dense and on the CPU."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covshift.core.moments import Moments, measure, merge

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

    channels, like, positions = x.shape[1], _TYPES[x.dtype], x.numel() // (len(x) * x.shape[1])
    count = min(torch.get_num_threads(), len(x) if last else channels, 1 + x.numel() // _SMALL)
    edges = [(len(x) if last else channels) * i // count for i in range(count + 1)]
    mean, var = np.empty((count if last else 1, channels)), np.empty((count if last else 1, channels))

    def work(part: int) -> None:
        begin, end = edges[part], edges[part + 1]
        if last:  # each thread has rows of its own, of all channels
            rows = x[begin:end]
            measure_channels(rows.data_ptr(), (len(rows), positions), True, 0, channels, like, mean[part], var[part])
        else:
            measure_channels(x.data_ptr(), (len(x), positions), False, begin, end, like, mean[0], var[0])

    if count == 1:
        work(0)
    else:
        with ThreadPoolExecutor(count) as pool:
            list(pool.map(work, range(count)))
    sizes = [(edges[i + 1] - edges[i]) * positions for i in range(count)] if last else [len(x) * positions]
    parts = zip(sizes, torch.from_numpy(mean), torch.from_numpy(var), strict=True)
    return replace(reduce(merge, (Moments(size, 0, *moments) for size, *moments in parts)), images=images)


def _layout(x: Tensor) -> bool | None:
    """Return whether channels are last in memory, or second; None where separate operations do better."""
    if x.device.type != "cpu" or x.dtype not in _TYPES or type(x) is not Tensor or not x.numel():
        return None
    if x.is_contiguous() and x.ndim > 2:
        return False
    rows = x if x.ndim == 2 else x.movedim(1, -1)
    return True if rows.is_contiguous() else None
