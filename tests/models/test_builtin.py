"""The networks in the package: weights and cards fit, and the clean error is what the card says."""

import json
import shutil

import pytest
import torch
from safetensors.torch import save_file

from covshift import open_model
from covshift.data import cifar10
from covshift.models import builtin
from covshift.models.cifar import ResNet
from covshift.models.listing import find_models
from covshift.support.errors import CovshiftError
from covshift.training.feed import ArrayFeed
from covshift.training.recipe import RECIPES
from covshift.training.state import error


def test_every_network_opens_and_has_a_whole_card():
    for name in builtin.names():
        network, mean, std, card = builtin.open_network(name)
        assert not network.training
        assert len(mean) == len(std) == 3
        assert card["name"] == name
        assert name in RECIPES
        assert card["parameters"] == sum(p.numel() for p in network.parameters())
        assert 0 < card["clean error"] < 0.3
        assert network(torch.zeros(1, 3, 32, 32)).isfinite().all()
        assert find_models(f"builtin:{name}")[0].params == card["parameters"]


@pytest.fixture
def trained(tmp_path):
    """Weights and card of a network, to be spoilt."""
    for suffix in (".safetensors", ".json"):
        shutil.copy(builtin.WEIGHTS / f"resnet20{suffix}", tmp_path / f"net{suffix}")
    return tmp_path / "net.safetensors"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"mean": 5}, "expected weights of covshift train"),
        ({"std": [0.2, 0.2]}, "expected weights of covshift train"),
        ({"recipe": 5}, "expected weights of covshift train"),
        ({"recipe": {"data": "cifar10", "depth": "x", "width": 16, "norm": "batch"}}, "expected weights of covshift"),
        ({"classes": 11}, "does not fit the network of its card.* 2 of another shape.*; take both from the same run"),
        (None, "expected weights of covshift train"),
    ],
)
def test_a_card_that_does_not_fit(trained, change, words):
    card = json.loads(trained.with_suffix(".json").read_text())
    trained.with_suffix(".json").write_text(json.dumps([] if change is None else card | change))
    with pytest.raises(CovshiftError, match=words):
        builtin.open_weights(str(trained))


def test_other_weights_tell_the_number_of_classes(tmp_path):
    save_file(ResNet(20, classes=3).state_dict(), tmp_path / "three.safetensors")
    model = open_model(f"file:{tmp_path}/three.safetensors?arch=builtin:resnet20")
    assert model.classes == 3
    assert model.preprocess.mean == open_model("builtin:resnet20").preprocess.mean
    with pytest.raises(CovshiftError, match=r"does not fit builtin:resnet20.*3 x 64 instead of 5 x 64"):
        open_model(f"file:{tmp_path}/three.safetensors?arch=builtin:resnet20&classes=5")


@pytest.mark.parametrize(
    ("data", "classes", "advice"),
    [("npz:some.npz", 8, True), ("npz:some.npz", 11, False), ("folder:val", 8, False)],
)
def test_arrays_without_the_last_classes_are_told_how_to_say_so(data, classes, advice):
    with pytest.raises(CovshiftError, match="distinguishes 10 classes") as caught:
        open_model("builtin:resnet20").check_classes(classes, data)
    assert ("or add ?classes=10" in str(caught.value)) == advice


def test_opening_leaves_the_global_generator_alone():
    before = torch.get_rng_state()
    builtin.open_network("resnet20")
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.slow
@pytest.mark.network
def test_the_clean_error_is_what_the_card_says():
    test = cifar10.load("test")
    for name in builtin.names():
        network, _, _, card = builtin.open_network(name)
        assert error(network, ArrayFeed(test, test, "crop")) == pytest.approx(card["clean error"], abs=5e-4)
