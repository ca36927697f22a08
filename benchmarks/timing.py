"""Fair timing on a noisy machine: contestants take turns in one process, and each is judged by its best turn."""

import time
from collections.abc import Callable, Mapping


def best_seconds(contestants: Mapping[str, Callable[[], object]], turns: int = 5) -> dict[str, float]:
    """The best time of each contestant over `turns` interleaved turns, after one turn to warm up."""
    best = dict.fromkeys(contestants, float("inf"))
    for turn in range(turns + 1):
        for name, run in contestants.items():
            begun = time.perf_counter()
            run()
            if turn:
                best[name] = min(best[name], time.perf_counter() - begun)
    return best
