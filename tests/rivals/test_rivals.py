"""Each rival against its published formula, computed by NumPy or torch's own layers, and the model whole after it."""

from copy import deepcopy

import numpy as np
import pytest
import torch
from networks import images, randomise
from torch import nn

from covshift.bench.methods import parse_method, parse_methods
from covshift.core.finding import find_layers
from covshift.rivals import RIVALS, Lame, PriorCorrection, UnmixedNorm
from covshift.rivals.base import Pair
from covshift.support.errors import CovshiftError


def layer() -> nn.Module:
    return randomise(nn.Sequential(nn.BatchNorm2d(3, eps=1e-3)))


def network() -> nn.Module:
    torch.manual_seed(0)
    body = (nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
    return randomise(nn.Sequential(*body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5)))


def stream(sizes=(4, 4, 3)) -> list[torch.Tensor]:
    return list(images(sum(sizes), 6).split(sizes))


def answers(rival, model: nn.Module, batches) -> list[np.ndarray]:
    with rival.answering(model) as answer:
        return [np.asarray(answer(batch).detach()) for batch in batches]


def normalised(net: nn.Module, x: np.ndarray, mean: np.ndarray, var: np.ndarray) -> np.ndarray:
    """What the one layer of `net` makes of x by these statistics, [channels] or [images, channels]."""
    shape = (-1, 3, 1, 1)
    weight, bias = (np.asarray(each.detach()).reshape(shape) for each in (net[0].weight, net[0].bias))
    return (x - mean.reshape(shape)) / np.sqrt(var.reshape(shape) + net[0].eps) * weight + bias


def source(net: nn.Module) -> tuple[np.ndarray, np.ndarray]:
    return net[0].running_mean.numpy().copy(), net[0].running_var.numpy().copy()


def moments(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return x.mean((0, 2, 3)), x.var((0, 2, 3))


def alpha_bn(net, batches):
    mean, var = source(net)
    for x in batches:
        m, v = moments(x)
        yield normalised(net, x, 0.9 * mean + 0.1 * m, 0.9 * var + 0.1 * v)


def robustbn(net, batches):
    mean, var = source(net)
    for x in batches:
        m, v = moments(x)
        mean, var = 0.95 * mean + 0.05 * m, 0.95 * var + 0.05 * v
        yield normalised(net, x, mean, var)


def tbr(net, batches):
    """As published: r and d renormalise what the batch statistics have normalised."""
    mean = std = None
    for x in batches:
        m, s = moments(x)[0], np.sqrt(moments(x)[1] + net[0].eps)
        mean, std = (m, s) if mean is None else (mean, std)
        shape = (-1, 3, 1, 1)
        r, d = (s / std).reshape(shape), ((m - mean) / std).reshape(shape)
        whitened = (x - m.reshape(shape)) / s.reshape(shape) * r + d
        mean, std = 0.95 * mean + 0.05 * m, 0.95 * std + 0.05 * s
        yield normalised(net, whitened, np.zeros(3), np.full(3, 1 - net[0].eps))


def iabn(net, batches):
    mean, var = source(net)
    for x in batches:
        m, v, hw = x.mean((2, 3)), x.var((2, 3), ddof=1), x.shape[2] * x.shape[3]
        for i, c in np.ndindex(m.shape):
            by = 4 * np.sqrt((var[c] + net[0].eps) / hw)
            off = m[i, c] - mean[c]
            m[i, c] = mean[c] + np.sign(off) * max(abs(off) - by, 0)
            by = 4 * (var[c] + net[0].eps) * np.sqrt(2 / (hw - 1))
            off = v[i, c] - var[c]
            v[i, c] = max(var[c] + np.sign(off) * max(abs(off) - by, 0), 0)
        yield normalised(net, x, m, v)


FORMULAS = [("alpha-bn", alpha_bn), ("robustbn", robustbn), ("tbr", tbr), ("iabn", iabn)]


@pytest.mark.parametrize(("name", "formula"), FORMULAS)
def test_normalises_as_published(name, formula):
    net, batches = layer(), stream()
    found = answers(RIVALS[name](), net, batches)
    wanted = list(formula(net, [batch.numpy() for batch in batches]))
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)


