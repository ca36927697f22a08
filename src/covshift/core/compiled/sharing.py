"""Compiled work on as many threads as torch uses."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch

_SMALL = 1 << 18  # values: with fewer, a second thread costs more than it saves


def share(work: Callable[[int, int], None], parts: int, values: int) -> None:
    """Have threads do some parts of a piece of work each, or this one all of them where that is quicker.

    Args:
        work: does the parts from one number to another, without the interpreter lock.
        parts: the number of parts.
        values: the number of values in all of them.
    """
    count = min(torch.get_num_threads(), parts, 1 + values // _SMALL)
    if count == 1:
        work(0, parts)
        return
    edges = [parts * i // count for i in range(count + 1)]
    with ThreadPoolExecutor(count) as pool:
        list(pool.map(work, edges[:-1], edges[1:]))
