"""Compiled passes: the same arithmetic as separate operations, which gradients and other devices go through."""

import pytest
import torch
from networks import images, randomise
from torch import Tensor, nn

import covshift
from covshift import Batch, Live, Source, Stream
from covshift.core.auto import chance_of_batch
from covshift.core.compiled.measuring import measure_images

POLICIES = {
    "batch": Batch(prior=4),
    "near plain": Batch(prior=0.01),
    "auto": Batch(prior="auto"),
    "stream": Stream(prior=4),
    "fading": Stream(prior=4, decay=0.9),
    "live": Live(memory=20),
}


class Network(nn.Module):
    """Odd sizes, one layer that is called twice, positions that run out, and tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU())
        self.twice = nn.BatchNorm2d(6)
        self.narrow = nn.Sequential(nn.Conv2d(6, 5, 3, stride=4), nn.BatchNorm2d(5), nn.ReLU())
        self.tokens = nn.LayerNorm(5)
        self.head = nn.Linear(5, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = self.narrow(self.twice(self.twice(x)))
        return self.head(self.tokens(x.flatten(2).mT).mean(1))


def answers(model: nn.Module, x: Tensor, policy: covshift.Policy, source: Source | None, size: int):
    """The answers to batches of a size one after another, and the state after them."""
    with covshift.adapt(model, policy, source=source) as adapter:
        return torch.cat([model(batch).detach() for batch in x.split(size)]), adapter.state


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("places", [None, "auto", "*"])
@pytest.mark.parametrize("policy", POLICIES)
def test_compiled_passes_do_what_separate_operations_do(policy, places, last, size):
    torch.manual_seed(0)
    model, x = randomise(Network()), images(7, 15)
    source = None if places is None else Source.measure(model, images(40, 15, seed=3), places=places, progress=False)
    if last:
        model, x = model.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last)
    separate, state = answers(model, x, POLICIES[policy], source, size)  # with gradients
    with torch.no_grad():
        compiled, compiled_state = answers(model, x, POLICIES[policy], source, size)
    torch.testing.assert_close(compiled, separate, rtol=1e-9, atol=1e-9)
    for path, moments in state.items():
        found = compiled_state[path]
        assert (found.count, found.images) == pytest.approx((moments.count, moments.images))
        torch.testing.assert_close((found.mean, found.var), (moments.mean, moments.var), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(compiled_state.notes, state.notes, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("shape", [(2, 6, 32, 32), (3, 5, 35, 37), (1, 300, 33, 3), (2, 16, 40, 1), (4, 2, 1, 9)])
def test_images_are_measured_as_by_torch(shape, last):
    x = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) + 3
    mean, var = torch.empty(2, shape[1], dtype=torch.float64)
    values = (x.permute(0, 2, 3, 1) if last else x).contiguous().flatten().numpy()
    chance = measure_images(values, shape[0], *shape[2:], last, mean.numpy(), var.numpy())
    torch.testing.assert_close(torch.from_numpy(chance), chance_of_batch(x, len(x), sync=False))
    torch.testing.assert_close((mean, var), (x.mean((0, 2, 3)), x.var((0, 2, 3), correction=0)))


def test_gradients_flow_past_compiled_code():
    model = randomise(nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, 2, 3)))
    x = images(4, 15).requires_grad_()
    with covshift.adapt(model, Batch(prior=4)):
        with torch.no_grad():
            before = model(x)
        model(x).sum().backward()
        assert x.grad is not None
        assert x.grad.isfinite().all()
        assert x.grad.abs().sum() > 0
        with torch.no_grad():
            assert torch.equal(model(x), before)


class Gainless(Batch):
    """A policy made of another, with a weight of its own."""

    def weigh(self, place, seen, rows):
        return 0.0


def test_a_policy_that_weighs_in_a_way_of_its_own_is_asked():
    model, x = randomise(Network()), images(4, 15)
    with torch.no_grad():
        plain = model(x)
        with covshift.adapt(model, Gainless(prior=0)):
            torch.testing.assert_close(model(x), plain, rtol=1e-9, atol=1e-9)
