"""Moments as the tensors of a safetensors file."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from covshift.core.moments import Moments

_PARTS = ("counts", "mean", "var")


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
