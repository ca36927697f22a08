"""Calling any model: where it is, what it is given, and where the logits are in what it returns."""

from collections.abc import Iterable, Mapping
from numbers import Number
from typing import Any

import numpy as np
import torch
from torch import Tensor

from covshift.core.wrappers import AnyModel, module_of
from covshift.support.checks import brief, check_dense
from covshift.support.errors import CovshiftError
from covshift.support.pixels import PixelBatches, is_pixels

_CHUNK = 64  # images at a time, where the data come as one tensor


def call_model(model: AnyModel, batch: Any) -> Any:
    """Return the output of `model`, on its own device, for a tensor, a tuple's first tensor, or keyword arguments."""
    module = module_of(model)
    batch = to_device(batch, device_of(module))
    if isinstance(batch, Mapping):
        return module(**batch)
    if isinstance(batch, tuple | list) and not batch:
        raise CovshiftError("expected batches of images as tensors, got an empty one")
    first = batch[0] if isinstance(batch, tuple | list) else batch
    if first is None or isinstance(first, str | bytes | Number | np.generic | np.ndarray):
        raise CovshiftError(
            f"expected batches of images as tensors, (images, labels) tuples or mappings, got {brief(first)}"
        )
    return module(first)


def check_loader(loader: Any, chunk: int) -> Iterable[Any]:
    """Return the batches of a loader, or of one big tensor `chunk` images at a time; raise where there are none."""
    if isinstance(loader, Tensor):
        check_dense(loader, "the images")
        if loader.ndim < 2 or loader.is_complex():
            got = f"{loader.dtype} of shape {tuple(loader.shape)}"
            raise CovshiftError(f"expected a tensor of images, [images, channels, ...], got {got}")
        return list(loader.split(chunk))
    if not isinstance(loader, Iterable) or isinstance(loader, str | bytes):
        raise CovshiftError(f"expected a loader that gives batches of images, got {type(loader).__name__}")
    return loader


def batches_of(model: object, loader: object) -> Iterable[Any]:
    """Return the batches of a loader, or of one tensor; uint8 images go through the preprocessing of the model."""
    if is_pixels(loader):
        preprocess = getattr(model, "preprocess", None)
        if not callable(preprocess):
            raise CovshiftError(
                "expected batches of the model's input, got uint8 images; give what open_model returns, which knows "
                "its preprocessing, or normalise them first"
            )
        return PixelBatches(loader, preprocess, _CHUNK)
    return check_loader(loader, _CHUNK)


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
        if device.type == "cuda" and batch.device.type == "cpu":
            # From pinned memory the copy runs beside the device's work, and nothing waits for it.
            return batch.pin_memory().to(device, non_blocking=True)
        return batch.to(device, copy=copy)
    if isinstance(batch, Mapping):
        return {key: to_device(value, device, copy=copy) for key, value in batch.items()}
    if isinstance(batch, tuple | list):
        moved = [to_device(value, device, copy=copy) for value in batch]
        return type(batch)(*moved) if hasattr(batch, "_fields") else moved
    return batch
