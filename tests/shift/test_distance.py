"""Distances: against POT, against Monte Carlo, and the laws they obey."""

import numpy as np
import ot
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from imagined import random_statistics, statistics
from networks import assert_same, images, one_giant_batch, snapshot, tiny
from torch import nn

import covshift
from covshift import CovshiftError, Statistics
from covshift.core.moments import Moments
from covshift.shift import Covariances, Gaussian, covariances, gaussian, jeffrey, wasserstein


def random_gaussian(seed, channels=4):
    rng = np.random.default_rng(seed)
    factor = rng.normal(size=(channels, channels))
    return Gaussian(100, torch.tensor(rng.normal(size=channels)), torch.tensor(factor @ factor.T))


def pot(source, target, layer, scale=None):
    """POT's Bures-Wasserstein distance on one layer, of channels divided by `scale`."""
    s, t = source[layer], target[layer]
    scale = np.ones(len(s.mean)) if scale is None else scale
    means = [m.mean.numpy() / scale for m in (s, t)]
    full = [m.cov.numpy() if isinstance(m, Gaussian) else np.diag(m.var.numpy()) for m in (s, t)]
    return ot.gaussian.bures_wasserstein_distance(*means, *(cov / np.outer(scale, scale) for cov in full))


@pytest.mark.parametrize("seed", range(5))
def test_wasserstein_is_that_of_pot(seed):
    source, target = random_statistics(seed), random_statistics(seed + 100)
    got = wasserstein(source, target)
    assert got.layers == pytest.approx({path: pot(source, target, path) for path in source}, rel=1e-7)
    assert float(got) == pytest.approx(np.mean(list(got.layers.values())))
    scaled = wasserstein(source, target, normalized=True).layers
    want = {path: pot(source, target, path, source[path].var.sqrt().numpy()) for path in source}
    assert scaled == pytest.approx(want, rel=1e-7)


@pytest.mark.parametrize("seed", range(5))
def test_full_wasserstein_is_that_of_pot(seed):
    source, target = (Covariances({"bn": random_gaussian(s)}, "a model") for s in (seed, seed + 100))
    assert wasserstein(source, target).layers["bn"] == pytest.approx(pot(source, target, "bn"), rel=1e-6)
    scale = source["bn"].cov.diagonal().sqrt().numpy()
    got = wasserstein(source, target, normalized=True).average
    assert got == pytest.approx(pot(source, target, "bn", scale), rel=1e-6)


def test_full_and_diagonal_agree_where_there_is_no_correlation():
    source, target = random_statistics(0), random_statistics(1)
    full = [
        Covariances({path: Gaussian(8, m.mean, m.var.diag()) for path, m in each.items()}, "a model")
        for each in (source, target)
    ]
    for normalized in (False, True):
        want = wasserstein(source, target, normalized=normalized).layers
        assert wasserstein(*full, normalized=normalized).layers == pytest.approx(want, rel=1e-10)


def test_wasserstein_is_what_optimal_transport_of_samples_costs():
    source, target = statistics(([0.3], [0.5])), statistics(([-1.0], [2.0]))
    rng = np.random.default_rng(0)
    # In one dimension the best plan pairs sorted samples.
    samples = [np.sort(rng.normal(m["bn0"].mean, m["bn0"].var.sqrt(), 400_000)) for m in (source, target)]
    cost = np.sqrt(np.mean((samples[0] - samples[1]) ** 2))
    assert wasserstein(source, target).average == pytest.approx(cost, rel=5e-3)


def test_jeffrey_is_the_mean_log_ratio_of_samples():
    source, target = random_statistics(2, [3]), random_statistics(3, [3])
    densities = [
        torch.distributions.Independent(torch.distributions.Normal(m["bn0"].mean, m["bn0"].var.sqrt()), 1)
        for m in (source, target)
    ]
    torch.manual_seed(0)
    p, q = densities
    x, y = p.sample((400_000,)), q.sample((400_000,))
    forward, backward = (p.log_prob(x) - q.log_prob(x)).mean(), (q.log_prob(y) - p.log_prob(y)).mean()
    assert jeffrey(source, target).average == pytest.approx(((forward + backward) / 2).item(), rel=2e-2)
    exact = [torch.distributions.kl_divergence(a, b).item() for a, b in ((p, q), (q, p))]
    assert jeffrey(source, target).average == pytest.approx(sum(exact) / 2, rel=1e-9)


variances = st.one_of(st.just(0.0), st.floats(1e-300, 1e-20), st.floats(1e-3, 1e3))
channel = st.tuples(st.floats(-100, 100), variances)


@settings(deadline=None)
@given(st.lists(st.tuples(channel, channel, channel), min_size=1, max_size=5))
def test_laws(channels):
    a, b, c = (statistics(tuple(zip(*(row[i] for row in channels), strict=True))) for i in range(3))
    for distance in (wasserstein, jeffrey):
        assert distance(a, a).average == 0
        assert np.isfinite(distance(a, b).average)
        assert distance(a, b).average >= 0
        assert distance(a, b).average == pytest.approx(distance(b, a).average, rel=1e-9)
    assert wasserstein(a, a, normalized=True).average == 0
    assert np.isfinite(wasserstein(a, b, normalized=True).average)
    assert wasserstein(a, c).average <= wasserstein(a, b).average + wasserstein(b, c).average + 1e-9


def test_the_normalised_distance_takes_the_side_of_the_source():
    a, b = statistics(([0.0], [1.0])), statistics(([3.0], [9.0]))
    assert wasserstein(a, b, normalized=True).average == pytest.approx(3 * wasserstein(b, a, normalized=True).average)
    scaled = [statistics((100 * m["bn0"].mean, 1e4 * m["bn0"].var)) for m in (a, b)]
    assert wasserstein(*scaled, normalized=True).average == pytest.approx(wasserstein(a, b, normalized=True).average)


