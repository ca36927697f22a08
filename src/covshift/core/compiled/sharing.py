"""Compiled work on as many threads as torch uses."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise

import torch

from covshift.support.device import cores

_SMALL = 1 << 18  # values: with fewer, a second thread costs more than it saves


def share(work: Callable[[int, int], None], parts: int, values: int) -> None:
    """Have threads do some parts of a piece of work each, or this one all of them where that is quicker.

    Args:
        work: does the parts from one number to another, without the interpreter lock.
        parts: the number of parts.
        values: the number of values in all of them.
    """
    count = min(torch.get_num_threads(), parts, 1 + values // _SMALL)
    edges = [parts * i // count for i in range(count + 1)]
    others = [_helpers().submit(work, *part) for part in pairwise(edges[1:])]
    try:
        work(0, edges[1])
    finally:  # none may still work on the tensors when this returns
        failures = [other.exception() for other in others]
    for failure in failures:
        if failure is not None:
            raise failure


@cache
def _helpers() -> ThreadPoolExecutor:
    """Return threads that stay, since starting one takes as long as a small layer."""
    return ThreadPoolExecutor(max(1, cores() - 1), thread_name_prefix="covshift-share")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_helpers.cache_clear)  # threads do not survive a fork
