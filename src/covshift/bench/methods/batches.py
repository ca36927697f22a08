"""Statistics of every n images: `batch`, and the paper's `partial` and `full`."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from covshift.bench.evaluation import Evaluation
from covshift.bench.methods.base import EXAMPLE, Method
from covshift.bench.methods.names import GRID_IMAGES, GRID_PRIORS, PARTIAL_IMAGES, PARTIAL_PRIOR
from covshift.core.adapter import adapt
from covshift.core.policies import Batch
from covshift.core.statistics import Prior
from covshift.support.errors import CovshiftError


@dataclass(frozen=True)
class BatchMethod(Method):
    """Statistics of every n images, with a prior of N.

    >>> BatchMethod(8, 16.0).name
    'batch:n=8,N=16'
    """

    can_be_anchored: ClassVar[bool] = True

    n: int | None = None
    prior: Prior | None = PARTIAL_PRIOR

    @classmethod
    def parse(cls, text: str, given: dict[str, str]) -> Self:
        """Return the method that a user has written; n is required."""
        method = super().parse(text, given)
        if method.n is None:
            raise CovshiftError(f"expected how many images, as in {EXAMPLE}, got {text!r}")
        return method

    def check(self, batch_size: int) -> None:
        """Raise a `CovshiftError` where layers would have to weigh a batch that never is in memory as a whole."""
        if self.prior == "auto" and (self.n is None or self.n > batch_size):
            images, more = ("all", "") if self.n is None else (str(self.n), f", or `batch_size={self.n}`")
            raise CovshiftError(
                f"{self.name} cannot choose N by itself for statistics of {images} images that come in batches of "
                f"{batch_size}; give a number as N{more}"
            )

    def run(self, on: Evaluation) -> None:
        """Adapt to every n images; as many statistical batches as fit share a compute batch."""
        self.check(on.batch_size)
        if self.n is None or self.n > on.batch_size:
            assert self.prior != "auto"
            pieces = on.images.pieces(self.n, on.batch_size) if self.n else [on.images.batches(on.batch_size)]
            for batches in pieces:
                on.run_whole(batches, self.prior or 0, anchored=self.anchored)
            return
        size = on.batch_size // self.n * self.n
        policy = Batch(self.prior or 0, None if size == self.n else self.n, sync=False)
        with adapt(on.model.module, policy, source=on.source if self.anchored else None):
            on.run(on.images.batches(size))


@dataclass(frozen=True)
class Partial(BatchMethod):
    """The paper's partial adaptation: n = 8, with the N that is best on the holdout corruptions."""

    n: int | None = PARTIAL_IMAGES
    prior: Prior | None = None

    @classmethod
    def takes(cls) -> dict[str, str]:
        """Return nothing: its N is a setting of the whole run."""
        return {}

    @property
    def needs_choice(self) -> bool:
        """Whether N is still to be chosen."""
        return self.prior is None

    def with_prior(self, prior: Prior) -> "Partial":
        """Return the same method with this N, where N is still to be chosen."""
        return replace(self, prior=prior) if self.needs_choice else self

    def candidates(self, priors: Sequence[float]) -> list[Method]:
        """Return `batch` with as many images and each of these N."""
        return [replace(batch(self.n or 1, prior), anchored=self.anchored) for prior in priors]


@dataclass(frozen=True)
class Full(Method):
    """The paper's full adaptation: statistics of the whole condition.

    Where it is anchored, every place goes as far as chance does not explain.
    """

    can_be_anchored: ClassVar[bool] = True

    prior: Prior | None = 0.0

    @classmethod
    def takes(cls) -> dict[str, str]:
        """Return nothing: it takes all images, and no prior."""
        return {}

    def run(self, on: Evaluation) -> None:
        """Adapt to all images of the condition as one statistical batch."""
        batches = on.images.batches(on.batch_size)
        if self.anchored:
            on.run_whole(batches, "auto", anchored=True)
        else:
            on.target = on.run_whole(batches, 0)


def batch(n: int, prior: Prior) -> BatchMethod:
    """Return the method that takes the statistics of every n images, with a prior of N.

    >>> batch(8, 16).name
    'batch:n=8,N=16'
    """
    return BatchMethod(n, prior)


def grid() -> list[BatchMethod]:
    """Return the table of the paper's appendix: n = 1 … 512 by N = 1 … 256."""
    return [batch(n, prior) for n in GRID_IMAGES for prior in GRID_PRIORS]
