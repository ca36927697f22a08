"""`Batch(prior="auto")`: trusts what chance does not explain."""

import pytest
import torch
from networks import FAMILIES, family, images, relative, tiny
from torch import nn

import covshift
from covshift import Batch, CovshiftError, Stream
from covshift.core.auto import MOST, chance_of_batch, chance_of_groups, trust
from covshift.core.finding import find_layers
from covshift.core.groups import measure_groups
from covshift.core.moments import measure

AUTO = Batch(prior="auto")


def fields(number, level=0.0, seed=0, size=16):
    """Images of independent noise around means of their own: by chance, a batch's mean is off by 0.1 / √number."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(number, 64, size, size, generator=generator, dtype=torch.float64)
    centre = 0.1 * torch.randn(number, 64, 1, 1, generator=generator, dtype=torch.float64)
    return noise + centre + level


def layer(channels=64):
    return find_layers(nn.Sequential(nn.BatchNorm2d(channels)).double().eval())[0]


@pytest.mark.parametrize("number", [2, 4, 16])
def test_chance_is_what_many_batches_show(number):
    batches = [fields(number, seed=seed) for seed in range(200)]
    means = torch.stack([x.mean((0, 2, 3)) for x in batches])
    chance = torch.stack([chance_of_batch(x, number, sync=False) for x in batches]).mean()
    # Quarters know nothing of a mean that the whole image shares, and in a batch of two they are half of the estimate.
    assert 0.4 * means.var(0).mean() < chance < 1.1 * means.var(0).mean()


def test_what_chance_explains_is_not_trusted():
    def weight(level, number=8, seed=0):
        x = fields(number, level, seed)
        return trust(layer(), measure(x, number), chance_of_batch(x, number, sync=False)).item()

    assert sum(weight(0, seed=seed) for seed in range(20)) / 20 < 0.1 * MOST
    assert weight(3) == pytest.approx(MOST, rel=0.01)
    levels = [weight(level) for level in (0, 0.03, 0.1, 0.5)]
    assert levels == sorted(levels)
    assert weight(0.1, 64) > weight(0.1, 2)


def test_groups_know_their_own_chance():
    x = torch.cat([fields(4), fields(4, 0.5, seed=1), fields(3, 2, seed=2)])
    groups = measure_groups(x, 11, 4)
    got = torch.cat(chance_of_groups(x, 11, groups))
    want = torch.stack([chance_of_batch(part, len(part), sync=False) for part in x.split([4, 4, 3])])
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2", "efficientnet_b0"])
@pytest.mark.parametrize("size", [1, 4])
def test_groups_in_one_call_are_calls_of_their_own(name, size):
    model, x = family(name)
    with torch.no_grad():
        with covshift.adapt(model, AUTO):
            want = torch.cat([model(part) for part in x.split(size)])
        with covshift.adapt(model, Batch(prior="auto", size=size)):
            got = model(x)
        plain = model(x)
    assert relative(got, want) < 1e-9
    assert relative(got, plain) > 1e-3
    assert name in FAMILIES


def test_the_model_is_untouched_without_a_shift_and_restored_after():
    model, x = tiny(), images(6)
    before = covshift.Statistics.of(model)
    with torch.no_grad(), covshift.adapt(model, AUTO) as adapter:
        model(x)
        assert adapter.state.images == 6
        adapter.reset()
        assert covshift.Statistics.of(model) == before
    assert covshift.Statistics.of(model) == before


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (nn.BatchNorm1d, (5, 3)),
        (nn.BatchNorm1d, (1, 3)),
        (nn.BatchNorm1d, (5, 3, 7)),
        (nn.BatchNorm1d, (1, 3, 2)),
        (nn.BatchNorm2d, (1, 3, 1, 1)),
        (nn.BatchNorm2d, (4, 3, 1, 5)),
        (nn.BatchNorm2d, (1, 3, 7, 7)),
        (nn.BatchNorm3d, (2, 3, 4, 6, 6)),
        (nn.BatchNorm2d, (0, 3, 4, 4)),
    ],
)
@pytest.mark.parametrize("size", [None, 1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_shapes(make, shape, size, dtype):
    model = nn.Sequential(make(3)).eval().to(dtype)
    x = torch.rand(shape, generator=torch.Generator().manual_seed(0)).to(dtype) + 1
    with torch.no_grad(), covshift.adapt(model, Batch(prior="auto", size=size)):
        out = model(x)
    assert out.shape == x.shape
    assert out.dtype == dtype
    assert out.isfinite().all()


def test_a_single_value_is_not_trusted():
    model = nn.Sequential(nn.BatchNorm1d(3)).eval()
    x = torch.full((1, 3), 5.0)
    with torch.no_grad():
        want = model(x)
        with covshift.adapt(model, AUTO):
            torch.testing.assert_close(model(x), want)


class Tokens(nn.Module):
    """A layer that sees several rows for each image, and one that sees a number that does not divide."""

    def __init__(self, rows):
        super().__init__()
        self.rows = rows
        self.first, self.second = nn.BatchNorm2d(3), nn.BatchNorm1d(3)

    def forward(self, x):
        x = self.first(x)
        return self.second(x.flatten(2).transpose(1, 2).reshape(-1, 3)[: self.rows])


@pytest.mark.parametrize("rows", [64, 13])
def test_rows_that_are_no_images(rows):
    model = Tokens(rows).double().eval()
    with torch.no_grad(), covshift.adapt(model, AUTO):
        assert model(images(4, 4) + 1).isfinite().all()


def test_constant_images():
    model = tiny()
    with torch.no_grad(), covshift.adapt(model, AUTO):
        assert model(torch.ones(4, 3, 12, 12, dtype=torch.float64)).isfinite().all()


@pytest.mark.parametrize("make", [lambda: Batch(prior="automatic"), lambda: Stream(prior="auto")])
def test_bad_input(make):
    with pytest.raises(CovshiftError, match="expected prior to be a number of images N from 0 to infinity"):
        make()
