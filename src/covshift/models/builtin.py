"""The networks that come with covshift: trained by its own recipes, weights and model cards in the package."""

import json
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from covshift.errors import CovshiftError, unknown
from covshift.models.cifar import ResNet
from covshift.models.imagenet import imagenet_resnet

WEIGHTS = Path(__file__).parent / "weights"


class Builtin(NamedTuple):
    """A trained network in eval mode, the mean and standard deviation its input is normalised by, and its card."""

    network: nn.Module
    mean: tuple[float, ...]
    std: tuple[float, ...]
    card: dict[str, Any]


def names() -> list[str]:
    """The networks that are there."""
    return sorted(file.stem for file in WEIGHTS.glob("*.safetensors"))


def open_builtin(name: str) -> Builtin:
    """A network by its name, e.g. "resnet20"; pixels are to be divided by 255 before they are normalised."""
    if name not in names():
        raise unknown("built-in network", name, names())
    return open_weights(WEIGHTS / f"{name}.safetensors")


def without_weights(name: str) -> nn.Module:
    """The same network before training, for its layers and counts."""
    if name not in names():
        raise unknown("built-in network", name, names())
    return _network(_card(WEIGHTS / f"{name}.safetensors"))


def open_weights(file: Path) -> Builtin:
    """A network that `covshift train` wrote, from its safetensors file and the card beside it."""
    try:
        card = _card(file)
        network = _network(card)
        network.load_state_dict(load_file(file))
        mean, std = tuple(card["mean"]), tuple(card["std"])
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise CovshiftError(
            f"expected weights of covshift train in {file}, with their card beside them, got: {error}"
        ) from error
    return Builtin(network.eval(), mean, std, card)


def _card(file: Path) -> dict[str, Any]:
    card: dict[str, Any] = json.loads(file.with_suffix(".json").read_text())
    return card


def _network(card: dict[str, Any]) -> nn.Module:
    recipe = card["recipe"]
    if recipe["data"] == "imagenet":
        return imagenet_resnet(recipe["depth"], recipe["norm"], card["classes"])
    return ResNet(recipe["depth"], recipe["width"], recipe["norm"], card["classes"])
