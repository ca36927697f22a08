"""The networks in the package: weights and cards fit, and the clean error is what the card says."""

import pytest
import torch

from covshift.data import cifar10
from covshift.models import builtin
from covshift.models.command import find
from covshift.recipes.feed import ArrayFeed
from covshift.recipes.recipe import RECIPES
from covshift.recipes.run import error


def test_every_network_opens_and_has_a_whole_card():
    for name in builtin.names():
        network, mean, std, card = builtin.open_builtin(name)
        assert not network.training
        assert len(mean) == len(std) == 3
        assert card["name"] == name
        assert name in RECIPES
        assert card["parameters"] == sum(p.numel() for p in network.parameters())
        assert 0 < card["clean error"] < 0.2
        assert network(torch.zeros(1, 3, 32, 32)).isfinite().all()
        assert find(f"builtin:{name}")[0].params == card["parameters"]


@pytest.mark.slow
@pytest.mark.network
def test_the_clean_error_is_what_the_card_says():
    test = cifar10.load("test")
    for name in builtin.names():
        network, _, _, card = builtin.open_builtin(name)
        assert error(network, ArrayFeed(test, test, "crop")) == pytest.approx(card["clean error"], abs=5e-4)
