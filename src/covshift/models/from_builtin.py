"""`builtin:NAME`: the networks that come with covshift."""

from torch import nn

from covshift.models.base import Model
from covshift.models.builtin import Builtin, names, open_builtin, without_weights
from covshift.models.open import State
from covshift.models.preprocess import IMAGENET, Preprocess
from covshift.models.query import KEYS
from covshift.uri import Uri

__all__ = ["architecture", "build", "family", "load", "names"]


def load(uri: Uri) -> Model:
    """A network with its weights."""
    uri.check_query(*KEYS)
    return as_model(f"builtin:{uri.name}", open_builtin(uri.name))


def architecture(uri: Uri, state: State, classes: int | None) -> Model:
    """The same network, for other weights."""
    return load(uri)


def as_model(uri: str, opened: Builtin) -> Model:
    """What `covshift train` made, with the preprocessing that it was trained with."""
    (red, green, blue), (red_std, green_std, blue_std) = opened.mean, opened.std
    small = opened.card["recipe"]["data"] == "cifar10"
    resize, size = (None, 32) if small else (IMAGENET.resize, IMAGENET.size)
    preprocess = Preprocess(resize, size, "bilinear", (red, green, blue), (red_std, green_std, blue_std))
    return Model(uri, opened.network, preprocess)


def family(name: str) -> str:
    """What comes before the variant: resnet20-augmix is a resnet20."""
    return name.partition("-")[0]


def build(name: str) -> nn.Module:
    """The network, for its counts."""
    return without_weights(name)
