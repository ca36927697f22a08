"""One training loop: a step follows from the weights before it, the seed and its number, so a run can be resumed."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
from torch import nn

from covshift.support.arrays import Array
from covshift.training.feed import Feed, TrainingBatch
from covshift.training.mixup import mixup
from covshift.training.recipe import Recipe
from covshift.training.state import Epoch, TrainingRun, steps_per_epoch

EVERY = 120.0
"""Seconds between checkpoints."""


class Trained(NamedTuple):
    """A network, whether its training is complete, and its history."""

    network: nn.Module
    done: bool
    history: list[Epoch]


def train(
    recipe: Recipe,
    feed: Feed,
    folder: Path,
    *,
    seed: int = 0,
    device: str = "cpu",
    stop: Callable[[], bool] = lambda: False,
    report: Callable[[Epoch], None] = lambda epoch: None,
    advance: Callable[[float], None] = lambda steps: None,
) -> Trained:
    """Train, or resume training, and keep a checkpoint in the folder.

    A run that was killed and resumed ends with the same weights as one that was not, on the same machine with the same
    number of threads.

    Args:
        recipe: The recipe: what to train and how.
        feed: The images.
        folder: The folder of the checkpoint; one of another recipe or seed is refused.
        seed: The seed of initial weights, order and augmentation.
        device: The device to compute on, e.g. "cuda", where a resumed run is the same up to the order of sums.
        stop: A function that is called after each step; if it returns True, a checkpoint is saved and training stops.
        report: A function that is called with the result of each epoch.
        advance: A function that is called with the number of steps just done.
    """
    run = TrainingRun(recipe, feed, folder, seed, device)
    advance(run.step)
    saved = begun = time.monotonic()
    for batch in _batches(recipe, feed, seed, run.step):
        run.learn(batch)
        advance(1)
        now = time.monotonic()
        run.seconds, begun = run.seconds + now - begun, now
        finished, stopping = run.step % run.steps_per_epoch == 0, stop()
        if finished:
            report(run.finish_epoch())
            begun = time.monotonic()
        if finished or stopping or now - saved > EVERY:
            run.save()
            saved = time.monotonic()
        if stopping:
            break
    return Trained(run.network, run.step == run.total, run.history)


def _batches(recipe: Recipe, feed: Feed, seed: int, first: int) -> Iterator[TrainingBatch]:
    """Yield the batches from a step to the end; while one is learned from, a thread prepares the next."""
    steps = steps_per_epoch(recipe, feed)

    @lru_cache(maxsize=1)
    def order(epoch: int) -> Array:
        return np.random.default_rng([seed, epoch]).permutation(len(feed))

    def make(step: int) -> TrainingBatch:
        epoch, place = divmod(step, steps)
        indices = order(epoch)[place * recipe.batch : (place + 1) * recipe.batch]
        rng = np.random.default_rng([seed, epoch, place])
        batch = feed.train(indices, rng)
        return mixup(batch, feed.classes, rng) if recipe.augment == "mixup" else batch

    with ThreadPoolExecutor(1) as thread:
        remaining = iter(range(first, steps * recipe.epochs))
        coming = [thread.submit(make, step) for step in islice(remaining, 2)]
        while coming:
            batch = coming.pop(0).result()
            coming += [thread.submit(make, step) for step in islice(remaining, 1)]
            yield batch
