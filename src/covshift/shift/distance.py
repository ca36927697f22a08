"""Distances between the statistics of a source and of a target, layer by layer."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from covshift.core.moments import Moments, widen
from covshift.core.source import Source
from covshift.core.statistics import Statistics
from covshift.shift.covariance import Covariances, Gaussian
from covshift.support.checks import check_dense, check_flags, check_kind
from covshift.support.errors import CovshiftError, is_number

EPS = 1e-5  # what torch's layers add to a variance before they divide by it


@dataclass(frozen=True)
class Distance:
    """A distance for every layer, and their average, which is what the paper's figures show.

    Attributes:
        layers: the distance of each layer, by path.
    """

    layers: Mapping[str, float]

    @property
    def average(self) -> float:
        """The average over the layers; 0 without any."""
        return sum(self.layers.values()) / max(1, len(self.layers))

    def __float__(self) -> float:
        return self.average


def wasserstein(
    source: Statistics | Source | Covariances,
    target: Statistics | Covariances,
    *,
    normalized: bool = False,
    eps: float = EPS,
) -> Distance:
    """Return the Wasserstein-2 distance W₂ between the two, taken as Gaussians; diagonal ones if they are `Statistics`.

    A layer's distance is the root of the sum over its channels. Layers that `target` has never seen are left out.

    Args:
        source: the statistics of the source: `Statistics.of(model)` or, of any network, `Source.measure(model, clean)`.
        target: the statistics of the target: `estimate(model, loader)`, with `source=` where that was measured. For
            full covariances, pass `covariances`.
        normalized: divide every channel by its standard deviation in the source, so that no layer counts for more
            because its numbers are larger.
        eps: a smaller variance of the source counts as this one when it is divided by, as it does in the layer itself.

    >>> from covshift.core.moments import Moments
    >>> source, target = (
    ...     Statistics({"bn": Moments(8, 8, torch.tensor([mean]), torch.tensor([var]))}, "a model")
    ...     for mean, var in ((0.0, 4.0), (6.0, 16.0))
    ... )
    >>> wasserstein(source, target).layers  # √(6² + (4 - 2)²)
    {'bn': 6.324555320336759}
    >>> wasserstein(source, target, normalized=True).average
    3.1622776601683795
    """
    check_eps(eps)
    check_flags(normalized=normalized)
    if isinstance(source, Covariances) and isinstance(target, Covariances):
        source.check_same_layers(target)
        return Distance({path: _full(source[path], target[path], normalized, eps).item() for path in source})

    def between(mean_s: Tensor, var_s: Tensor, mean_t: Tensor, var_t: Tensor) -> Tensor:
        squares = (mean_s - mean_t).square() + (var_s.sqrt() - var_t.sqrt()).square()
        return (_divide(squares, var_s.clamp(min=eps)) if normalized else squares).sum().sqrt()

    return _by_layer(source, target, between)


def jeffrey(source: Statistics | Source, target: Statistics, *, eps: float = EPS) -> Distance:
    """Return the Jeffrey divergence: the mean of both Kullback-Leibler divergences between diagonal Gaussians.

    A layer's divergence is the sum over its channels.

    Args:
        source: the statistics of the source, as for `wasserstein`.
        target: the statistics of the target, as for `wasserstein`.
        eps: a smaller variance, of either, counts as this one.
    """
    check_eps(eps)

    def between(mean_s: Tensor, var_s: Tensor, mean_t: Tensor, var_t: Tensor) -> Tensor:
        var_s, var_t = var_s.clamp(min=eps), var_t.clamp(min=eps)
        # σ_s²/σ_t² + σ_t²/σ_s² - 2 is (σ_s² - σ_t²)²/(σ_s² σ_t²), which loses no digits where the two are near.
        spread = _divide(_divide((var_s - var_t).square(), var_s), var_t)
        delta = (mean_s - mean_t).square()
        return (spread + _divide(delta, var_s) + _divide(delta, var_t)).sum() / 4

    return _by_layer(source, target, between)


def gaussian(mean_s: Tensor, cov_s: Tensor, mean_t: Tensor, cov_t: Tensor) -> Tensor:
    """Return W₂ between two Gaussians with full covariances [channels, channels], in double precision.

    >>> eye = torch.eye(2)
    >>> gaussian(torch.zeros(2), eye, torch.tensor([3.0, 0.0]), 25 * eye)  # √(3² + 2·(5 - 1)²)
    tensor(6.4031, dtype=torch.float64)
    """
    for name, value in {"mean_s": mean_s, "cov_s": cov_s, "mean_t": mean_t, "cov_t": cov_t}.items():
        check_kind(value, Tensor, name, "a tensor")
        check_dense(value, name)
    channels = mean_s.numel()
    for mean, cov in ((mean_s, cov_s), (mean_t, cov_t)):
        if mean.shape != (channels,) or cov.shape != (channels, channels):
            raise CovshiftError(
                f"expected means [{channels}] and covariances [{channels}, {channels}], "
                f"got {list(mean.shape)} and {list(cov.shape)}"
            )
    # tr(Σ_s + Σ_t - 2(Σ_t^½ Σ_s Σ_t^½)^½) is the least ‖Σ_s^½ - Σ_t^½ U‖² over rotations U. The difference of traces
    # would cancel down to √(machine precision) where the two are near; this does not.
    root_s, root_t = _root(cov_s), _root(cov_t)
    left, _, right = torch.linalg.svd(root_t @ root_s)
    spread = root_s - root_t @ (left @ right)
    return torch.cat([spread.flatten(), widen(mean_s) - widen(mean_t)]).square().sum().sqrt()


def _full(source: Gaussian, target: Gaussian, normalized: bool, eps: float) -> Tensor:
    scale = source.cov.diagonal().clamp(min=eps).rsqrt() if normalized else torch.ones_like(source.mean)
    both = scale.outer(scale)
    return gaussian(source.mean * scale, source.cov * both, target.mean * scale, target.cov * both)


def _root(cov: Tensor) -> Tensor:
    values, vectors = torch.linalg.eigh(widen(cov))
    scaled = vectors * values.clamp(min=0).sqrt()
    return torch.matmul(scaled, vectors.T)


def _divide(a: Tensor, b: Tensor) -> Tensor:
    """Divide, with 0 / 0 = 0: a channel that is constant in source and target has not moved."""
    return torch.where(a == 0, a, a / b)


def held(source: object) -> object:
    """Return the statistics of a `Source`; anything else as it is."""
    return source.statistics if isinstance(source, Source) else source


def seen_layers(source: object, target: object) -> list[str]:
    """Return the layers that the target has reached; raise if there are none, or if the two do not belong together."""
    if not isinstance(source, Statistics) or not isinstance(target, Statistics):
        raise CovshiftError(f"expected two Statistics, got {type(source).__name__} and {type(target).__name__}")
    source.check_same_layers(target)
    seen = [path for path, moments in target.items() if moments.count]
    if not seen:
        raise CovshiftError(
            "the target has seen no images; measure it with covshift.estimate(model, loader) "
            "(what a model holds, Statistics.of(model), can be the source)"
        )
    return seen


def _by_layer(source: Any, target: Any, between: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]) -> Distance:
    def wide(moments: Moments) -> tuple[Tensor, Tensor]:
        return widen(moments.mean).cpu(), widen(moments.var).cpu()

    source = held(source)
    seen = seen_layers(source, target)
    return Distance({path: between(*wide(source[path]), *wide(target[path])).item() for path in seen})


def check_eps(eps: float) -> None:
    """Raise a `CovshiftError` unless this can be the least variance that is divided by."""
    if not is_number(eps) or not eps >= 0:
        raise CovshiftError(f"expected eps to be a variance from 0, got {eps!r}")
