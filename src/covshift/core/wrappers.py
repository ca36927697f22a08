"""The model itself, inside of whatever wraps it: `open_model`'s `Model`, `torch.compile`, DistributedDataParallel."""

from typing import Any, Protocol, cast

import torch
from torch import nn

from covshift.support.errors import CovshiftError


class HasModule(Protocol):
    """An object that holds a torch module, such as the `Model` that `open_model` returns."""

    @property
    def module(self) -> nn.Module:
        """The module itself."""


AnyModel = nn.Module | HasModule
"""A torch module, or an object that holds one as its `module`: what every public function takes as a model."""


def module_of(model: AnyModel | Any) -> nn.Module:
    """Return the torch module itself: a `Model` of `open_model`, or another holder, gives its `module`."""
    if isinstance(model, nn.Module):
        return model  # wrappers in torch have a `module`, too, and are called for what they add
    module = getattr(model, "module", None)
    if not isinstance(module, nn.Module):
        raise CovshiftError(f"expected a torch.nn.Module, got {type(model).__name__}")
    return module


def peel(model: AnyModel) -> nn.Module:
    """Return the model inside `torch.compile` and DistributedDataParallel, so that paths do not depend on these."""
    model = module_of(model)
    if isinstance(model, nn.parallel.DistributedDataParallel):
        return peel(cast(nn.Module, model.module))
    if isinstance(inner := getattr(model, "_orig_mod", None), nn.Module):
        return peel(inner)
    return model


def unwrap(model: AnyModel) -> nn.Module:
    """Return what `peel` returns, or raise a `CovshiftError` if hooks would not reach the layers of this model."""
    model = peel(model)
    if isinstance(model, nn.DataParallel):
        raise CovshiftError("DataParallel copies the layers at every call; use DistributedDataParallel or one device")
    if any(isinstance(module, torch.jit.ScriptModule) for module in model.modules()):
        raise CovshiftError(
            "TorchScript runs without Python hooks; adapt or estimate on the original module, apply the "
            "statistics to it, and script it again"
        )
    return model


def unwrap_eval(model: AnyModel) -> nn.Module:
    """Return what `unwrap` returns, or raise a `CovshiftError` if that is in training mode."""
    module = unwrap(model)
    if module.training:
        raise CovshiftError("the model is in training mode; call model.eval() first")
    return module
