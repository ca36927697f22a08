"""`builtin:NAME`: the networks that come with covshift."""

from functools import partial

from torch import nn

from covshift.models.base import Model
from covshift.models.builtin import BuiltinNetwork, names, open_network, without_weights
from covshift.models.checkpoint import StateDict, classes_in
from covshift.models.preprocess import IMAGENET, Preprocess
from covshift.models.query import KEYS
from covshift.models.untrained import untrained
from covshift.support.uri import Uri

__all__ = ["architecture", "build", "family", "load", "names"]


def load(uri: Uri) -> Model:
    """Return a network with its weights."""
    uri.check_query(*KEYS)
    return as_model(f"builtin:{uri.name}", open_network(uri.name))


def architecture(uri: Uri, state: StateDict, classes: int | None) -> Model:
    """Return the same network, for other weights and as many classes as they have."""
    uri.check_query(*KEYS)
    opened = open_network(uri.name)
    classes = classes or classes_in(state, opened.network, opened.card["classes"])
    network = untrained(partial(without_weights, uri.name, classes))
    return as_model(f"builtin:{uri.name}", opened._replace(network=network))


def as_model(uri: str, opened: BuiltinNetwork) -> Model:
    """Return a network that `covshift train` made, with the preprocessing that it was trained with."""
    small = opened.card["recipe"]["data"] == "cifar10"
    resize, size = (None, 32) if small else (IMAGENET.resize, IMAGENET.size)
    return Model(uri, opened.network, Preprocess(resize, size, "bilinear", opened.mean, opened.std))


def family(name: str) -> str:
    """Return the part of a name before the variant: resnet20-augmix is a resnet20."""
    return name.partition("-")[0]


def build(name: str) -> nn.Module:
    """Return the network, for its counts."""
    return without_weights(name)
