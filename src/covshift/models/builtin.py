"""The networks that come with covshift: trained by its own recipes, weights and model cards in the package."""

import json
import math
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from torch import nn

from covshift.models.checkpoint import load_weights, read_state
from covshift.models.cifar import ResNet
from covshift.models.convnext import ConvNeXt
from covshift.models.imagenet import imagenet_resnet
from covshift.models.preprocess import Colour
from covshift.models.transformer import VisionTransformer
from covshift.models.untrained import untrained
from covshift.support.checks import check_kind
from covshift.support.errors import CovshiftError, unknown

Architecture = Literal["resnet", "vit", "convnext"]

WEIGHTS = Path(__file__).parent / "weights"

LARGEST_CARD = 1_000_000
"""Bytes of the largest card that is read; ours have less than a thousand."""

_NAME = 40
"""Bytes that the header of a safetensors file has for each tensor, at least."""


class BuiltinNetwork(NamedTuple):
    """A trained network in eval mode, the mean and standard deviation its input is normalised by, and its card."""

    network: nn.Module
    mean: Colour
    std: Colour
    card: dict[str, Any]


def names() -> list[str]:
    """Return the names of the networks."""
    return sorted(file.stem for file in WEIGHTS.glob("*.safetensors"))


def open_network(name: str) -> BuiltinNetwork:
    """Return a network by its name, e.g. "resnet20"; pixels are to be divided by 255 before they are normalised."""
    check_kind(name, str, "name", "that of a network, such as 'resnet20'")
    return open_weights(_file(name))


def without_weights(name: str, classes: int | None = None) -> nn.Module:
    """Return the network before training, for its layers and counts, or for weights with other classes."""
    return _network(_card(_file(name)), classes)


def open_weights(file: Path | str) -> BuiltinNetwork:
    """Return a network that `covshift train` wrote, from its safetensors file and the card beside it."""
    file = Path(file)
    try:
        card = _card(file)
        _check_size(card, file)
        network = untrained(partial(_network, card))
        mean, std = _colour(card["mean"]), _colour(card["std"], 0.0)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RuntimeError) as error:
        reason = f"a card without {error}" if isinstance(error, KeyError) else error
        raise CovshiftError(
            f"expected weights of covshift train in {file}, with their card beside them, got: {reason}"
        ) from error
    load_weights(network, read_state(file), file, "the network of its card", "take both from the same run")
    return BuiltinNetwork(network.eval(), mean, std, card)


def _file(name: str) -> Path:
    if name not in names():
        raise unknown("built-in network", name, names())
    return WEIGHTS / f"{name}.safetensors"


def _card(file: Path) -> dict[str, Any]:
    beside = file.with_suffix(".json")
    if (size := beside.stat().st_size) > LARGEST_CARD:
        raise ValueError(f"a card of {size:,} bytes, more than {LARGEST_CARD:,}")
    card: dict[str, Any] = json.loads(beside.read_text())
    return card


def _check_size(card: dict[str, Any], file: Path) -> None:
    """Raise a `ValueError` if a card is of a larger network than its file can hold, before that is built."""
    recipe, size = card["recipe"], file.stat().st_size
    depth, width, classes = (int(number) for number in (recipe["depth"], recipe.get("width", 1), card["classes"]))
    # A layer has 3 x 3 weights between all channels and a name in the header; the last one has weights for each class.
    least = max(depth * (9 * width**2 + _NAME), classes)
    if min(depth, width, classes) < 1 or least > size:
        raise ValueError(
            f"a card with {depth} layers, {width} channels and {classes} classes for a file of {size:,} bytes, "
            "which is not a whole safetensors file of such a network"
        )


def _colour(values: list[float], least: float = -math.inf) -> Colour:
    red, green, blue = map(float, values)
    if not all(least < value < math.inf for value in (red, green, blue)):
        raise ValueError(f"a card with the colour {values}")
    return red, green, blue


def new_network(recipe: dict[str, Any], classes: int) -> nn.Module:
    """Return the network that a recipe, as a card holds it, trains; its values are random."""
    depth = recipe["depth"]
    if recipe["data"] == "imagenet":
        return imagenet_resnet(depth, recipe["norm"], classes)
    architecture: Architecture = recipe.get("architecture", "resnet")  # cards of covshift 0.1 do not name it
    if architecture == "vit":
        return VisionTransformer(depth, recipe["width"], classes)
    if architecture == "convnext":
        return ConvNeXt(depth, recipe["width"], classes)
    if architecture != "resnet":
        raise ValueError(f"a card with the architecture {architecture!r}")
    return ResNet(depth, recipe["width"], recipe["norm"], classes)


def _network(card: dict[str, Any], classes: int | None = None) -> nn.Module:
    return new_network(card["recipe"], classes or card["classes"])
