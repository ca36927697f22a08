"""Which source suits a network: one whose training statistics fit its clean images keeps them, others do not."""

import pytest
import torch
from networks import assert_same, images, snapshot
from torch import nn

from covshift import Source, Statistics, choose_source


def network(images: torch.Tensor, off: float) -> nn.Module:
    """A network whose layer holds the statistics of these images, but for an offset of its means."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(800, 10)).double()
    with torch.no_grad():
        x = net[0](images)
        net[1].running_mean.copy_(x.mean((0, 2, 3)) + off * torch.randn(8))
        net[1].running_var.copy_(x.var((0, 2, 3)))
    return net.eval()


@pytest.mark.parametrize(("off", "measured"), [(0.0, False), (1.0, True)])
@pytest.mark.parametrize(
    "loader", [lambda x: x, lambda x: iter(x.split(50)), lambda x: [(part, 0) for part in x.split(50)]]
)
def test_the_training_statistics_are_kept_where_they_fit(off, measured, loader):
    x = images(400)
    net = network(x, off)
    before = snapshot(net)
    source = choose_source(net, loader(x), progress=False)
    assert source.measured is measured
    assert_same(before, net)
    want = Source.measure(net, x, progress=False).statistics if measured else Statistics.of(net)
    assert source.statistics.close_to(want)


@pytest.mark.parametrize("batches", [[400], [50, 50]])
def test_too_few_to_tell(batches):
    x = images(sum(batches))
    assert choose_source(network(x, 0), x.split(batches), progress=False).measured
