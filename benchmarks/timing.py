"""Fair timing on a noisy machine: contestants take turns in one process, and each is judged by its best turn."""

import time
from collections.abc import Callable, Mapping

import torch

Clock = Callable[[], float]


def clock_for(threads: int) -> Clock:
    """Have torch use so many threads; return the clock to time them by.

    That is the CPU time of a single thread, which a busy machine stretches little. Several threads are meant to save
    wall time, which only a quiet machine can tell.
    """
    torch.set_num_threads(threads)
    return time.process_time if threads == 1 else time.perf_counter


def extent(threads: int) -> str:
    """What `clock_for` measures, for the title of a table."""
    return "CPU time of one thread" if threads == 1 else f"wall time of {threads} threads"


def best_seconds(
    contestants: Mapping[str, Callable[[], object]], turns: int = 5, clock: Clock = time.perf_counter
) -> dict[str, float]:
    """The best time of each contestant over `turns` interleaved turns, after one turn to warm up.

    Args:
        contestants: what is timed, by name.
        turns: the number of turns that count.
        clock: `time.process_time` for the CPU time of all threads, which a busy machine stretches less.
    """
    best = dict.fromkeys(contestants, float("inf"))
    for turn in range(turns + 1):
        for name, run in contestants.items():
            begun = clock()
            run()
            if turn:
                best[name] = min(best[name], clock() - begun)
    return best
