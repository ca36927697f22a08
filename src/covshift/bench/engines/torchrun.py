"""One run on ranks of `torch.distributed`: `torchrun -m covshift bench run …` splits every statistical batch over them.

The first rank runs the engine and writes the rows; before each cell it tells the others which one is next, and all of
them do their part of it. Statistics are pooled by the core, and counts of errors added up.
"""

import itertools
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from covshift.bench.cells import Work
from covshift.bench.evaluate import ErrorCounts, Evaluator
from covshift.bench.evaluation import Evaluation, Score
from covshift.bench.methods import Method
from covshift.bench.plan import Cell
from covshift.core.ranks import has_ranks, least_of_ranks, sharing_failure
from covshift.core.statistics import Statistics
from covshift.data.condition import Condition
from covshift.data.selection import ConditionImages, ImageBatch, Selection
from covshift.support.errors import CovshiftError

_ALIGNED = 8  # images: batches are cut so that the paper's small statistical batches stay whole
_DONE, _FAILED = "done", "failed"


@contextmanager
def joined() -> Iterator[None]:
    """Join the ranks that torchrun has started for the length of a block; without torchrun, nothing happens."""
    several = int(os.environ.get("WORLD_SIZE", 1)) > 1
    if dist.is_initialized() or not (several and dist.is_torchelastic_launched()):
        yield
        return
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    # A rank that dies ends the others through torchrun; a cell that takes long does not.
    dist.init_process_group(backend, timeout=timedelta(hours=6))
    try:
        yield
    finally:
        dist.destroy_process_group()


def is_first() -> bool:
    """Return whether this process writes and prints; one without ranks does."""
    return not has_ranks() or dist.get_rank() == 0


def from_first(thing: Any) -> Any:
    """Return the first rank's `thing` on all ranks; without ranks, `thing` itself."""
    if not has_ranks():
        return thing
    box = [thing]
    dist.broadcast_object_list(box, src=0, device=torch.device("cpu"))
    return box[0]


def own_device(name: str) -> str:
    """Return the device of this rank, where a setting names only its kind."""
    on_gpu = name == "cuda" or (name == "auto" and torch.cuda.is_available())
    return f"cuda:{os.environ.get('LOCAL_RANK', 0)}" if has_ranks() and on_gpu else name


def check_alike(mine: Sequence[str]) -> None:
    """Raise a `CovshiftError`, on all ranks, unless all have opened the same."""
    everyone: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, list(mine))
    if any(theirs != list(mine) for theirs in everyone):
        raise CovshiftError("the ranks have opened other weights or images; they must be the same on every machine")


class Share(ConditionImages):
    """This rank's part of the images in a condition; which part that is depends on the size of the batches."""

    def __init__(self, selection: Selection, condition: Condition, room: float, rank: int, ranks: int) -> None:
        super().__init__(selection, condition, room)
        self._images = len(selection)
        self._rank, self._ranks = rank, ranks
        self._last: tuple[list[int], ConditionImages] | None = None

    def batches(self, size: int) -> Iterator[ImageBatch]:
        """Yield this rank's batches of `size`, which are dealt out to the ranks in turn."""
        return self._some(self._deal(range(self._images), size))

    def pieces(self, n: int, size: int) -> Iterator[Iterator[ImageBatch]]:
        """Yield this rank's part of every n images, in batches of up to `size`."""
        size = min(size, -(-n // self._ranks))
        mine = [self._deal(group, size) for group in _cut(range(self._images), n)]
        batches = self._some([piece for pieces in mine for piece in pieces])
        for pieces in mine:
            yield itertools.islice(batches, len(pieces))

    def spread(self, n: int) -> bool:
        """Return whether every rank gets an image of every n, also of those that are left over."""
        return min(n, self._images % n or n) >= self._ranks

    def in_turn(self, n: int) -> Iterator[ImageBatch]:
        """Yield this rank's part of every n images as a batch; if n is less than the ranks, the first one has all."""
        groups = list(_cut(range(self._images), n))
        if not self.spread(n):
            return self._some(groups if self._rank == 0 else [])
        first, last = self._rank, self._rank + 1
        return self._some([g[len(g) * first // self._ranks : len(g) * last // self._ranks] for g in groups])

    def _deal(self, places: range, size: int) -> list[range]:
        return list(_cut(places, size))[self._rank :: self._ranks]

    def _some(self, pieces: list[range]) -> Iterator[ImageBatch]:
        places = [place for piece in pieces for place in piece]
        if not places:
            return iter(())
        if self._last is None or self._last[0] != places:
            self._last = None  # before others are made
            self._last = places, ConditionImages(self._selection.part(places), self.condition, self._room)
        return self._last[1].in_sizes(map(len, pieces))


class RankEvaluator(Evaluator):
    """Evaluates this rank's part of every cell; the errors that it gives are those of all ranks."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.failed = False
        self._rank, self._ranks = dist.get_rank(), dist.get_world_size()
        each = -(-len(self.selection) // self._ranks)
        self.batch_size = min(self.batch_size, -(-each // _ALIGNED) * _ALIGNED)

    def images_in(self, condition: Condition) -> ConditionImages:
        """Return this rank's part of the images in a condition."""
        return Share(self.selection, condition, self.selection.room, self._rank, self._ranks)

    def run(
        self, images: ConditionImages, method: Method, target: Statistics | None = None
    ) -> tuple[ErrorCounts, Statistics | None]:
        """Evaluate a method in a condition, together with the other ranks; see `Evaluator`."""
        if self._rank == 0:
            from_first(Cell(images.condition, method))
        return super().run(images, method, target)

    def _run(self, method: Method, evaluation: Evaluation, score: Score) -> None:
        # In a stream that is spread the others wait for statistics, and would not hear: they end with this process.
        in_step = method.in_step(evaluation.images)
        try:
            with nullcontext() if in_step else sharing_failure(self.device):
                super()._run(method, evaluation, score)
            least_of_ranks(0, self.device)
        except Exception:
            self.failed = True
            raise
        mine = score.images
        everyone: list[Any] = [None] * self._ranks
        dist.all_gather_object(everyone, score.counts)
        score.pool(everyone)
        self._advance(score.images - mine)  # what the others have done


@contextmanager
def leading(work: Work) -> Iterator[None]:
    """Lead the other ranks for the length of a block, in which `work` is done, and end them with it."""
    try:
        yield
    except Exception:
        if not (isinstance(work.evaluator, RankEvaluator) and work.evaluator.failed):  # then all know already
            from_first(_FAILED)
        raise
    from_first(_DONE)


def follow(work: Work) -> None:
    """Compute the cells that the first rank names, until it is done; for the other ranks."""
    while isinstance(order := from_first(None), Cell):
        work.run(order)
    if order == _FAILED:
        raise CovshiftError("another rank failed; its error is in its own output")


def _cut(places: range, size: int) -> Iterator[range]:
    return (places[start : start + size] for start in range(0, len(places), size))
