"""Proposition 1 of the paper: the expected error of normalisation if n images are mixed with a prior of N.

σ̄² = N/(N+n) σ_s² + n/(N+n) σ̂_t² and so for μ̄, where μ̂_t and σ̂_t² are the moments of n draws from the target. The
error is E[W₂²], the expected squared Wasserstein distance between μ̄, σ̄² and the true μ_t, σ_t². All but E[σ̄] in it has
a closed form; `bounds` bounds that one term, `expected` samples it.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from covshift.core.statistics import Statistics
from covshift.shift.distance import EPS, check_eps, seen_layers
from covshift.support.checks import check_dense, check_flags, check_seed
from covshift.support.errors import CovshiftError, is_number

Doubles = NDArray[np.float64]
Numbers = ArrayLike | torch.Tensor
_AT_ONCE = 1 << 22  # values sampled at a time


class Bounds(NamedTuple):
    """L ≤ E[W₂²] ≤ U."""

    lower: Doubles
    upper: Doubles


class Expectation(NamedTuple):
    """A Monte-Carlo estimate of E[W₂²] and its standard error."""

    value: Doubles
    error: Doubles


def bounds(
    n: Numbers,
    N: Numbers,
    mu_s: Numbers,
    var_s: Numbers,
    mu_t: Numbers,
    var_t: Numbers,
    alpha: float = 0.05,
    *,
    normalized: bool = False,
    eps: float = EPS,
) -> Bounds:
    """Return L and U of Proposition 1, for every channel on its own; sum over channels for the multivariate bounds.

    L holds always. U takes σ̄² to be above what it falls below with probability α/2.

    Args:
        n: images in a batch, from 1 to infinity. With n = 1 nothing is left to chance in σ̄, and U = L.
        N: the prior, from 0 to infinity.
        mu_s: mean of the source. This and all others are numbers, or arrays that broadcast.
        var_s: variance of the source.
        mu_t: mean of the target.
        var_t: variance of the target.
        alpha: 1 - the confidence level.
        normalized: divide by the variance of the source.
        eps: a smaller variance of the source counts as this one when it is divided by.

    >>> lower, upper = bounds(n=8, N=[0, 4, 16], mu_s=0, var_s=1, mu_t=1, var_t=1)
    >>> lower.round(3).tolist(), upper.round(3).tolist()
    ([0.129, 0.168, 0.459], [0.692, 0.243, 0.468])
    """
    from scipy.special import chdtri

    check_flags(normalized=normalized)
    check_eps(eps)
    if not is_number(alpha) or not 0 < alpha < 1:
        raise CovshiftError(f"expected alpha between 0 and 1, such as 0.05, got {alpha!r}")
    given = _check(n, N, mu_s, var_s, mu_t, var_t)
    n_, N_, _, var_s_, _, var_t_ = given
    lower = (np.sqrt(var_t_) - _typical(given)) ** 2 + _of_the_mean(given)
    # U - L = σ_t M V[σ̄²] with M = a^(-3/2)/4 as in the derivation, written so that tiny variances do not overflow.
    # An infinite n leaves nothing to chance; 2 stands in for it and for 1, where scipy knows no quantile.
    few = np.where((n_ > 1) & np.isfinite(n_), n_, 2)
    tail = chdtri(few - 1, 1 - alpha / 2)
    low = _times(N_, var_s_) + tail * var_t_
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(var_t_ > 0, var_t_ / low, 0)
    defect = var_t_ * (few - 1) / 2 * np.sqrt(1 / (N_ + few)) * ratio**1.5
    upper = lower + np.where((n_ > 1) & np.isfinite(n_), defect, 0)
    scale = np.maximum(var_s_, eps) if normalized else 1.0
    return Bounds((lower / scale)[()], (upper / scale)[()])


def expected(
    n: Numbers,
    N: Numbers,
    mu_s: Numbers,
    var_s: Numbers,
    mu_t: Numbers,
    var_t: Numbers,
    *,
    draws: int = 100_000,
    seed: int = 0,
    normalized: bool = False,
    eps: float = EPS,
) -> Expectation:
    """Return E[W₂²] by Monte Carlo; the same draws serve every N, so that curves over N are smooth.

    Args:
        n: images in a batch, from 1 to infinity.
        N: the prior, from 0 to infinity.
        mu_s: mean of the source.
        var_s: variance of the source.
        mu_t: mean of the target.
        var_t: variance of the target.
        draws: the number of batches to draw.
        seed: the seed of the draws.
        normalized: divide by the variance of the source.
        eps: a smaller variance of the source counts as this one when it is divided by.

    >>> value, error = expected(n=8, N=[0, 4, 16], mu_s=0, var_s=1, mu_t=1, var_t=1)
    >>> value.round(2).tolist()
    [0.19, 0.19, 0.46]
    """
    check_flags(normalized=normalized)
    check_eps(eps)
    check_seed(seed)
    if not is_number(draws, whole=True) or draws < 2:
        raise CovshiftError(f"expected at least 2 draws, got {draws!r}")
    given = _check(n, N, mu_s, var_s, mu_t, var_t)
    n_, N_, _, var_s_, _, var_t_ = given
    source, share = _weights(n_, N_)
    finite = np.where(np.isfinite(n_), n_, 1)
    rng, shape = np.random.default_rng(seed), np.broadcast_shapes(*(each.shape for each in given))
    # Sums of what lies around the value at the mean, where squares do not cancel.
    centre = (np.sqrt(var_t_) - _typical(given)) ** 2
    total, squares = np.zeros(shape), np.zeros(shape)
    at_once = max(1, _AT_ONCE // max(1, int(np.prod(shape))))
    for start in range(0, draws, at_once):
        size = (min(at_once, draws - start), *[1] * (len(shape) - n_.ndim), *n_.shape)
        # nσ̂²/σ² is χ² with n - 1 degrees of freedom.
        chance = np.where(np.isfinite(n_), share * 2 * rng.gamma((finite - 1) / 2, size=size), 1 - source)
        off = (np.sqrt(var_t_) - np.sqrt(source * var_s_ + chance * var_t_)) ** 2 - centre
        total, squares = total + off.sum(0), squares + (off**2).sum(0)
    mean = total / draws
    error = np.sqrt(np.maximum(squares / draws - mean**2, 0) / draws)
    scale = np.maximum(var_s_, eps) if normalized else 1.0
    return Expectation(((centre + mean + _of_the_mean(given)) / scale)[()], (error / scale)[()])


def layer_bounds(
    n: Numbers,
    N: Numbers,
    source: Statistics,
    target: Statistics,
    alpha: float = 0.05,
    *,
    normalized: bool = False,
) -> dict[str, Bounds]:
    """Return the multivariate bounds for every layer: summed over its channels, of the shape of n and N together.

    Layers that `target` has never seen are left out.

    >>> from covshift.core.moments import Moments
    >>> source, target = (
    ...     Statistics({"bn": Moments(8, 8, torch.full((4,), mean), torch.ones(4))}, "a model") for mean in (0.0, 1.0)
    ... )
    >>> layer_bounds(8, [0, 4, 16], source, target)["bn"].lower.round(3).tolist()
    [0.517, 0.674, 1.835]
    """
    images, prior = as_array(n, "n")[..., None], as_array(N, "N")[..., None]

    def of(path: str) -> Bounds:
        moments = (source[path].mean, source[path].var, target[path].mean, target[path].var)
        each = bounds(images, prior, *moments, alpha, normalized=normalized)
        return Bounds(each.lower.sum(-1), each.upper.sum(-1))

    return {path: of(path) for path in seen_layers(source, target)}


def _check(*numbers: Numbers) -> list[Doubles]:
    names = ("n", "N", "mu_s", "var_s", "mu_t", "var_t")
    arrays = [as_array(value, name) for value, name in zip(numbers, names, strict=True)]
    try:
        np.broadcast_shapes(*(each.shape for each in arrays))
    except ValueError:
        shapes = ", ".join(f"{name} {each.shape}" for name, each in zip(names, arrays, strict=True))
        raise CovshiftError(f"expected numbers, or arrays of shapes that fit each other, got {shapes}") from None
    n, N, _, var_s, _, var_t = arrays
    limits: list[tuple[Any, str]] = [
        (n >= 1, "n, images in a batch, from 1"),
        (N >= 0, "N, the prior, from 0"),
        (np.isfinite(n) | np.isfinite(N), "n or N to be finite"),
        ((n > 1) | (N > 0), "n from 2 where N is 0: a single value has no variance to normalise by"),
        ((var_s >= 0) & (var_t >= 0) & (var_s < np.inf) & (var_t < np.inf), "variances from 0, and finite"),
        (np.isfinite(arrays[2]) & np.isfinite(arrays[4]), "means that are finite"),
    ]
    for holds, wanted in limits:
        if not np.all(holds):
            got = ", ".join(f"{name} = {_brief(value)}" for name, value in zip(names, arrays, strict=True))
            raise CovshiftError(f"expected {wanted}; got {got}")
    return arrays


def as_array(value: Numbers, name: str) -> Doubles:
    """Return numbers as doubles, or raise an error that names them."""
    if isinstance(value, torch.Tensor):
        check_dense(value, name)
        value = value.detach().cpu()
    try:
        found = np.asarray(value)
        if found.dtype.kind not in "biuf":
            raise TypeError("no real numbers")
        return found.astype(np.float64)
    except (TypeError, ValueError):
        raise CovshiftError(f"expected {name} to be a number or an array, got {value!r}") from None


def _brief(value: Doubles) -> str:
    ends = dict.fromkeys(f"{end:g}" for end in (value.min(), value.max())) if value.size else ["nothing"]
    return " to ".join(ends)


def _weights(n: Doubles, N: Doubles) -> tuple[Doubles, Doubles]:
    """Return N/(N+n) and 1/(N+n), also where n or N is infinite."""
    with np.errstate(invalid="ignore"):
        return np.where(np.isinf(N), 1.0, N / (N + n)), 1 / (N + n)


def _times(N: Doubles, var: Doubles) -> Doubles:
    """Return N·σ², with ∞·0 = 0."""
    with np.errstate(invalid="ignore"):
        return np.where(var == 0, 0.0, N * var)


def _of_the_mean(given: list[Doubles]) -> Doubles:
    """Return E[(μ̄ - μ_t)²]: the bias that the source brings, and the noise of the batch."""
    n, N, mu_s, _, mu_t, var_t = given
    source, share = _weights(n, N)
    moved: Doubles = source**2 * (mu_t - mu_s) ** 2 + (1 - source) * share * var_t
    return moved


def _typical(given: list[Doubles]) -> Doubles:
    """Return √E[σ̄²]."""
    n, N, _, var_s, _, var_t = given
    source, share = _weights(n, N)
    root: Doubles = np.sqrt(source * var_s + np.maximum(1 - source - share, 0) * var_t)
    return root
