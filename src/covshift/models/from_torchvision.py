"""`torchvision:NAME[/WEIGHTS]`: torchvision's classifiers and the weights that come with them."""

import sys
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from covshift.models.base import Model
from covshift.models.checkpoint import StateDict, classes_in, read_state
from covshift.models.preprocess import IMAGENET, Preprocess
from covshift.models.query import KEYS
from covshift.models.untrained import untrained
from covshift.support.errors import CovshiftError, unknown
from covshift.support.torchvision import torchvision
from covshift.support.uri import Uri

PAPER = "IMAGENET1K_V1"
"""Name of the weights that the paper uses, and the default where a model has them."""

NONE = "none"


def names() -> list[str]:
    """Return all classifiers."""
    return cast(list[str], torchvision.models.list_models(module=torchvision.models))


def weights_of(name: str) -> list[str]:
    """Return the weights of a model, the default first."""
    known = torchvision.models.get_model_weights(name)
    # Some are of a backbone only, and have no classes.
    found = [weights.name for weights in known if weights.meta["categories"]]
    first = PAPER if PAPER in found else known.DEFAULT.name
    return [first, *(weights for weights in found if weights != first)]


def family(name: str) -> str:
    """Return the family of a model: the name of torchvision's module that defines it."""
    return str(torchvision.models.get_model_builder(name).__module__.rpartition(".")[2])


def build(name: str, **settings: Any) -> nn.Module:
    """Return a model without its weights, as torchvision makes it for them."""
    if family(name) in ("googlenet", "inception"):
        # Their weights were trained on inputs from -1 to 1; the model itself brings ImageNet's range there.
        settings = {"transform_input": True, "init_weights": False} | settings
    return cast(nn.Module, torchvision.models.get_model(name, weights=None, **settings))


def load(uri: Uri) -> Model:
    """Return the model with its weights; `NAME/none` is untrained, the same every time."""
    uri.check_query(*KEYS)
    name, weights = _resolve(uri)
    if weights is None:
        return Model(f"torchvision:{name}/{NONE}", untrained(partial(build, name)), IMAGENET)
    large = "SWAG" in weights.name  # of 3.6 billion images of Instagram
    full = f"torchvision:{name}/{weights.name}"
    return Model(full, _download(name, weights), _preprocess(weights), "large-scale" if large else "")


def architecture(uri: Uri, state: StateDict, classes: int | None) -> Model:
    """Return the model without its weights, with as many classes, heads and patches as the checkpoint has."""
    uri.check_query(*KEYS)
    name, weights = _resolve(uri)
    settings: dict[str, Any] = {}
    if family(name) in ("googlenet", "inception"):
        settings["aux_logits"] = any(key.lower().startswith("aux") for key in state)
    if family(name) == "vision_transformer" and weights is not None:
        settings["image_size"] = weights.meta["min_size"][0]
    plain = untrained(partial(build, name, **settings), shapes_only=True)
    settings["num_classes"] = classes or classes_in(state, plain, 1000)
    module = untrained(partial(build, name, **settings))
    full = f"torchvision:{name}/{NONE if weights is None else weights.name}"
    return Model(full, module, IMAGENET if weights is None else _preprocess(weights))


def _resolve(uri: Uri) -> tuple[str, Any]:
    """Return the name of the model, and its weights as torchvision knows them."""
    name, slash, wanted = uri.name.partition("/")
    if name not in names():
        raise unknown("torchvision model", name, names())
    if wanted.lower() == NONE:
        return name, None
    known = torchvision.models.get_model_weights(name)
    if wanted == "DEFAULT":
        return name, known.DEFAULT
    wanted = wanted if slash else weights_of(name)[0]
    if wanted not in weights_of(name):
        raise unknown(f"weights of {name}", wanted, [*weights_of(name), NONE])
    return name, known[wanted]


def _preprocess(weights: Any) -> Preprocess:
    how = weights.transforms()
    return Preprocess(how.resize_size[0], how.crop_size[0], how.interpolation.value, how.mean, how.std)


def _download(name: str, weights: Any) -> nn.Module:
    path = Path(torch.hub.get_dir()) / "checkpoints" / Path(weights.url).name
    if path.exists():
        # Torchvision checks what it downloads, but would run whatever code it finds in a file that is there.
        read_state(path)
    try:
        model = torchvision.models.get_model(name, weights=weights, progress=sys.stderr.isatty())
    except (OSError, RuntimeError) as error:
        raise CovshiftError(
            f"cannot get the weights {weights.name} of {name} ({error}); fetch {weights.url} by other means and put it "
            f"at {path}, or open a file that you have with file:PATH?arch=torchvision:{name}/{weights.name}"
        ) from error
    return cast(nn.Module, model)
