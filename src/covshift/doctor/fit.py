"""How well images fit what a model was trained on, without labels: the input of its first normalisation layer."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from covshift.core.finding import find_layers
from covshift.core.moments import Moments, measure, merge, widen
from covshift.core.places import Place

_FLOOR = 0.01  # of the mean variance: a channel that is almost dead would drown all others


class Fit(NamedTuple):
    """The distance of the images from what a layer was trained on.

    Attributes:
        layer: the path of the layer in the model.
        distance: the distance between source statistics and those of the images, in standard deviations of the source:
            the root of the mean over channels of the squared 2-Wasserstein distance between normal distributions.
            Images like those of the training give 0.1 to 0.3, a wrong mean and std 0.5 and more.
    """

    layer: str
    distance: float


class _Enough(Exception):  # noqa: N818, nothing is wrong
    """The signal that the layer has seen its input, so that the rest of the network need not run."""


def first_layer(model: nn.Module, inputs: Iterable[Tensor]) -> Fit | None:
    """Compare the statistics that the first normalisation layer holds with those of its input.

    Returns:
        None where no layer that holds statistics is reached.
    """
    seen: list[tuple[Place, Moments]] = []

    def act(layer: Place, passing: Any) -> None:
        x = layer.read(passing)
        seen.append((layer, measure(x, len(x))))
        raise _Enough

    handles = [handle for layer in find_layers(model) for handle in layer.hook(act)]
    try:
        with torch.inference_mode():
            for batch in inputs:
                try:
                    model(batch)
                except _Enough:
                    continue
    finally:
        for handle in handles:
            handle.remove()
    if not seen:
        return None
    layer, target = seen[0]
    for _, moments in seen[1:]:
        target = merge(target, moments)
    return Fit(layer.path, _distance(layer, target))


def _distance(layer: Place, target: Moments) -> float:
    var = widen(layer.var)
    scale = var + _FLOOR * var.mean()
    offset = (widen(target.mean) - widen(layer.mean)).square()
    spread = (widen(target.var).sqrt() - var.sqrt()).square()
    return float(((offset + spread) / scale).mean().sqrt())
