"""Pieces of work for several threads, which are kept: to start them anew takes longer than a small piece."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise


def in_pieces(work: Callable[[int, int], None], parts: int, pieces: int, threads: int) -> None:
    """Have threads, of which the one that calls this is one, do a piece of work after another.

    Args:
        work: does the parts from one number to another, mostly without the interpreter lock.
        parts: the number of parts.
        pieces: the number of pieces to make of them; more than threads even out pieces that take longer than others.
        threads: the number of threads.

    >>> done = [0] * 10
    >>> in_pieces(lambda begin, end: done.__setitem__(slice(begin, end), [1] * (end - begin)), 10, 4, 2)
    >>> sum(done)
    10
    """
    pieces = min(pieces, parts)
    if min(pieces, threads) <= 1:
        work(0, parts)
        return
    own, *rest = pairwise(parts * i // pieces for i in range(pieces + 1))
    helpers = _helpers(os.getpid(), threads - 1)
    given = [(each, helpers.submit(work, *each)) for each in rest]
    try:
        work(*own)
        for each, future in given:
            if future.cancel():  # nobody has begun it
                work(*each)
    finally:
        # Waits for all that has begun, also after an error: it writes to memory of the caller's.
        errors = [future.exception() for _, future in given if not future.cancel()]
    for error in errors:
        if error is not None:
            raise error


@cache
def _helpers(process: int, count: int) -> ThreadPoolExecutor:
    """Return threads of this process that wait for work."""
    return ThreadPoolExecutor(count, "covshift")