def test_iabn_sees_that_some_images_differ_and_leaves_single_positions_alone():
    net = layer()
    with torch.no_grad():
        own = net(images(6, 6)).numpy()
    assert not np.allclose(answers(RIVALS["iabn"](), net, [images(6, 6)])[0], own)
    flat = images(6, 1)
    with torch.no_grad():
        own = net(flat).numpy()
    assert (answers(RIVALS["iabn"](), net, [flat])[0] == own).all()


def test_unmix_tns_starts_around_the_source():
    (place,) = find_layers(layer())
    mean, var = UnmixedNorm(components=4000)._start(place)
    np.testing.assert_allclose(mean.mean(0), place.mean, atol=0.06)
    np.testing.assert_allclose(mean.var(0, correction=0) + var.mean(0), place.var, rtol=0.06)
    again = UnmixedNorm(components=4000)._start(place).mean
    assert (again == mean).all()
    assert (UnmixedNorm(components=4000, seed=1)._start(place).mean != mean).any()


def test_unmix_tns_follows_as_published():
    (place,) = find_layers(layer())
    rng = np.random.default_rng(0)
    k, b = 5, 7
    means, variances, x = rng.normal(size=(k, 3)), rng.uniform(0.5, 2, (k, 3)), rng.normal(size=(b, 3, 4, 4))
    step = UnmixedNorm(components=k).step(place, Pair(torch.tensor(means), torch.tensor(variances)), torch.tensor(x))
    next_means, next_vars = means.copy(), variances.copy()
    momentum = 1 - (1 - 0.1) ** (b / 64)
    for i in range(b):
        m, v = x[i].mean((1, 2)), x[i].var((1, 2))
        cosine = np.array([m @ c / np.linalg.norm(m) / np.linalg.norm(c) for c in means])
        p = np.exp(cosine / 0.07) / np.exp(cosine / 0.07).sum()
        drawn = (1 - p)[:, None] * means + p[:, None] * m
        drawn_var = (1 - p)[:, None] * variances + p[:, None] * v
        np.testing.assert_allclose(step.use.mean[i], drawn.mean(0))
        np.testing.assert_allclose(step.use.var[i], drawn_var.mean(0) + (drawn**2).mean(0) - drawn.mean(0) ** 2)
        next_means += momentum / b * p[:, None] * (m - means)
        next_vars += momentum / b * p[:, None] * (v - variances)
    np.testing.assert_allclose(step.keep.mean, next_means)
    np.testing.assert_allclose(step.keep.var, next_vars)


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


@pytest.mark.parametrize("affinity", ["knn", "rbf"])
def test_lame_as_published(affinity):
    rng = np.random.default_rng(0)
    p, features = softmax(2 * rng.normal(size=(20, 6))), rng.normal(size=(20, 4))
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    distance = np.linalg.norm(unit[:, None] - unit[None], axis=2)
    if affinity == "knn":
        weights = np.zeros((20, 20))
        for i in range(20):
            weights[i, [j for j in np.argsort(distance[i]) if j != i][:5]] = 1
    else:
        weights = np.exp(-(distance**2) / (2 * np.sort(distance, 1)[:, 4].mean() ** 2))
    y = p
    for _ in range(400):
        y = softmax(np.log(p) + weights @ y)
    found = Lame(affinity=affinity).correct(torch.tensor(p), torch.tensor(features).double())
    np.testing.assert_allclose(found, y, atol=2e-4)
    assert (found.argmax(1).numpy() != p.argmax(1)).any()


def test_lame_takes_what_the_last_linear_layer_is_given():
    net, (batch, *_) = network(), stream((12,))
    with torch.no_grad():
        features = net[:-1](batch)
        wanted = Lame().correct(net(batch).softmax(1), features).log().numpy()
    np.testing.assert_allclose(answers(Lame(), net, [batch])[0], wanted, rtol=1e-6)
    (alone,) = answers(Lame(affinity="rbf"), net, [batch[:1]])
    assert np.isfinite(alone).all()


