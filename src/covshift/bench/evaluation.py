"""`Evaluation`: the images of one condition, and a model whose errors are counted, for a method to work with."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from covshift.bench.fold import Folding
from covshift.bench.results.answers import Answers, in_steps
from covshift.core.calling import device_of, logits_of
from covshift.core.estimate import estimate
from covshift.core.source import Source
from covshift.core.statistics import Prior, Statistics
from covshift.data.selection import ConditionImages, ImageBatch, Truth
from covshift.models import Model
from covshift.support.ahead import made_ahead
from covshift.support.classes import restrict
from covshift.support.errors import CovshiftError

TOP = 5


class Score:
    """Counts errors, and keeps the answers."""

    def __init__(self, condition: str, advance: Callable[[int], None], among: tuple[int, ...] | None = None) -> None:
        self.images = self.top1 = self.top5 = 0
        self._among = among
        self._condition = condition
        self._advance = advance
        self._wrong: dict[int, np.ndarray] = {}  # by the place of the first image of a batch
        self._answers: list[Answers] = []

    def add(self, truth: Truth, output: Any, place: int | None = None) -> None:
        """Count the errors of a batch, from what the model returned for it.

        Args:
            truth: the classes of its images, and their indices.
            output: what the model returned.
            place: the number of images that come before it in their order; by default those that were added so far.
        """
        labels = truth.labels
        logits = logits_of(output)
        if not logits.isfinite().all():
            raise CovshiftError(
                f"the model's outputs in condition {self._condition} are NaN or infinite; check its weights"
            )
        logits = restrict(logits, self._among)
        values, places = logits.topk(min(TOP, logits.shape[1]))
        best = places.cpu()
        right = best == torch.from_numpy(labels).unsqueeze(1)
        self._wrong[self.images if place is None else place] = ~right[:, 0].numpy()
        self.images += len(labels)
        self.top1 += len(labels) - int(right[:, 0].sum())
        self.top5 += len(labels) - int(right.any(1).sum())
        if len(truth.indices) == len(labels):  # a method may show images that it made itself
            sure = (values[:, 0].float() - logits.float().logsumexp(1)).exp()
            self._answers.append(
                Answers(truth.indices, best[:, 0].numpy(), right.any(1).numpy(), in_steps(sure.cpu().numpy()))
            )
        self._advance(len(labels))

    def over_time(self, places: Sequence[int]) -> tuple[int, ...]:
        """Return the number of errors before the first of these places in the stream, then between each two."""
        wrong = np.concatenate([self._wrong[place] for place in sorted(self._wrong)])
        return tuple(int(part.sum()) for part in np.split(wrong, places))

    @property
    def answers(self) -> Answers | None:
        """The answers to all images so far; None where they are not known of each, or of one twice."""
        joined = Answers.join(self._answers) if self._answers else None
        known = joined is not None and len(np.unique(joined.indices)) == self.images == len(joined.indices)
        return joined if known else None

    def pool(self, scores: "Sequence[ScoreCounts]") -> None:
        """Take the counts and answers of all ranks, of which this one's are a part."""
        self.images, self.top1, self.top5 = (sum(column) for column in zip(*(each[:3] for each in scores), strict=True))
        self._answers = [each.answers for each in scores if each.answers is not None]

    @property
    def counts(self) -> "ScoreCounts":
        """What `pool` takes."""
        return ScoreCounts(self.images, self.top1, self.top5, self.answers)


class ScoreCounts(NamedTuple):
    """The number of images shown and of errors, and the answers; those of a rank that has shown none are None."""

    images: int
    top1: int
    top5: int
    answers: Answers | None


