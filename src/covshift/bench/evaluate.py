"""Evaluation of a method in a condition: the number of images that the model gets wrong."""

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from covshift.bench.evaluation import Evaluation, Score, Subject
from covshift.bench.methods import Method
from covshift.bench.results.answers import Answers
from covshift.core.source import Source
from covshift.core.statistics import Statistics
from covshift.data.condition import CLEAN, SEQUENCE, Condition
from covshift.data.selection import ConditionImages, Selection
from covshift.models import Model
from covshift.support.errors import CovshiftError


class ErrorCounts(NamedTuple):
    """The number of images shown to the model, the numbers that it got wrong, and its answers where they are known."""

    images: int
    top1: int
    top5: int
    seconds: float
    over_time: tuple[int, ...] | None = None
    answers: Answers | None = None


class Evaluator:
    """Evaluates one model on one selection of images; what methods can share in a condition, they share.

    Args:
        model: the model, on its device, in eval mode.
        selection: the images.
        batch_size: the number of images that the model gets at once; a statistical batch may be smaller or larger.
        memory: the number of bytes for batches that wait for each other, where a statistical batch is larger.
        cuts: the places in a sequence of conditions at which to count errors anew.
        source: what clean images look like inside of the model, for anchored methods.
        advance: called with the number of images that have just gone through the model.
    """

    def __init__(
        self,
        model: Model,
        selection: Selection,
        *,
        batch_size: int,
        memory: float | None = None,
        cuts: Sequence[int] = (),
        source: Source | None = None,
        advance: Callable[[int], None] = lambda images: None,
    ) -> None:
        self.model = model
        self.selection = selection
        self.batch_size = batch_size
        self.source = source
        self._advance = advance
        self._cuts = cuts
        self._subject = Subject(model, memory, source)
        self.device = self._subject.device

    def images_in(self, condition: Condition) -> ConditionImages:
        """Return the images in a condition, for `run`."""
        return self.selection.images_in(condition)

    def run(
        self, images: ConditionImages, method: Method, target: Statistics | None = None
    ) -> tuple[ErrorCounts, Statistics | None]:
        """Evaluate a method in a condition.

        Args:
            images: the images of the condition.
            method: the method, with N chosen.
            target: the statistics of the whole condition, if an earlier method has estimated them.

        Returns:
            The errors, and the statistics of the whole condition if this method has estimated them.
        """
        begun = time.perf_counter()
        score = Score(str(images.condition), self._advance, self.selection.data.among)
        evaluation = Evaluation(
            self._subject,
            images,
            score,
            clean=lambda: self.images_in(CLEAN),
            batch_size=self.batch_size,
            target=target,
        )
        with torch.inference_mode():
            self._run(method, evaluation, score)
        if not score.images:
            raise CovshiftError(f"no image of {images.condition} could be read: there is nothing to evaluate")
        if score.images > len(images):
            raise CovshiftError(
                f"method {method.name!r} has shown {score.images} images where there are {len(images)}; "
                "let it run each of them once"
            )
        seconds = time.perf_counter() - begun
        over_time = score.over_time(self._cuts) if images.condition == SEQUENCE else None
        counts = ErrorCounts(score.images, score.top1, score.top5, seconds, over_time, score.answers)
        return counts, evaluation.target

    def _run(self, method: Method, evaluation: Evaluation, score: Score) -> None:
        method.run(evaluation)
