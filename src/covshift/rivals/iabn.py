"""IABN, instance-aware batch normalisation, without the training that NOTE does with it."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import softshrink

from covshift.core.places import NormLayer
from covshift.rivals.base import NormRival, Pair, Step
from covshift.support.checks import check_number


@dataclass(frozen=True)
class InstanceAwareNorm(NormRival):
    """IABN: an image's own statistics count only as far as they lie outside of what chance explains.

    With σ² the source variance and m positions, the mean of an image may differ by k·√(σ²/m) and its variance by
    k·σ²·√(2/(m-1)) from the source before the difference counts. Gong et al., NOTE: robust continual test-time
    adaptation against temporal correlation, 2022; there, the network is trained with this layer.

    Attributes:
        k: the number of standard errors that count as chance.
    """

    k: float = 4

    def __post_init__(self) -> None:
        check_number(self.k, "k", 0)

    def step(self, layer: NormLayer, kept: Pair | None, x: Tensor) -> Step:
        """Return the statistics of each image, drawn to the source; a single position has no variance to look at."""
        positions = x[0, 0].numel()
        if positions <= 1:
            return Step(Pair(layer.mean, layer.var))
        var, mean = torch.var_mean(x.flatten(2), 2)
        spread = layer.var + layer.eps
        near_mean = _shrink(mean - layer.mean, self.k * (spread / positions).sqrt())
        near_var = _shrink(var - layer.var, self.k * spread * (2 / (positions - 1)) ** 0.5)
        return Step(Pair(layer.mean + near_mean, (layer.var + near_var).clamp_min(0)))


def _shrink(difference: Tensor, by: Tensor) -> Tensor:
    """Return differences that are smaller by a bound of their channel, or 0 where they are within it."""
    return softshrink(difference / by, 1.0) * by
