"""Fair timing on a noisy machine: contestants take turns in one process, and each is judged by its best turn."""

import time
from collections.abc import Callable, Mapping


def best_seconds(
    contestants: Mapping[str, Callable[[], object]], turns: int = 5, clock: Callable[[], float] = time.perf_counter
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