def test_constant_channels():
    source, target = statistics(([0.0, 0.0], [0.0, 1.0])), statistics(([0.0, 0.0], [0.0, 1.0]))
    assert wasserstein(source, target, normalized=True, eps=0).average == 0
    moved = statistics(([0.1, 0.0], [0.0, 1.0]))
    assert wasserstein(source, moved, normalized=True).average == pytest.approx(0.1 / 1e-5**0.5)
    assert wasserstein(source, moved, normalized=True, eps=0).average == float("inf")


def test_equal_covariances_are_at_zero_distance():
    one = random_gaussian(0, 30)
    assert gaussian(one.mean, one.cov, one.mean, one.cov) < 1e-12 * one.cov.norm()
    low = Gaussian(9, one.mean, one.cov[:, :2] @ one.cov[:2])  # rank 2: the other variances are rounding errors
    assert gaussian(low.mean, low.cov, low.mean, low.cov) < 1e-5


def test_covariances_have_the_moments_of_full_adaptation():
    model, x = tiny(), images(30)
    before = snapshot(model)
    target = covshift.estimate(model, x)
    loader = [(part, None) for part in x.split([7, 1, 12, 10])]
    got = covariances(model, loader, statistics=target)
    assert_same(before, model)
    _, saw = one_giant_batch(model, x)
    for path, (mean, var) in saw.items():
        torch.testing.assert_close(got[path].mean, mean)
        torch.testing.assert_close(got[path].cov.diagonal(), var)
        assert got[path].count == target[path].count


def test_covariance_of_what_a_layer_sees():
    x = torch.randn(50, 3, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) + 100
    model = nn.Sequential(nn.BatchNorm2d(3), nn.Identity()).double().eval()
    got = covariances(model, x)["0"]
    torch.testing.assert_close(got.cov, torch.cov(x.movedim(1, 0).flatten(1), correction=0))
    assert repr(covariances(model, x)) == "Covariances(1 layer, 3 channels)"
    assert list(covariances(tiny(), images(4), layers="norm")) == ["norm"]


def test_layers_that_were_never_called_are_left_out():
    source, target = random_statistics(0), random_statistics(1)
    unseen = Statistics({"bn0": target["bn0"], "bn1": Moments(0, 0, source["bn1"].mean, source["bn1"].var)}, "a model")
    assert wasserstein(source, unseen).layers.keys() == {"bn0"}


BAD = [
    (lambda: wasserstein(random_statistics(0), 3), "expected two Statistics, got Statistics and int"),
    (lambda: wasserstein(random_statistics(0), random_statistics(0, (5,))), "different models or layers"),
    (lambda: jeffrey(Statistics.of(tiny()), random_statistics(0)), "different models or layers"),
    (lambda: wasserstein(random_statistics(0), statistics(([0.0] * 5, [1.0] * 5), ([0.0] * 9, [1.0] * 9), images=0)),
     "the target has seen no images"),
    (lambda: wasserstein(random_statistics(0), random_statistics(1), eps=-1), "eps to be a variance from 0, got -1"),
    (lambda: jeffrey(random_statistics(0), random_statistics(1), eps="1"), "expected eps to be a variance"),
    (lambda: wasserstein(*(Covariances({str(i): random_gaussian(i)}, "a model") for i in (0, 1))), "different models"),
    (lambda: wasserstein(Covariances({"bn": random_gaussian(0)}, "a model"), random_statistics(0)), "got Covariances"),
    (lambda: gaussian(torch.zeros(2), torch.eye(3), torch.zeros(2), torch.eye(2)), r"expected means \[2\]"),
    (lambda: covariances(tiny(), []), "gave no images"),
    (lambda: covariances(tiny(), images(4) / 0), "has NaN or infinite values"),
    (lambda: covariances(tiny(), images(4), statistics=random_statistics(0)), "of another model"),
    (lambda: covariances(tiny().train(), images(4)), "training mode"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "message"), BAD, ids=[message for _, message in BAD])
def test_bad_input(call, message):
    with pytest.raises(CovshiftError, match=message):
        call()


def test_the_model_is_whole_after_an_error():
    model = tiny()
    before = snapshot(model)
    with pytest.raises(RuntimeError):
        covariances(model, [images(4), images(4)[:, :2]], statistics=covshift.estimate(model, images(4)))
    assert_same(before, model)


def test_distances_of_any_network_from_a_measured_source():
    """A change of scale and offset behind the last place moves nothing; one of the images moves what POT says."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.GroupNorm(4, 8))
    clean, shifted = images(20), 2 * images(20, seed=1) + 1
    source = covshift.Source.measure(model.double().eval(), clean)
    target = covshift.estimate(model, shifted, source=source)
    got = wasserstein(source, target)
    assert got.layers.keys() == {"1", "4"}
    assert got.layers == pytest.approx({path: pot(source.statistics, target, path) for path in got.layers}, rel=1e-7)
    assert jeffrey(source, target).average > 0
    same = covshift.estimate(model, clean, source=source)
    assert wasserstein(source, same).average == pytest.approx(0, abs=1e-6)
    assert covshift.shift.embed({"a": same, "b": target, "c": target.merge(same)}, source).keys() == {"a", "b", "c"}


def test_covariances_take_back_what_an_anchored_estimate_has_folded():
    model, x = tiny(), images(12)
    places = [path for path, module in model.named_modules() if isinstance(module, nn.Conv2d)]
    source = covshift.Source.measure(model, x, places=places)
    target = covshift.estimate(model, 2 * x, source=source)
    before = snapshot(model)
    covariances(model, x, statistics=target)
    assert_same(before, model)
