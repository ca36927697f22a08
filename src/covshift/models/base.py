"""`Model`: a module with what has to be known to feed it and to tell it from others."""

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from covshift.core.places import holds_statistics
from covshift.models.architecture import Norm, family, norm_kind
from covshift.models.preprocess import Preprocess
from covshift.support.errors import CovshiftError

_ANY_SIZE = (32, 64, 224, 299)
"""Sides to try, in pixels, where the preprocessing leaves images as large as they are."""


@dataclass
class Model:
    """A model in eval mode, and its preprocessing.

    Attributes:
        uri: what opens the same weights again, with nothing left to defaults.
        module: the model itself.
        preprocess: how its images are resized, cropped and normalised.
    """

    uri: str
    module: nn.Module
    preprocess: Preprocess

    @cached_property
    def classes(self) -> int:
        """The number of logits, found by showing the model one black image."""
        sides = _ANY_SIZE if self.preprocess.size is None else (self.preprocess.size,)
        first: Exception | None = None
        for side in sides:
            try:
                return self._classes(side)
            except (RuntimeError, AssertionError, ValueError, TypeError, IndexError, AttributeError) as error:
                first = first or error
        tried = " or ".join(f"{side} x {side}" for side in sides)
        raise CovshiftError(
            f"{self.uri} cannot take a float32 image of {tried} px ({type(first).__name__}: {first}); "
            "check the model, or give another size="
        ) from first

    def check_classes(self, classes: int, data: str) -> None:
        """Raise a `CovshiftError` unless the data of this name have as many classes."""
        if self.classes != classes:
            few = classes < self.classes and data.startswith("npz:")
            advice = f", or say ?classes={self.classes} of arrays that lack the last ones" if few else ""
            raise CovshiftError(
                f"{self.uri} tells {self.classes} classes apart, and {data} has {classes}; "
                f"choose a model and data that belong together{advice}"
            )

    def _classes(self, side: int) -> int:
        parameter = next(self.module.parameters(), torch.empty(0))
        image = self.preprocess.tensor(np.zeros((1, side, side, 3), np.uint8), parameter.device)
        with torch.no_grad():
            logits = self.module(image)
        if not isinstance(logits, Tensor) or logits.ndim != 2 or len(logits) != 1:
            got = f"shape {tuple(logits.shape)}" if isinstance(logits, Tensor) else type(logits).__name__
            raise CovshiftError(
                f"expected {self.uri} to give logits of shape (images, classes), got {got}; "
                "wrap it in a module whose forward returns the logits only"
            )
        return logits.shape[1]

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of all that the model holds: names, shapes, types and values; read it before adapting."""
        sha = hashlib.sha256()
        for name, tensor in sorted(self.module.state_dict().items()):
            if isinstance(tensor, Tensor):  # a module may keep anything as its "extra state"
                sha.update(json.dumps([name, list(tensor.shape), str(tensor.dtype)]).encode())
                values = tensor.detach().cpu().contiguous().reshape(-1)
                sha.update(values.view(torch.uint8).numpy().data if len(values) else b"")
        return sha.hexdigest()

    @property
    def family(self) -> str:
        """The family of its architecture, e.g. ResNet; else the name of its class."""
        return family(self.module)

    @property
    def norm(self) -> Norm:
        """How it normalises: batch, group, layer, instance, fixup or none."""
        return norm_kind(self.module)

    @property
    def params(self) -> int:
        """The number of parameters."""
        return count(self.module).params

    @property
    def bn_params(self) -> int:
        """How many of them are scales and shifts of layers that hold statistics."""
        return count(self.module).bn_params


class Counts(NamedTuple):
    """The columns of the paper's table of models."""

    params: int
    bn_params: int


def count(module: nn.Module) -> Counts:
    """All parameters, and the affine ones of the normalisation layers that hold statistics.

    >>> count(nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8)))
    Counts(params=232, bn_params=16)
    """
    norms = (layer for layer in module.modules() if holds_statistics(layer))
    return Counts(
        sum(parameter.numel() for parameter in module.parameters()),
        sum(parameter.numel() for layer in norms for parameter in layer.parameters(recurse=False)),
    )