@dataclass
class Subject:
    """A model on its device, with what methods share over all conditions.

    Attributes:
        model: the model, on its device, in eval mode.
        memory: the number of bytes for batches that wait for each other, where a statistical batch exceeds a batch.
        source: what clean images look like inside of the model, for anchored methods.
    """

    model: Model
    memory: float | None = None
    source: Source | None = None
    _as_it_came: nn.Module | None = field(default=None, init=False)

    @cached_property
    def device(self) -> torch.device:
        """The device of the model's parameters."""
        return device_of(self.model.module)

    @cached_property
    def _folding(self) -> Folding:
        return Folding(self.model.module)

    def folded(self, images: Tensor, *, as_it_came: bool) -> nn.Module:
        """Return the model with the statistics that it has now folded into its convolutions.

        Args:
            images: a batch of the model's input, to check that the answers stay the same.
            as_it_came: whether the statistics are the model's own, so that folding is done once for all conditions.
        """
        if not as_it_came:
            return self._folding.fold(images)
        if self._as_it_came is None:
            self._as_it_came = self._folding.fold(images)
        return self._as_it_came

    def input(self, batch: ImageBatch) -> Tensor:
        """Return the model's input for a batch of images."""
        return self.model.preprocess.tensor(batch.images, self.device)


class Evaluation:
    """One condition for one method: its images, and ways to show them to the model, each of which counts errors.

    Attributes:
        model: the model, on its device, in eval mode.
        images: the images of the condition, to be taken in batches.
        clean: a function that returns the clean images.
        batch_size: the number of images that the model gets at once; a statistical batch may be smaller or larger.
        source: what clean images look like inside of the model, for `adapt`; None where no method of the run needs it.
        target: the statistics of the whole condition, once a method has estimated them.
    """

    def __init__(
        self,
        subject: Subject,
        images: ConditionImages,
        score: Score,
        *,
        clean: Callable[[], ConditionImages],
        batch_size: int,
        target: Statistics | None = None,
    ) -> None:
        self.model = subject.model
        self.images = images
        self.clean = clean
        self.batch_size = batch_size
        self.source = subject.source
        self.target = target
        self._subject = subject
        self._score = score

    def run(self, batches: Iterator[ImageBatch], answer: Callable[[Tensor], Any] | None = None) -> None:
        """Show batches to the model, one after the other, with whatever adapter is on it.

        Args:
            batches: the images.
            answer: a function that returns the answers in the model's place.
        """
        answer = answer or self.model.module
        for batch in made_ahead(batches, self._subject.device):
            self._score.add(batch.truth, answer(self._subject.input(batch)))

    def run_frozen(self, batches: Iterator[ImageBatch], *, as_it_came: bool = False) -> None:
        """Show batches to the model whose statistics stay as they are now, which saves time.

        Args:
            batches: the images.
            as_it_came: whether its statistics are those that it came with.
        """
        folded: nn.Module | None = None
        for batch in made_ahead(batches, self._subject.device):
            images = self._subject.input(batch)
            if folded is None:
                folded = self._subject.folded(images, as_it_came=as_it_came)
            self._score.add(batch.truth, folded(images))

    def run_whole(self, batches: Iterator[ImageBatch], prior: Prior, *, anchored: bool = False) -> Statistics:
        """Show batches to the model as one statistical batch, and return its statistics.

        Args:
            batches: the images.
            prior: N, the number of images that the source counts for; where anchored also "auto".
            anchored: whether to correct to the measured source.
        """
        return self._estimate(batches, prior, self._score.add, self.source if anchored else None)

    def estimate_target(self) -> Statistics:
        """Return the statistics of the whole condition, without counting errors; they are estimated once."""
        if self.target is None:
            self.target = self._estimate(self.images.batches(self.batch_size), 0, lambda truth, logits, place: None)
        return self.target

    @contextmanager
    def applied(self, statistics: Statistics) -> Iterator[None]:
        """Give the model these statistics for the length of a block."""
        source = Statistics.of(self.model.module)
        statistics.apply(self.model.module)
        try:
            yield
        finally:
            source.apply(self.model.module)

    def _estimate(
        self,
        batches: Iterator[ImageBatch],
        prior: Prior,
        collect: Callable[[Truth, Tensor, int], None],
        source: Source | None = None,
    ) -> Statistics:
        truths: list[Truth] = []
        places = [self._score.images]

        def inputs() -> Iterator[Tensor]:
            for batch in made_ahead(batches, self._subject.device):
                truths.append(batch.truth)
                places.append(places[-1] + len(batch.labels))
                yield self._subject.input(batch)

        return estimate(
            self.model.module,
            inputs(),
            source=source,
            prior=prior,
            memory=self._subject.memory,
            collect=lambda position, logits: collect(truths[position], logits, places[position]),
            progress=False,
        )
