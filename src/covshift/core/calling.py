"""Calling any model: where it is, what it is given, and where the logits are in what it returns."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from covshift.core.wrappers import AnyModel, module_of
from covshift.support.errors import CovshiftError


def call_model(model: AnyModel, batch: Any) -> Any:
    """Return the output of `model`, on its own device, for a tensor, a tuple's first tensor, or keyword arguments."""
    module = module_of(model)
    batch = to_device(batch, device_of(module))
    if isinstance(batch, Mapping):
        return module(**batch)
    return module(batch[0] if isinstance(batch, tuple | list) else batch)


def device_of(model: AnyModel) -> torch.device:
    """Return the device of the model's parameters."""
    return next((tensor.device for tensor in module_of(model).parameters()), torch.device("cpu"))


def logits_of(output: Any) -> Tensor:
    """Return the logits in a model's output: the output itself, or its `logits` if it is an object or a mapping.

    >>> logits_of({"loss": None, "logits": torch.zeros(2, 10)}).shape
    torch.Size([2, 10])
    """
    logits = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", output)
    if not isinstance(logits, Tensor):
        raise CovshiftError(
            f"expected a model that returns a tensor, or an object or a dict with logits, got {type(output).__name__}; "
            "wrap it in a module whose forward returns the logits only"
        )
    return logits


def to_device(batch: Any, device: torch.device, *, copy: bool = False) -> Any:
    """Return the same batch with all of its tensors on a device."""
    if isinstance(batch, Tensor):
        return batch.to(device, copy=copy)
    if isinstance(batch, Mapping):
        return {key: to_device(value, device, copy=copy) for key, value in batch.items()}
    if isinstance(batch, tuple | list):
        moved = [to_device(value, device, copy=copy) for value in batch]
        return type(batch)(*moved) if hasattr(batch, "_fields") else moved
    return batch
