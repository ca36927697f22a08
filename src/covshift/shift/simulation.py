"""The prior that theory finds best, and the paper's simulation of how n, N and the shift play together."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np

from covshift.core.statistics import Statistics
from covshift.shift.theory import Doubles, Numbers, as_array, bounds, expected, layer_bounds
from covshift.support.checks import check_choice, check_flags
from covshift.support.errors import CovshiftError, is_number

Bound = Literal["lower", "upper"]
By = Bound | Literal["expected"]
_ROUNDS = 4  # each looks 16 times as closely
_DRAWS = 20_000


class Best(NamedTuple):
    """The prior N, from 0 to infinity, with the least error, and that error."""

    prior: float
    value: float


def best_prior(
    n: float,
    mu_s: Numbers,
    var_s: Numbers,
    mu_t: Numbers,
    var_t: Numbers,
    *,
    by: By = "lower",
    alpha: float = 0.05,
    normalized: bool = False,
) -> Best:
    """Return the one N for all channels given that makes the sum of their errors E[W₂²] least.

    Args:
        n: the number of images in a batch.
        mu_s: mean of the source; this and the next three are numbers, or arrays of channels.
        var_s: variance of the source.
        mu_t: mean of the target.
        var_t: variance of the target.
        by: the error to minimise: L or U of Proposition 1, or the expectation itself by Monte Carlo.
        alpha: 1 - the confidence level of U.
        normalized: divide every channel's error by the variance of its source.

    >>> prior, value = best_prior(8, mu_s=0, var_s=1, mu_t=1, var_t=1)
    >>> round(prior, 2)
    1.03
    >>> best_prior(8, mu_s=0, var_s=1, mu_t=0, var_t=1).prior  # no shift: keep the source
    inf
    """
    _check(by, (*get_args(Bound), "expected"))

    def error(priors: Doubles) -> Doubles:
        shift = (mu_s, var_s, mu_t, var_t)
        column = priors.reshape(-1, *[1] * max(np.ndim(each) for each in shift))
        if by == "expected":
            value = expected(n, column, *shift, draws=_DRAWS, normalized=normalized).value
        else:
            value = getattr(bounds(n, column, *shift, alpha, normalized=normalized), by)
        total: Doubles = value.reshape(len(priors), -1).sum(1)
        return total

    return _least(error, n)


def best_layer_prior(
    n: float,
    source: Statistics,
    target: Statistics,
    *,
    by: Bound = "lower",
    alpha: float = 0.05,
    normalized: bool = True,
) -> Best:
    """Return the one N for a whole model: the one with the least root of the bound, averaged over the layers.

    Args:
        n: the number of images in a batch.
        source: the statistics of the training data; `Statistics.of(model)`.
        target: the statistics of the target; `estimate(model, loader)`.
        by: the bound of Proposition 1 to minimise.
        alpha: 1 - the confidence level of U.
        normalized: divide every channel's bound by the variance of its source.
    """
    _check(by, get_args(Bound))
    check_flags(normalized=normalized)

    def error(priors: Doubles) -> Doubles:
        each = layer_bounds(n, priors, source, target, alpha, normalized=normalized)
        average: Doubles = np.mean([np.sqrt(getattr(bound, by)) for bound in each.values()], axis=0)
        return average

    return _least(error, n)


@dataclass(frozen=True)
class Simulation:
    """√L over shifts, ratios, batch sizes and priors.

    Attributes:
        shifts: (μ_t - μ_s)/σ_s.
        ratios: σ_t/σ_s.
        n: batch sizes.
        N: priors.
        lower: √L [shifts, ratios, n, N], in units of σ_s.
        upper: √U, in the same shape and unit.
        best: the N, of all numbers, that makes L least [shifts, ratios, n].
    """

    shifts: Doubles
    ratios: Doubles
    n: Doubles
    N: Doubles
    lower: Doubles
    upper: Doubles
    best: Doubles


def simulate(
    shifts: Sequence[float] = (0, 0.25, 0.5, 1, 2),
    ratios: Sequence[float] = (0.5, 0.75, 1, 1.5, 2),
    n: Sequence[float] = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512),
    N: Sequence[float] = (1, 2, 4, 8, 16, 32, 64, 128, 256),
    *,
    alpha: float = 0.05,
) -> Simulation:
    """Return the paper's simulation: one small picture of √L over n, a line for each N, for every (shift, ratio).

    >>> simulate(shifts=[0, 1], ratios=[1, 2], n=[1, 8]).lower.shape
    (2, 2, 2, 9)
    """
    given = {"shifts": shifts, "ratios": ratios, "n": n, "N": N}
    axes = [as_array(each, name) for name, each in given.items()]
    for axis, name in zip(axes, given, strict=True):
        if axis.ndim != 1 or not len(axis):
            raise CovshiftError(f"expected {name} to be a list of numbers, got shape {axis.shape}")
    mu, sigma, images, priors = np.ix_(*axes)
    lower, upper = bounds(images, priors, 0, 1, mu, sigma**2, alpha)
    best = [[[best_prior(k, 0, 1, m, s**2).prior for k in axes[2]] for s in axes[1]] for m in axes[0]]
    return Simulation(axes[0], axes[1], axes[2], axes[3], np.sqrt(lower), np.sqrt(upper), np.array(best))


def _least(error: Callable[[Doubles], Doubles], n: float) -> Best:
    """Search N from 0 to infinity in steps of two, then ever more finely around the best of these."""
    if not is_number(n):
        raise CovshiftError(f"expected n to be one number of images, got {n!r}")
    # Not at 0 for a single image, which cannot be normalised by itself; with all images, no prior is as good as any.
    ends = [0.0] if n == np.inf else [np.inf] if n <= 1 else [0.0, np.inf]
    priors = np.concatenate([ends, 2.0 ** np.arange(-10, 31)])
    values = error(priors)
    best = int(values.argmin())
    prior, value = float(priors[best]), float(values[best])
    if best < len(ends):
        return Best(prior, value)
    step = 1.0
    for _ in range(_ROUNDS):
        priors = prior * 2.0 ** np.linspace(-step, step, 33)
        values = error(priors)
        best = int(values.argmin())
        prior, value, step = float(priors[best]), float(values[best]), step / 16
    return Best(prior, value)


def _check(by: str, known: tuple[str, ...]) -> None:
    check_choice(by, "bound", known)
