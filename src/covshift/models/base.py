"""`Model`: a module with its preprocessing, and what identifies its weights."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from covshift.core.calling import call_model, device_of, logits_of
from covshift.core.identity import digest
from covshift.core.places import holds_statistics
from covshift.core.wrappers import AnyModel, module_of
from covshift.models.architecture import NormKind, Pretraining, family, norm_kind
from covshift.models.preprocess import Preprocess
from covshift.support.checks import check_function, check_kind
from covshift.support.errors import CovshiftError
from covshift.support.pixels import Images, MakeInput, is_pixels

_ANY_SIZE = (32, 64, 224, 299)
"""Sides to try, in pixels, where the preprocessing leaves images as large as they are."""


@dataclass(repr=False)
class Model:
    """A module in eval mode, and its preprocessing; every function that takes a module takes this too.

    Attributes:
        uri: the URI that opens the same weights again, with nothing left to defaults.
        module: the module itself.
        preprocess: the preprocessing of its images: how they are resized, cropped and normalised.
        pretraining: "large-scale" or "simclr" where its source knows of such a pre-training.
    """

    uri: str
    module: nn.Module
    preprocess: Preprocess
    pretraining: Pretraining = ""

    def __post_init__(self) -> None:
        check_kind(self.uri, str, "uri", "a text")
        check_kind(self.module, nn.Module, "module", "a torch module")
        check_kind(self.preprocess, Preprocess, "preprocess", "a covshift.models.Preprocess")

    def __repr__(self) -> str:
        return f"Model({self.uri!r}, {type(self.module).__name__} on {device_of(self.module)})"

    def __call__(self, images: Images) -> Tensor:
        """Return the logits for a batch, on the module's own device.

        Args:
            images: the model's input, as `Data.loader` gives it; or uint8 images, NumPy NHWC or torch NCHW, which are
                resized, cropped and normalised first.
        """
        batch = self.preprocess(images) if is_pixels(images) else images
        return logits_of(call_model(self.module, batch))

    @property
    def classes(self) -> int:
        """The number of logits, found by showing the model one black image."""
        return self._probe[1]

    @property
    def side(self) -> int:
        """The side of a square input in pixels: that of the crop, or else one that the model can take."""
        return self._probe[0]

    @cached_property
    def _probe(self) -> tuple[int, int]:
        """A side that the model takes, and the number of its logits."""
        sides = _ANY_SIZE if self.preprocess.size is None else (self.preprocess.size,)
        first: Exception | None = None
        for side in sides:
            try:
                return side, self._classes(side)
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
            advice = f", or add ?classes={self.classes} to arrays that lack the last ones" if few else ""
            raise CovshiftError(
                f"{self.uri} distinguishes {self.classes} classes, and {data} has {classes}; "
                f"choose a model and data that belong together{advice}"
            )

    def _classes(self, side: int) -> int:
        image = self.preprocess.tensor(np.zeros((1, side, side, 3), np.uint8), device_of(self.module))
        with torch.no_grad():
            output = self.module(image)
        try:
            logits = logits_of(output)
        except CovshiftError as error:
            raise self._no_logits(type(output).__name__) from error
        if logits.ndim != 2 or len(logits) != 1:
            raise self._no_logits(f"shape {tuple(logits.shape)}")
        return logits.shape[1]

    def _no_logits(self, got: str) -> CovshiftError:
        return CovshiftError(
            f"expected {self.uri} to return logits of shape (images, classes), got {got}; "
            "wrap it in a module whose forward returns the logits only"
        )

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of all that the model holds: names, shapes, types and values; read it before adapting."""
        return digest(self.module)

    @property
    def family(self) -> str:
        """The family of its architecture, e.g. ResNet; else the name of its class."""
        return family(self.module)

    @property
    def norm(self) -> NormKind:
        """The kind of normalisation: batch, group, layer, instance, fixup or none."""
        return norm_kind(self.module)

    @property
    def params(self) -> int:
        """The number of parameters."""
        return count(self.module).params

    @property
    def bn_params(self) -> int:
        """The number of parameters that are scales and shifts of layers that hold statistics."""
        return count(self.module).bn_params


class Counts(NamedTuple):
    """The columns of the paper's table of models."""

    params: int
    bn_params: int


def preprocess_of(model: AnyModel, given: MakeInput | None = None) -> MakeInput | None:
    """Return the preprocessing that was given or else the one of a `Model`; a bare module has none of its own."""
    check_function(given, "preprocess")
    if given is not None:
        return given
    return model.preprocess if isinstance(model, Model) else None


def count(model: AnyModel) -> Counts:
    """Count all parameters, and the affine ones of the normalisation layers that hold statistics.

    >>> count(nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8)))
    Counts(params=232, bn_params=16)
    """
    module = module_of(model)
    norms = (layer for layer in module.modules() if holds_statistics(layer))
    return Counts(
        sum(parameter.numel() for parameter in module.parameters()),
        sum(parameter.numel() for layer in norms for parameter in layer.parameters(recurse=False)),
    )