def test_lame_says_where_there_are_no_features():
    net = nn.Sequential(nn.Conv2d(3, 5, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten()).eval()
    with Lame().answering(net) as answer, pytest.raises(CovshiftError, match="does not end in a linear layer"):
        answer(torch.rand(2, 3, 4, 4))


def test_prior_correction_as_published():
    logits = np.random.default_rng(0).normal(size=(8, 5))
    p = softmax(logits)
    prior = p.mean(0)
    gamma = max(1 / 8, 1 / 5) / prior.max()
    wanted = p * (prior + gamma) / (1 + gamma * 5)
    found = np.exp(PriorCorrection().correct(torch.tensor(logits)).numpy())
    np.testing.assert_allclose(found, wanted)


@pytest.mark.parametrize("episodic", [False, True])
def test_tent_as_torchs_own_layers_train(episodic):
    """The published set-up: layers in train mode without statistics of their own, Adam on their scales and shifts."""
    net, batches = network(), stream()
    reference = deepcopy(net).requires_grad_(False)
    for module in reference.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.requires_grad_(True)
            module.track_running_stats, module.running_mean, module.running_var = False, None, None
    begin, wanted = deepcopy(reference.state_dict()), []
    optimiser = torch.optim.Adam([each for each in reference.parameters() if each.requires_grad], 0.05)
    for batch in batches:
        if episodic:
            reference.load_state_dict(begin)
            optimiser = torch.optim.Adam([each for each in reference.parameters() if each.requires_grad], 0.05)
        logits = reference(batch)
        wanted.append(logits.detach().numpy())
        p = torch.distributions.Categorical(logits=logits)
        optimiser.zero_grad()
        p.entropy().mean().backward()
        optimiser.step()
    found = answers(RIVALS["tent"](lr=0.05, episodic=episodic), net, batches)
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("name", RIVALS)
def test_the_model_is_restored_bit_for_bit_and_each_stream_begins_afresh(name):
    net, batches = network(), stream()
    before = deepcopy(net.state_dict())
    learns = [each.requires_grad for each in net.parameters()]
    with torch.inference_mode():  # as the benchmark runs methods
        first, second = (answers(RIVALS[name](), net, batches) for _ in range(2))
    with pytest.raises(ZeroDivisionError), RIVALS[name]().answering(net) as answer:
        answer(batches[0])
        1 / 0  # noqa: B018
    after = net.state_dict()
    assert all((after[key] == before[key]).all() for key in before)
    assert [each.requires_grad for each in net.parameters()] == learns
    assert all(each.grad is None for each in net.parameters())
    assert not any(module._forward_pre_hooks for module in net.modules())
    assert all((a == b).all() for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("name", [name for name, rival in RIVALS.items() if rival.needs_statistics])
def test_says_that_a_model_holds_no_statistics(name):
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4)).eval()
    with pytest.raises(CovshiftError, match="holds no statistics"), RIVALS[name]().answering(net):
        pass


def test_tent_says_that_there_is_nothing_to_train():
    net = nn.Sequential(nn.BatchNorm2d(3, affine=False)).eval()
    with pytest.raises(CovshiftError, match="scales and shifts"), RIVALS["tent"]().answering(net):
        pass


def test_methods_by_name():
    text = "none,alpha-bn,robustbn:alpha=0.1,n=16,lame:k=3,affinity=rbf,tent:episodic=yes,unmix-tns:n=8"
    named = [method.name for method in parse_methods(text)]
    assert named == [
        "none",
        "alpha-bn:n=1",
        "robustbn:n=16,alpha=0.1",
        "lame:n=64,k=3,affinity=rbf",
        "tent:n=64,episodic=yes",
        "unmix-tns:n=8",
    ]
    assert [parse_method(name).name for name in named] == named
    assert [parse_method(name).adapts for name in ("tent", "lame")] == [True, False]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tent:speed=3", "takes no speed; it takes n, lr, episodic"),
        ("robustbn:alpha=1.5", "alpha to be a number from 0 to 1"),
        ("tbr:momentum=2", "momentum to be a number from 0 to 1"),
        ("lame:affinity=cosine", "expected a method such as"),
        ("lame:k=0", "whole number from 1"),
        ("tent:n=0", "whole number from 1"),
    ],
)
def test_refuses_what_a_rival_cannot_work_with(text, message):
    with pytest.raises(CovshiftError, match=message):
        parse_method(text)
