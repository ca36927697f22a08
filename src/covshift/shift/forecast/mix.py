"""The share of each class among images without labels: maximum likelihood label shift."""

import math

from torch import Tensor

_STEPS = 200
_LEAST = 1e-6  # share of a class, so that none is ruled out


def estimate_mix(logits: Tensor, temperature: float, usual: Tensor) -> Tensor:
    """Return the shares of classes that make a model's answers most likely, [classes], by expectation maximisation.

    The probabilities of a model are those for the usual mix of classes. For another mix they are to be multiplied by
    the ratio of the shares; and the shares must be the mean of what results.

    Args:
        logits: the model's logits, [images, classes].
        temperature: divides the logits, so that the probabilities are about right.
        usual: the shares of the classes that the model is used to, [classes].

    >>> import torch
    >>> estimate_mix(20 * torch.eye(2)[[0, 0, 0, 1]], 1.0, torch.tensor([0.5, 0.5])).round(decimals=2)
    tensor([0.7500, 0.2500], dtype=torch.float64)
    """
    usual = usual.double().clamp(min=_LEAST)
    likely = (logits.double() / temperature).softmax(1) / usual
    shares = usual / usual.sum()
    for _ in range(_STEPS):
        each = likely * shares
        shares = (each / each.sum(1, keepdim=True)).mean(0).clamp(min=_LEAST)
        shares = shares / shares.sum()
    return shares


def apart(shares: Tensor, usual: Tensor) -> float:
    """Return the total variation between two mixes of classes: 0 for equal ones, 1 if they share no class."""
    return float((shares.double() - usual.double()).abs().sum()) / 2


def apart_by_chance(usual: Tensor, images: int) -> float:
    """Return the total variation that a sample of images of the usual mix is expected to have from it."""
    usual = usual.double()
    return float((2 * usual * (1 - usual) / (math.pi * images)).sqrt().sum()) / 2
