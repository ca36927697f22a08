"""Moments as the tensors of a safetensors file."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from covshift.core.classes import Classes, Slopes
from covshift.core.moments import Moments

_PARTS = ("counts", "mean", "var")
_SPREADS = ("spread", "spread of std")
_SLOPES = ("mean", "second", "unexplained")


def pack(layers: Mapping[str, Moments], prefix: str = "") -> dict[str, Tensor]:
    """Return the tensors that a file of moments holds."""
    tensors = {}
    for name, moments in layers.items():
        counts = torch.tensor([moments.count, moments.images], dtype=torch.float64)
        for part, tensor in zip(_PARTS, (counts, moments.mean, moments.var), strict=True):
            tensors[f"{name}/{prefix}{part}"] = tensor.detach().to("cpu", torch.float64).contiguous()
    return tensors


def unpack(file: Any, names: list[str], prefix: str = "") -> dict[str, Moments]:
    """Return the moments that an open safetensors file holds for the layers of these names."""
    layers = {}
    for name in names:
        counts, mean, var = (file.get_tensor(f"{name}/{prefix}{part}") for part in _PARTS)
        if not all(part.is_floating_point() for part in (counts, mean, var)):
            raise ValueError(f"layer {name!r} has {counts.dtype}, {mean.dtype} and {var.dtype}")
        count, images = counts.tolist()
        layers[name] = Moments(count, images, mean, var)
    return layers


def pack_spreads(*spreads: Mapping[str, Tensor], prefix: str = "") -> dict[str, Tensor]:
    """Return the tensors that a file of the spreads of a source, and of their deviations, holds."""
    return {
        f"{name}/{prefix}{ending}": tensor.detach().to("cpu", torch.float64).contiguous()
        for ending, spread in zip(_SPREADS, spreads, strict=True)
        for name, tensor in spread.items()
    }


def unpack_spreads(
    file: Any, layers: Mapping[str, Moments], prefix: str = ""
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the spreads that an open safetensors file holds for these layers, and their deviations."""

    def read(name: str, ending: str) -> Tensor:
        tensor: Tensor = file.get_tensor(f"{name}/{prefix}{ending}")
        if tensor.shape != layers[name].mean.shape or not (tensor >= 0).all() or not tensor.isfinite().all():
            raise ValueError(f"expected finite spreads from 0 for {name!r}, got others")
        return tensor

    spread, deviation = ({name: read(name, ending) for name in layers} for ending in _SPREADS)
    return spread, deviation


def pack_classes(classes: Classes) -> dict[str, Tensor]:
    """Return the tensors that a file of classes holds."""
    tensors = {" embedding": classes.embedding, " centre": classes.centre}
    for name, slopes in classes.slopes.items():
        for part in _SLOPES:
            tensors[f"{name}/slopes {part}"] = getattr(slopes, part)
    return {name: tensor.detach().to("cpu", torch.float32).contiguous() for name, tensor in tensors.items()}


def unpack_classes(file: Any, names: list[str]) -> Classes:
    """Return the classes that an open safetensors file holds, with what they do at the places of these names."""

    def read(name: str) -> Tensor:
        tensor: Tensor = file.get_tensor(name).double()
        if not tensor.isfinite().all():
            raise ValueError(f"{name!r} has NaN or infinite values")
        return tensor

    embedding, centre = read(" embedding"), read(" centre")
    slopes = {name: Slopes(*(read(f"{name}/slopes {part}") for part in _SLOPES)) for name in names}
    for name, each in slopes.items():
        if not each.mean.shape == each.second.shape == (len(centre), len(each.unexplained)):
            raise ValueError(f"what classes do at {name!r} has the wrong shape")
        if (each.unexplained < 0).any():
            raise ValueError(f"what classes leave unexplained at {name!r} is negative")
    if embedding.ndim != 2 or centre.shape != embedding.shape[1:]:
        raise ValueError("the embedding of classes has the wrong shape")
    return Classes(embedding, centre, slopes)
