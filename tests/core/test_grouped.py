"""Groups in compiled code: each as a batch of its own, and as separate operations do it."""

import pytest
import torch
from networks import images, randomise
from torch import nn

import covshift
from covshift import Batch, Source
from covshift.core import adapter as adapters
from covshift.core.compiled import sharing


def network(dtype: torch.dtype = torch.float64) -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, 5, 3, stride=2), nn.BatchNorm2d(5)]
    plain = [nn.BatchNorm2d(5, affine=False), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.BatchNorm1d(5), nn.Linear(5, 4)]
    return randomise(nn.Sequential(*layers, *plain), dtype=dtype)


@pytest.fixture
def separate(monkeypatch):
    """How often groups are measured by separate operations."""
    calls, measure = [], adapters.measure_groups
    monkeypatch.setattr(adapters, "measure_groups", lambda *given: (calls.append(1), measure(*given))[1])
    return calls


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("only", [None, "mean", "var"])
@pytest.mark.parametrize("anchored", [False, True])
def test_each_group_is_answered_as_a_batch_of_its_own(separate, dtype, last, only, anchored):
    model, x = network(dtype), images(11, 24, dtype=dtype)
    x = x.contiguous(memory_format=torch.channels_last) if last else x
    source = Source.measure(model, images(9, 24, dtype=dtype)) if anchored else None
    with torch.no_grad():
        with covshift.adapt(model, Batch(prior=4), source=source, only=only):
            expected = torch.cat([model(group) for group in x.split(4)])
        with covshift.adapt(model, Batch(prior=4, size=4), source=source, only=only):
            answers = model(x)
    assert not separate
    torch.testing.assert_close(answers, expected, rtol=1e-5, atol=1e-5)


def test_threads_answer_alike(monkeypatch):
    model, x = network(), images(11, 24)
    monkeypatch.setattr(sharing, "_SMALL", 64)
    with torch.no_grad(), covshift.adapt(model, Batch(prior=4, size=2)):
        torch.set_num_threads(1)
        expected = model(x)
        torch.set_num_threads(3)
        torch.testing.assert_close(model(x), expected, rtol=0, atol=0)
        torch.set_num_threads(1)


def test_threads_answer_cameras_alike(monkeypatch):
    model, x = network(), images(11, 24)
    monkeypatch.setattr(sharing, "_SMALL", 64)
    answers, states = [], []
    for threads in (1, 3):
        torch.set_num_threads(threads)
        with covshift.Fleet(model, covshift.Live()) as fleet:
            for batch in x[:10].split(5):
                found = fleet.answer({str(i): image[None] for i, image in enumerate(batch)})
            answers.append(torch.cat(list(found.values())))
            states.append([fleet[name].state for name in fleet])
    torch.set_num_threads(1)
    torch.testing.assert_close(answers[1], answers[0], rtol=0, atol=0)
    assert states[1] == states[0]


def test_hooks_of_others_see_the_input_and_the_output(separate):
    model, x, seen = network(), images(6, 24), []
    with torch.no_grad(), covshift.adapt(model, Batch(prior=4, size=2)):
        expected = model(x)
        assert not separate
        handle = model[1].register_forward_hook(lambda module, args, output: seen.append((args[0], output)))
        torch.testing.assert_close(model(x), expected)
        handle.remove()
    assert len(separate) == 1
    assert seen[0][0].shape == seen[0][1].shape == (6, 6, 22, 22)


def test_gradients_and_a_subclass_go_the_other_way(separate):
    class Loud(nn.BatchNorm2d):
        def forward(self, x):
            return 2 * super().forward(x)

    model, x = network(), images(6, 24)
    model[1].__class__ = Loud
    with covshift.adapt(model, Batch(prior=4, size=2)):
        with torch.no_grad():
            model(x)
        assert len(separate) == 1
        model(x).sum().backward()
    assert len(separate) == 5
    assert model[0].weight.grad is not None


def test_values_that_are_not_finite_are_refused():
    model, x = network(), images(6, 24)
    x[3, 0, 0, 0] = torch.nan
    with (
        torch.no_grad(),
        covshift.adapt(model, Batch(prior=4, size=2)),
        pytest.raises(covshift.CovshiftError, match="'1' has NaN"),
    ):
        model(x)
