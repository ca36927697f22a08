"""`Rival`: a published rule that answers a stream of images, batch after batch, and leaves the model as it found it."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from covshift.core.finding import find_layers
from covshift.core.places import NormLayer, give_back
from covshift.support.errors import CovshiftError, is_number

Answer = Callable[[Tensor], Any]
"""A function that returns the logits of a batch, and may learn from the batch for the next one."""


@dataclass(frozen=True)
class Rival(ABC):
    """A rule that others have published, with its defaults; a subclass is a frozen dataclass of its options.

    Attributes:
        needs_statistics: whether the rule works on layers that hold running statistics.
        usual_n: the number of images in a batch that the rule was published with.
    """

    needs_statistics: ClassVar[bool] = True
    usual_n: ClassVar[int] = 64

    @abstractmethod
    def answering(self, model: nn.Module) -> AbstractContextManager[Answer]:
        """Return a block in which a function answers batches, from the start of a stream to its end.

        Whatever the rule learns begins with the block and ends with it: the model is restored bit for bit.

        Args:
            model: the model in eval mode.
        """


class Pair(NamedTuple):
    """A mean and a variance, [channels] for a whole batch or [images, channels] with a line for each image."""

    mean: Tensor
    var: Tensor


class Step(NamedTuple):
    """What one batch makes of a layer: the statistics to normalise it by, and what to keep for the next batch."""

    use: Pair
    keep: Pair | None = None


@dataclass(frozen=True)
class NormRival(Rival):
    """A rule on the statistics of normalisation layers; a subclass writes what one batch does to one layer."""

    @abstractmethod
    def step(self, layer: NormLayer, kept: Pair | None, x: Tensor) -> Step:
        """Return the statistics that a layer normalises a batch by, and what it keeps.

        Args:
            layer: the layer, with its source statistics `mean` and `var`.
            kept: what the batch before has kept; None at the start of a stream.
            x: the layer's input, [images, channels, ...].
        """

    @contextmanager
    def answering(self, model: nn.Module) -> Iterator[Answer]:
        """Follow a stream with the rule on all layers that hold statistics; see `Rival`."""
        layers = find_layers(model)
        kept: dict[str, Pair | None] = {}

        def act(layer: NormLayer, passing: Any) -> Any:
            x = layer.read(passing)
            use, kept[layer.path] = self.step(layer, kept.get(layer.path), x)
            if use.mean.ndim == 1:
                layer.write(*use)
                return None
            return layer.replaced(passing, renormalise(x, layer, use))

        handles = [handle for layer in layers for handle in layer.hook(act)]
        try:
            with torch.inference_mode():
                yield model
        finally:
            give_back(layers, handles)


def renormalise(x: Tensor, layer: NormLayer, by: Pair) -> Tensor:
    """Shift and scale the input of a layer so that its own statistics finish what normalising by others begins.

    The layer makes (x - μ)/√(σ²+ε) of (x - μ)·√((σ_s²+ε)/(σ²+ε)) + μ_s, with μ_s, σ_s² its own statistics.
    """
    scale = ((layer.var + layer.eps) / (by.var + layer.eps)).sqrt()
    shift = layer.mean - by.mean * scale
    shape = (-1, len(layer.mean), *[1] * (x.ndim - 2))
    return torch.addcmul(shift.reshape(shape), x, scale.reshape(shape)).to(x.dtype)


def check_share(value: object, name: str) -> None:
    """Raise a `CovshiftError` unless an option is a number from 0 to 1."""
    if not is_number(value) or not 0 <= value <= 1:  # type: ignore[operator]
        raise CovshiftError(f"expected {name} to be a number from 0 to 1, got {value!r}")


def each_image(x: Tensor) -> Pair:
    """Return the mean and the biased variance of each image and channel; both [images, channels]."""
    var, mean = torch.var_mean(x.flatten(2), 2, correction=0)
    return Pair(mean, var)
