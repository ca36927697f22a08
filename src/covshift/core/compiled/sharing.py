"""Compiled work on as many threads as torch uses."""

from collections.abc import Callable

import torch

from covshift.support.threads import in_pieces

_SMALL = 1 << 18  # values: with fewer, a second thread costs more than it saves


def share(work: Callable[[int, int], None], parts: int, values: int) -> None:
    """Have threads do some parts of a piece of work each, or this one all of them where that is quicker.

    Args:
        work: does the parts from one number to another, without the interpreter lock.
        parts: the number of parts.
        values: the number of values in all of them.
    """
    threads = torch.get_num_threads()
    in_pieces(work, parts, min(threads, 1 + values // _SMALL), threads)
