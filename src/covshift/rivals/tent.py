"""TENT: gradient steps on the scales and shifts of normalisation layers make the answers surer."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from covshift.core.calling import logits_of
from covshift.core.finding import find_layers
from covshift.core.places import NormLayer, give_back
from covshift.rivals.base import Answer, Pair, Rival, renormalise
from covshift.support.checks import check_flags, check_number
from covshift.support.errors import CovshiftError


@dataclass(frozen=True)
class Tent(Rival):
    """TENT: normalise by the batch, answer, then take a step of Adam down the entropy of the answers.

    Wang et al., Tent: fully test-time adaptation by entropy minimization, 2021.

    Attributes:
        lr: the learning rate of Adam.
        episodic: whether each batch begins with the weights that the model came with.
    """

    lr: float = 1e-3
    episodic: bool = False

    def __post_init__(self) -> None:
        check_number(self.lr, "lr", 0)
        check_flags(episodic=self.episodic)

    @contextmanager
    def answering(self, model: nn.Module) -> Iterator[Answer]:
        """Follow a stream by steps on the weights, which are restored at the end; see `Rival`."""
        layers = find_layers(model)
        trained = _scales_and_shifts(layers)
        came_with = [parameter.detach().clone() for parameter in trained]
        handles = [handle for layer in layers for handle in layer.hook(_by_batch)]
        with _only_learning(model, trained):
            optimiser = torch.optim.Adam(trained, self.lr)

            def answer(images: Tensor) -> Tensor:
                nonlocal optimiser
                if self.episodic:
                    _restore(trained, came_with)
                    optimiser = torch.optim.Adam(trained, self.lr)
                with torch.inference_mode(False), torch.enable_grad():
                    logits = logits_of(model(images.clone()))  # a clone, for images made in inference mode
                    optimiser.zero_grad()
                    entropy(logits).mean().backward()
                    optimiser.step()
                return logits.detach()

            try:
                yield answer
            finally:
                give_back(layers, handles)
                _restore(trained, came_with)


def entropy(logits: Tensor) -> Tensor:
    """Return the entropy of each answer in nats."""
    return -(logits.softmax(1) * logits.log_softmax(1)).sum(1)


def _by_batch(layer: NormLayer, passing: Any) -> Any:
    """Normalise by the batch in a way that gradients pass through, statistics included."""
    x = layer.read(passing)
    var, mean = torch.var_mean(x, [0, *range(2, x.ndim)], correction=0)
    return layer.replaced(passing, renormalise(x, layer, Pair(mean, var)))


def _scales_and_shifts(layers: list[NormLayer]) -> list[nn.Parameter]:
    found = [getattr(layer.module, name, None) for layer in layers for name in ("weight", "bias")]
    parameters = [each for each in found if isinstance(each, nn.Parameter)]
    if not parameters:
        raise CovshiftError(
            "TENT trains the scales and shifts of normalisation layers, and the model's have none; leave TENT out"
        )
    return parameters


@contextmanager
def _only_learning(model: nn.Module, trained: list[nn.Parameter]) -> Iterator[None]:
    """Let gradients reach only these parameters for the length of a block."""
    parameters = list(model.parameters())
    before = [(each.requires_grad, each.grad) for each in parameters]
    for each in parameters:
        each.requires_grad_(False)
        each.grad = None
    for each in trained:
        each.requires_grad_(True)
    try:
        yield
    finally:
        for each, (learns, gradient) in zip(parameters, before, strict=True):
            each.requires_grad_(learns)
            each.grad = gradient


def _restore(parameters: list[nn.Parameter], values: list[Tensor]) -> None:
    with torch.no_grad():
        for parameter, value in zip(parameters, values, strict=True):
            parameter.copy_(value)
