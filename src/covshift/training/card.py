"""The results of a training run: weights as safetensors, and a card that records where they come from."""

import json
import platform
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import nn

from covshift.support.files import replacing
from covshift.training.feed import Feed
from covshift.training.recipe import Recipe
from covshift.training.state import Epoch


def export(network: nn.Module, recipe: Recipe, feed: Feed, seed: int, history: list[Epoch], folder: Path) -> Path:
    """Write NAME.safetensors and NAME.json, the card, and return the path of the weights."""
    weights = folder / f"{recipe.name}.safetensors"
    # The count of batches serves training only.
    state = {name: tensor for name, tensor in network.state_dict().items() if not name.endswith("num_batches_tracked")}
    with replacing(weights) as part:
        part.write_bytes(save({name: tensor.contiguous() for name, tensor in state.items()}))
    with replacing(weights.with_suffix(".json")) as part:
        part.write_text(json.dumps(card(network, recipe, feed, seed, history), indent=2) + "\n")
    return weights


def card(network: nn.Module, recipe: Recipe, feed: Feed, seed: int, history: list[Epoch]) -> dict[str, Any]:
    """Return recipe, seed, preprocessing, clean error, command and versions, as JSON can hold them."""
    assert history[-1].test_error is not None
    data = "" if recipe.data == "cifar10" else " --data DIR"
    precision = "" if recipe.precision == "float32" else f" --precision {recipe.precision}"
    return {
        "name": recipe.name,
        "recipe": asdict(recipe),
        "seed": seed,
        "classes": feed.classes,
        "mean": feed.mean,
        "std": feed.std,
        "parameters": sum(p.numel() for p in network.parameters()),
        "clean error": round(history[-1].test_error, 6),
        "train loss": round(history[-1].loss, 6),
        "hours": round(sum(row.seconds for row in history) / 3600, 2),
        "command": f"covshift train {recipe.name}{data} --epochs {recipe.epochs} --rate {recipe.rate:g} --seed {seed}"
        + precision,
        "versions": {"covshift": version("covshift"), "torch": torch.__version__, "python": platform.python_version()},
    }
