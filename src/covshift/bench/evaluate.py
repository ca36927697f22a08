"""A condition and a method make a result: how many images the model gets wrong."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from covshift.bench.fold import Folding
from covshift.bench.methods import Method
from covshift.core.adapter import adapt
from covshift.core.calling import device_of, logits_of
from covshift.core.estimate import estimate
from covshift.core.policies import Batch, Stream
from covshift.core.statistics import Statistics
from covshift.data.condition import CLEAN, Condition
from covshift.data.selection import ImageBatch as Images
from covshift.data.selection import Selection, Shown
from covshift.models import Model
from covshift.support.errors import CovshiftError

TOP = 5


class Errors(NamedTuple):
    """How many images were shown, and how many the model got wrong."""

    images: int
    top1: int
    top5: int
    seconds: float


class Evaluator:
    """Evaluates one model on one selection of images; what methods can share in a condition, they share.

    Args:
        model: on its device, in eval mode.
        selection: the images.
        batch_size: how many images the model gets at once; a statistical batch may be smaller or larger.
        memory: bytes for batches that wait for each other, where a statistical batch is larger.
        advance: told how many more images have gone through the model.
    """

    def __init__(
        self,
        model: Model,
        selection: Selection,
        *,
        batch_size: int,
        memory: float | None = None,
        advance: Callable[[int], None] = lambda images: None,
    ) -> None:
        self.model = model
        self.selection = selection
        self.batch_size = batch_size
        self._memory = memory
        self._advance = advance
        self._folding = Folding(model.module)
        self._as_it_came: nn.Module | None = None
        self.device = device_of(model.module)

    def show(self, condition: Condition) -> Shown:
        """The images in a condition, for `run`."""
        return self.selection.show(condition)

    def run(self, shown: Shown, method: Method, target: Statistics | None = None) -> tuple[Errors, Statistics | None]:
        """Evaluate a method in a condition.

        Args:
            shown: the images of the condition.
            method: with N chosen.
            target: the statistics of the whole condition, if an earlier method came by them.

        Returns:
            The errors, and the statistics of the whole condition if this method came by them.
        """
        begun = time.perf_counter()
        score = Score(str(shown.condition), self._advance, self.selection.data.among)
        with torch.inference_mode():
            target = self._run(shown, method, target, score)
        if not score.images:
            raise CovshiftError(f"no image of {shown.condition} could be read: there is nothing to evaluate")
        return Errors(score.images, score.top1, score.top5, time.perf_counter() - begun), target

    def _run(self, shown: Shown, method: Method, target: Statistics | None, score: "Score") -> Statistics | None:
        if method.kind == "reverse":
            target = target or self._whole(shown.batches(self.batch_size), lambda labels, logits: None, 0)
            with _applied(target, self.model):
                self._frozen(self.show(CLEAN).batches(self.batch_size), score)
        elif method.kind == "stream":
            n = method.n or 1
            with adapt(self.model.module, Stream(method.prior or 0, method.decay, sync=shown.spread(n))):
                self._plain(shown.in_turn(n), score)
        elif method.kind == "none":
            self._as_it_came = self._frozen(shown.batches(self.batch_size), score, self._as_it_came)
        elif method.n is None:
            target = self._whole(shown.batches(self.batch_size), score.add, method.prior or 0)
        elif method.n > self.batch_size:
            for batches in shown.pieces(method.n, self.batch_size):
                self._whole(batches, score.add, method.prior or 0)
        else:
            size = self.batch_size // method.n * method.n
            policy = Batch(method.prior or 0, None if size == method.n else method.n, sync=False)
            with adapt(self.model.module, policy):
                self._plain(shown.batches(size), score)
        return target

    def _plain(self, batches: Iterator[Images], score: "Score") -> None:
        for batch in batches:
            score.add(batch.labels, self.model.module(self._input(batch)))

    def _frozen(self, batches: Iterator[Images], score: "Score", folded: nn.Module | None = None) -> nn.Module | None:
        """The same for a model whose statistics stay as they are: they are folded in, unless that was done before."""
        for batch in batches:
            images = self._input(batch)
            if folded is None:
                folded = self._folding.fold(images)
            score.add(batch.labels, folded(images))
        return folded

    def _whole(
        self, batches: Iterator[Images], collect: Callable[[np.ndarray, Tensor], None], prior: float
    ) -> Statistics:
        """One statistical batch of all images, however many batches they come in."""
        labels: list[np.ndarray] = []

        def inputs() -> Iterator[Tensor]:
            for batch in batches:
                labels.append(batch.labels)
                yield self._input(batch)

        return estimate(
            self.model.module,
            inputs(),
            prior=prior,
            memory=self._memory,
            collect=lambda position, logits: collect(labels[position], logits),
            progress=False,
        )

    def _input(self, batch: Images) -> Tensor:
        return self.model.preprocess.tensor(batch.images, self.device)


class Score:
    """Counts errors."""

    def __init__(self, condition: str, advance: Callable[[int], None], among: tuple[int, ...] | None = None) -> None:
        self.images = self.top1 = self.top5 = 0
        self._among = among
        self._condition = condition
        self._advance = advance

    def add(self, labels: np.ndarray, output: Any) -> None:
        """Count those of a batch, from what the model returned for it."""
        logits = logits_of(output)
        if not logits.isfinite().all():
            raise CovshiftError(
                f"the model's outputs in condition {self._condition} are NaN or infinite; check its weights"
            )
        logits = masked(logits, self._among)
        best = logits.topk(min(TOP, logits.shape[1])).indices.cpu()
        right = best == torch.from_numpy(labels).unsqueeze(1)
        self.images += len(labels)
        self.top1 += len(labels) - int(right[:, 0].sum())
        self.top5 += len(labels) - int(right.any(1).sum())
        self._advance(len(labels))


def masked(logits: Tensor, among: Sequence[int] | None) -> Tensor:
    """The logits where only these classes can be the answer, or all of them.

    >>> masked(torch.tensor([[3.0, 1.0, 2.0]]), [1, 2])
    tensor([[-inf, 1., 2.]])
    """
    if among is None:
        return logits
    classes = torch.tensor(among, device=logits.device)
    return torch.full_like(logits, -torch.inf).index_copy(1, classes, logits[:, classes])


@contextmanager
def _applied(target: Statistics, model: Model) -> Iterator[None]:
    source = Statistics.of(model.module)
    target.apply(model.module)
    try:
        yield
    finally:
        source.apply(model.module)
