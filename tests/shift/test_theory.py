"""Proposition 1: the bounds against brute force, and every limit that the paper takes."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from imagined import random_statistics, statistics, with_unreached
from scipy.stats import chi2

from covshift import CovshiftError
from covshift.shift import best_layer_prior, best_prior, bounds, expected, layer_bounds, simulate, wasserstein

LARGE = 1e12
SHIFTS = [(0.0, 1.0, 0.7, 2.5), (1.0, 4.0, -2.0, 0.3), (0.0, 1e-6, 1e-3, 1e-6), (2.0, 100.0, 2.0, 1.0)]


def brute_force(n, N, mu_s, var_s, mu_t, var_t, batches=200_000):
    """Draw batches, mix their moments with the source, and measure how far the result is from the target."""
    x = np.random.default_rng(0).normal(mu_t, np.sqrt(var_t), (batches, n))
    mean = (N * mu_s + n * x.mean(1)) / (N + n)
    var = (N * var_s + n * x.var(1)) / (N + n)
    each = (mean - mu_t) ** 2 + (np.sqrt(var) - np.sqrt(var_t)) ** 2
    return each.mean(), each.std() / np.sqrt(batches)


def proposition(n, N, mu_s, var_s, mu_t, var_t, alpha):
    """L and U as they stand in the proposition."""
    s_t = np.sqrt(var_t)
    lower = (s_t - np.sqrt(N / (N + n) * var_s + (n - 1) / (N + n) * var_t)) ** 2
    lower += N**2 / (N + n) ** 2 * (mu_t - mu_s) ** 2 + n / (N + n) ** 2 * var_t
    tail = N / (N + n) * var_s + chi2.ppf(alpha / 2, n - 1) * var_t / (N + n)
    return lower, lower + s_t**5 * (n - 1) / (2 * (N + n) ** 2) * tail**-1.5


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize(("n", "N"), [(2, 0), (2, 1), (3, 8.5), (8, 16), (64, 3)])
def test_bounds_are_those_of_the_proposition(n, N, shift):
    for alpha in (0.01, 0.05, 0.5):
        assert bounds(n, N, *shift, alpha) == pytest.approx(proposition(n, N, *shift, alpha), rel=1e-9)


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize(("n", "N"), [(1, 3), (2, 0), (8, 16), (20, 2)])
def test_expectation_is_that_of_drawn_batches(n, N, shift):
    want, error = brute_force(n, N, *shift)
    got = expected(n, N, *shift)
    assert abs(got.value - want) < 5 * (error + got.error) + 1e-9 * want


log = st.floats(-3, 3).map(lambda exponent: 10**exponent)


@settings(deadline=None, max_examples=200)
@given(
    n=st.one_of(st.integers(1, 6), st.floats(1, 500)),
    N=st.one_of(st.just(0.0), log),
    shift=st.tuples(st.floats(-10, 10), log, st.floats(-10, 10), log),
    alpha=st.floats(0.001, 0.5),
    normalized=st.booleans(),
)
def test_the_expectation_lies_between_the_bounds(n, N, shift, alpha, normalized):
    if n == 1 and N == 0:
        N = 1.0
    lower, upper = bounds(n, N, *shift, alpha, normalized=normalized)
    value, error = expected(n, N, *shift, draws=5_000, normalized=normalized)
    rounding = 1e-9 * value
    assert lower <= value + 5 * error + rounding
    assert value - 5 * error - rounding <= upper


@pytest.mark.parametrize("shift", SHIFTS)
def test_limit_of_many_images(shift):
    for n in (LARGE, np.inf):
        for N in (0, 1, 1e3):
            assert bounds(n, N, *shift) == pytest.approx((0, 0), abs=1e-6)
    assert expected(np.inf, 4, *shift, draws=10).value == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("shift", SHIFTS)
def test_limit_of_a_large_prior(shift):
    mu_s, var_s, mu_t, var_t = shift
    want = wasserstein(statistics(([mu_s], [var_s])), statistics(([mu_t], [var_t]))).average ** 2
    for N in (LARGE, np.inf):
        for n in (1, 2, 100):
            assert bounds(n, N, *shift) == pytest.approx((want, want), rel=1e-6, abs=1e-9)
            assert expected(n, N, *shift, draws=100).value == pytest.approx(want, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("n", [2, 3, 8, 100])
def test_no_shift(n):
    var, alpha = 2.5, 0.1
    tail = chi2.ppf(alpha / 2, n - 1)
    for N in (0.0, 0.5, 4.0, 300.0):
        lower = var * ((2 * N**2 + 4 * N * n - N + 2 * n**2) / (N + n) ** 2 - 2 * np.sqrt(1 - 1 / (N + n)))
        upper = lower + var * (n - 1) / (2 * (N + n) ** 2) * ((N + tail) / (N + n)) ** -1.5
        assert bounds(n, N, 7, var, 7, var, alpha) == pytest.approx((lower, upper), rel=1e-6, abs=1e-9)
    lower = 2 * var * (1 - np.sqrt(1 - 1 / n))
    upper = lower + var * (n - 1) / (2 * n**2) * (tail / n) ** -1.5
    assert bounds(n, 0, 7, var, 7, var, alpha) == pytest.approx((lower, upper), rel=1e-6)
    assert bounds(n, np.inf, 7, var, 7, var) == (0, 0)


def test_normalised_bounds():
    shift = (1.0, [4.0, 0.25], -2.0, [0.3, 8.0])
    for got, want in zip(bounds(8, 4, *shift, normalized=True), bounds(8, 4, *shift), strict=True):
        np.testing.assert_allclose(got, want / np.array([4.0, 0.25]))
    scaled = bounds(8, 4, 1 / 2, 1, -2 / 2, 0.3 / 4)
    assert scaled == pytest.approx([each[0] for each in bounds(8, 4, *shift, normalized=True)])
    assert np.isfinite(bounds(8, 4, 0, 0, 1, 0, normalized=True)).all()


def test_one_image_leaves_nothing_to_chance():
    lower, upper = bounds(1, 5, 0, 1, 2, 3)
    assert lower == upper == pytest.approx(expected(1, 5, 0, 1, 2, 3, draws=2).value)


@pytest.mark.parametrize("variances", [(0, 0), (0, 1), (1, 0), (1e-300, 1e-300), (1e-300, 1), (1, 1e-300), (1e200, 1)])
@pytest.mark.parametrize("N", [0, 3, np.inf])
def test_tiny_and_zero_variances(variances, N):
    var_s, var_t = variances
    lower, upper = bounds(4, N, 0, var_s, 1, var_t)
    assert np.isfinite([lower, upper]).all()
    assert lower <= upper
    assert np.isfinite(expected(4, N, 0, var_s, 1, var_t, draws=100)).all()


def test_arrays_and_tensors_broadcast():
    n, N = np.array([2, 8])[:, None, None], np.array([0, 1, 4])[:, None]
    shift = [torch.rand(5, generator=torch.Generator().manual_seed(i)) + 0.1 for i in range(4)]
    got = bounds(n, N, *shift)
    assert got.lower.shape == expected(n, N, *shift, draws=10).value.shape == (2, 3, 5)
    one = bounds(8, 4, *(each[3].item() for each in shift))
    assert (got.lower[1, 2, 3], got.upper[1, 2, 3]) == pytest.approx(one)


def test_layers_are_sums_over_channels():
    source, target = random_statistics(0), random_statistics(1)
    got = layer_bounds([2, 8], 4, source, target, normalized=True)
    assert got.keys() == source.keys()
    for path, each in got.items():
        s, t = source[path], target[path]
        for i, n in enumerate((2, 8)):
            want = [bounds(n, 4, *c, normalized=True) for c in zip(s.mean, s.var, t.mean, t.var, strict=True)]
            assert (each.lower[i], each.upper[i]) == pytest.approx(tuple(np.sum(want, 0)))


def test_layers_that_no_image_has_reached_do_not_count():
    pair = random_statistics(0), random_statistics(1)
    aux = [with_unreached(each) for each in pair]
    assert layer_bounds(8, 4, *aux) == layer_bounds(8, 4, *pair)
    assert best_layer_prior(8, *aux) == best_layer_prior(8, *pair)


def test_all_images_need_no_prior():
    for by in ("lower", "upper", "expected"):
        assert best_prior(np.inf, 0, 1, 0.5, 2, by=by) == (0, 0)
    assert not simulate(n=[np.inf]).best.any()


@pytest.mark.parametrize("by", ["lower", "upper", "expected"])
@pytest.mark.parametrize("shift", SHIFTS)
def test_no_prior_is_better_than_the_best(by, shift):
    best = best_prior(8, *shift, by=by)

    def error(N):
        return expected(8, N, *shift, draws=20_000).value if by == "expected" else getattr(bounds(8, N, *shift), by)

    others = error(np.concatenate([[0], np.logspace(-3, 9, 500)]))
    assert error(best.prior) == pytest.approx(best.value)
    assert best.value <= others.min() * (1 + 1e-4)


def test_the_best_prior_falls_with_the_shift_and_is_one_for_all_channels():
    priors = [best_prior(8, 0, 1, shift, 1).prior for shift in (0, 0.1, 0.5, 1, 3)]
    assert priors == sorted(priors, reverse=True)
    assert priors[0] == np.inf
    assert best_prior(8, 0, 1, 100, 1, by="lower").prior < 0.05
    both = best_prior(8, [0, 0], 1, [0.1, 1], 1).prior
    assert priors[3] < both < priors[1]
    same = random_statistics(0)
    assert best_layer_prior(8, same, same).prior == np.inf
    assert 0 < best_layer_prior(8, same, random_statistics(1), by="upper").prior < 100


def test_simulation():
    got = simulate()
    assert got.lower.shape == (5, 5, 10, 9)
    assert got.best.shape == (5, 5, 10)
    assert got.lower[3, 4, 3, 2] ** 2 == pytest.approx(bounds(8, 4, 0, 1, 1, 4).lower)
    assert (got.lower <= got.upper).all()
    assert np.isinf(got.best[0, 2]).all()


OK = (0.0, 1.0, 1.0, 1.0)
BAD = [
    (lambda: bounds(0, 4, *OK), "expected n, images in a batch, from 1; got n = 0"),
    (lambda: bounds(8, -1, *OK), "expected N, the prior, from 0"),
    (lambda: bounds(1, 0, *OK), "expected n from 2 where N is 0"),
    (lambda: bounds(np.inf, np.inf, *OK), "n or N to be finite"),
    (lambda: bounds(np.nan, 4, *OK), "expected n"),
    (lambda: bounds(8, 4, 0, -1, 0, 1), "expected variances from 0, and finite"),
    (lambda: bounds(8, 4, np.nan, 1, 0, 1), "expected means that are finite"),
    (lambda: bounds(8, 4, "zero", 1, 0, 1), "expected mu_s to be a number or an array, got 'zero'"),
    (lambda: bounds([1, 2], [1, 2, 3], *OK), r"shapes that fit each other, got n \(2,\), N \(3,\)"),
    (lambda: bounds(8, 4, *OK, alpha=0), "expected alpha between 0 and 1"),
    (lambda: expected(8, 4, *OK, draws=1), "at least 2 draws"),
    (lambda: layer_bounds(8, 4, random_statistics(0), random_statistics(0, (5,))), "different models or layers"),
    (lambda: layer_bounds(8, 4, random_statistics(0), 7), "expected two Statistics, got Statistics and int"),
    (lambda: layer_bounds("many", 4, random_statistics(0), random_statistics(1)), "expected n to be a number"),
    (lambda: best_prior(8, *OK, by="middle"), "unknown bound 'middle'; known: lower, upper, expected"),
    (lambda: best_layer_prior(8, random_statistics(0), random_statistics(1), by="expected"), "known: lower, upper$"),
    (lambda: best_layer_prior(8, random_statistics(0), statistics(([0] * 5, [1] * 5), ([0] * 9, [1] * 9), images=0)),
     "the target has seen no images"),
    (lambda: best_prior([2, 8], *OK), r"expected n to be one number of images, got \[2, 8\]"),
    (lambda: bounds(1, [0], *OK), "got n = 1, N = 0, mu_s"),
    (lambda: simulate(ratios="wide"), "expected ratios to be a number or an array, got 'wide'"),
    (lambda: simulate(shifts=[]), "expected shifts to be a list of numbers"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "message"), BAD, ids=[message for _, message in BAD])
def test_bad_input(call, message):
    with pytest.raises(CovshiftError, match=message):
        call()
