"""The model itself, inside of whatever wraps it: `open_model`'s `Model`, `torch.compile`, DistributedDataParallel."""

from typing import Any, cast

import torch
from torch import nn

from covshift.support.errors import CovshiftError


def module_of(model: Any) -> nn.Module:
    """Return the module itself of what `open_model` returns, or of anything else that holds one as its `module`."""
    if isinstance(model, nn.Module):
        return model  # wrappers in torch have a `module`, too, and are called for what they add
    module = getattr(model, "module", None)
    if not isinstance(module, nn.Module):
        raise CovshiftError(f"expected a torch.nn.Module, got {type(model).__name__}")
    return module


def peel(model: nn.Module) -> nn.Module:
    """Return the model inside `torch.compile` and DistributedDataParallel, so that paths do not depend on these."""
    model = module_of(model)
    if isinstance(model, nn.parallel.DistributedDataParallel):
        return peel(cast(nn.Module, model.module))
    if isinstance(inner := getattr(model, "_orig_mod", None), nn.Module):
        return peel(inner)
    return model


def unwrap(model: nn.Module) -> nn.Module:
    """Return the same as `peel`, or raise a `CovshiftError` if hooks would not reach the layers of this model."""
    model = peel(model)
    if isinstance(model, nn.DataParallel):
        raise CovshiftError("DataParallel copies the layers at every call; use DistributedDataParallel or one device")
    if any(isinstance(module, torch.jit.ScriptModule) for module in model.modules()):
        raise CovshiftError(
            "TorchScript runs without Python hooks; adapt or estimate on the original module, apply the "
            "statistics to it, and script it again"
        )
    return model
