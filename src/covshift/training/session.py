"""One training from the images to weights and card, which Ctrl-C may end at any step and the same call resumes."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import torch

from covshift.data import cifar10
from covshift.support.errors import CovshiftError, Stopped
from covshift.support.progress import progress_bar
from covshift.training.card import export
from covshift.training.feed import ArrayFeed, Feed
from covshift.training.folder_feed import FolderFeed
from covshift.training.recipe import Recipe
from covshift.training.state import Epoch, steps_per_epoch
from covshift.training.train import train


def train_and_export(
    recipe: Recipe,
    folder: Path,
    *,
    data: Path | None,
    seed: int,
    device: str,
    threads: int | None,
    say: Callable[[str], None],
) -> str:
    """Train by a recipe, write weights and card, and return a one-line summary.

    Args:
        recipe: the recipe: what to train and how.
        folder: the folder for checkpoint, weights and card; an existing checkpoint is resumed.
        data: a folder with the images; None to fetch CIFAR-10.
        seed: the seed of initial weights, order and augmentation.
        device: the device to compute on: auto, cpu, cuda or mps.
        threads: number of threads for torch; None for its own choice.
        say: a function that is called with a line for each epoch.

    Raises:
        Stopped: after Ctrl-C or SIGTERM; what is kept is in the message.
    """
    if threads is not None:
        torch.set_num_threads(threads)
    try:
        feed = open_feed(recipe, data)
    except KeyboardInterrupt:
        raise Stopped("stopped before training; what is fetched is kept, and the same command resumes") from None
    steps = steps_per_epoch(recipe, feed) * recipe.epochs

    def report(row: Epoch) -> None:
        look = "" if row.test_error is None else f", test error {row.test_error:.2%}"
        speed = f"{len(feed) / row.seconds:.0f} images/s"
        say(f"epoch {row.epoch}/{recipe.epochs}: loss {row.loss:.4f}, train error {row.train_error:.2%}{look}, {speed}")

    with _interrupts() as stop, progress_bar(f"training {recipe.name}", steps) as advance:
        trained = train(recipe, feed, folder, seed=seed, device=device, stop=stop, report=report, advance=advance)
    if not trained.done:
        raise Stopped(f"stopped; the checkpoint is in {folder}, and the same command resumes from there")
    weights = export(trained.network, recipe, feed, seed, trained.history, folder)
    return f"{recipe.name}: clean error {trained.history[-1].test_error:.2%}, weights and card in {weights.parent}"


def open_feed(recipe: Recipe, data: Path | None) -> Feed:
    """Return the images of a recipe."""
    if recipe.data == "cifar10":
        return ArrayFeed(cifar10.load("train", data), cifar10.load("test", data), recipe.augment)
    if data is None:
        raise CovshiftError(f"{recipe.name} needs a folder with ImageNet's train/ and val/ as data, got none")
    return FolderFeed(data)


@contextmanager
def _interrupts() -> Iterator[Callable[[], bool]]:
    """Yield whether the user wants to stop, as a function.

    The first Ctrl-C or SIGTERM waits for the step to end, a second does not.
    """
    wanted = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield wanted.is_set
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def handle(number: int, frame: FrameType | None) -> None:
        wanted.set()
        signal.signal(number, before[signal.Signals(number)])

    for number in before:
        signal.signal(number, handle)
    try:
        yield wanted.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
