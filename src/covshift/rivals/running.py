"""Rules that average the statistics of batches: α-BN, RobustBN and TBR."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from covshift.core.moments import mean_var
from covshift.core.places import NormLayer
from covshift.rivals.base import NormRival, Pair, Step, check_share


@dataclass(frozen=True)
class AlphaNorm(NormRival):
    """α-BN: each batch by itself, with (1-α) source + α batch statistics, for single images.

    You et al., Test-time batch statistics calibration for covariate shift, 2021.

    Attributes:
        alpha: the weight of the batch.
    """

    usual_n: ClassVar[int] = 1

    alpha: float = 0.1

    def __post_init__(self) -> None:
        check_share(self.alpha, "alpha")

    def step(self, layer: NormLayer, kept: Pair | None, x: Tensor) -> Step:
        """Return a fixed mixture of the source and the batch."""
        return Step(_towards(Pair(layer.mean, layer.var), Pair(*mean_var(x)), self.alpha))


@dataclass(frozen=True)
class RobustNorm(NormRival):
    """RobustBN: an exponential average that begins with the source statistics, and is used as soon as it is updated.

    Yuan, Xie and Li, Robust test-time adaptation in dynamic scenarios (RoTTA), 2023.

    Attributes:
        alpha: the weight of the newest batch.
    """

    alpha: float = 0.05

    def __post_init__(self) -> None:
        check_share(self.alpha, "alpha")

    def step(self, layer: NormLayer, kept: Pair | None, x: Tensor) -> Step:
        """Return the average with this batch in it."""
        average = _towards(kept or Pair(layer.mean, layer.var), Pair(*mean_var(x)), self.alpha)
        return Step(average, average)


@dataclass(frozen=True)
class RenormalisedNorm(NormRival):
    """TBR: exponential averages of batch means and standard deviations that begin with the first batch.

    A batch is normalised by the averages from before it. Zhao, Chen and Xia, DELTA: degradation-free fully test-time
    adaptation, 2023.

    Attributes:
        momentum: the weight of what came before the newest batch.
    """

    momentum: float = 0.95

    def __post_init__(self) -> None:
        check_share(self.momentum, "momentum")

    def step(self, layer: NormLayer, kept: Pair | None, x: Tensor) -> Step:
        """Return the averages from before this batch; the first batch is normalised by itself."""
        mean, var = mean_var(x)
        batch = Pair(mean, (var + layer.eps).sqrt())  # kept as a standard deviation, as the rule averages that
        before = kept or batch
        use = Pair(before.mean, before.var.square() - layer.eps)
        return Step(use, _towards(before, batch, 1 - self.momentum))


def _towards(before: Pair, batch: Pair, weight: float) -> Pair:
    mean, var = (torch.lerp(old.to(new), new, weight) for old, new in zip(before, batch, strict=True))
    return Pair(mean, var)
