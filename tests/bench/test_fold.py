"""Folding frozen statistics into convolutions: the same answers, and only where nothing else looks."""

import pytest
import torch
from networks import FAMILIES, family, randomise, relative, tiny
from runs import OPTIONS, workplace
from torch import nn

from covshift.bench.fold import Folding, find_pairs
from covshift.bench.run import run


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2", "densenet121", "efficientnet_b0"])
def test_the_same_answers(name):
    assert name in FAMILIES
    model, x = family(name)
    x = x[:3]
    state = {key: value.clone() for key, value in model.state_dict().items()}
    folded = Folding(model).fold(x)
    with torch.no_grad():
        want = model(x)
        assert relative(folded(x), want) < 1e-10
    if name in ("resnet18", "mobilenet_v2"):  # all of it: no normalisation is left
        assert not any(isinstance(module, nn.BatchNorm2d) for module in folded.modules())
    assert all(torch.equal(value, state[key]) for key, value in model.state_dict().items())


def test_it_takes_the_statistics_of_the_moment():
    model, x = tiny(), torch.randn(4, 3, 12, 12, dtype=torch.float64)
    folding = Folding(model)
    folding.fold(x)
    model.stem[1].running_var.mul_(3)
    with torch.no_grad():
        assert relative(folding.fold(x)(x), model(x)) < 1e-10


class Looks(nn.Module):
    """A convolution whose output is of use elsewhere, too."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way = way
        self.conv, self.norm, self.head = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 3)

    def forward(self, x):
        before = self.conv(x)
        after = self.norm(before)
        if self.way == "sum":
            after = after + before
        if self.way == "view":
            after = after + before.flatten(1).mean()
        if self.way == "twice":
            after = after + self.norm(self.conv(x + 1))
        if self.way == "reads":
            after = after + self.norm.running_mean.sum()
        return self.head(after.mean((2, 3)))


@pytest.mark.parametrize("way", ["sum", "view", "twice", "reads"])
def test_what_others_look_at_stays(way):
    model, x = randomise(Looks(way)), torch.randn(4, 3, 8, 8, dtype=torch.float64)
    assert Folding(model).fold(x) is model


def test_layers_with_hooks_or_shared_weights_stay():
    x = torch.randn(2, 3, 8, 8, dtype=torch.float64)
    hooked = randomise(Looks("plain"))
    assert len(find_pairs(hooked, x)) == 1
    hooked.conv.register_forward_hook(lambda module, args, output: output * 2)
    assert find_pairs(hooked, x) == []
    shared = randomise(nn.Sequential(nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3), nn.Conv2d(3, 3, 1)))
    shared[2].weight = shared[0].weight
    assert find_pairs(shared, x) == []
    assert find_pairs(randomise(Looks("plain"), dtype=torch.bfloat16), x.bfloat16()) == []


def test_the_source_statistics_are_folded_once_for_a_run(tmp_path, monkeypatch):
    monkeypatch.chdir(workplace(tmp_path))
    folded, fold = [], Folding.fold
    monkeypatch.setattr(Folding, "fold", lambda self, images: folded.append(images) or fold(self, images))
    run({**OPTIONS, "corruptions": "contrast", "severities": "1,5", "methods": "none,reverse"}, "out", progress=False)
    assert len(folded) == 1 + 3  # those of each condition anew, for reverse
