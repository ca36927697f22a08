"""The share of each class among images without labels: maximum likelihood label shift."""

import math

import torch
from torch import Tensor

_STEPS = 200
_LEAST = 1e-6  # share of a class, so that none is ruled out
_GROUPS = 20  # classes, or groups of these, that a mix is compared in


def estimate_mix(logits: Tensor, temperature: float, usual: Tensor) -> Tensor:
    """Return the shares of classes that make a model's answers most likely, [classes], by expectation maximisation.

    The probabilities of a model are those for the usual mix of classes. For another mix they are to be multiplied by
    the ratio of the shares; and the shares must be the mean of what results.

    Args:
        logits: the model's logits, [images, classes].
        temperature: divides the logits, so that the probabilities are about right.
        usual: the shares of the classes that the model is used to, [classes].

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


def unusual(shares: Tensor, usual: Tensor, images: int) -> float:
    """Return how far a mix of classes is from the usual one, beyond chance: at most 1, and about 0 for the usual one.

    Of many classes some hundred images tell little one by one, so that they are compared in groups of neighbours.

    Args:
        shares: the share of each class, [classes].
        usual: the usual one, [classes].
        images: the number of images that the shares were found on.
    """
    groups = torch.arange(len(usual)) * min(len(usual), _GROUPS) // len(usual)
    found, wanted = (torch.zeros(_GROUPS).double().index_add(0, groups, each.double()) for each in (shares, usual))
    return apart(found, wanted) - apart_by_chance(wanted, images)


def apart(shares: Tensor, usual: Tensor) -> float:
    """Return the total variation between two mixes of classes: 0 for equal ones, 1 if they share no class."""
    return float((shares.double() - usual.double()).abs().sum()) / 2


def apart_by_chance(usual: Tensor, images: int) -> float:
    """Return the total variation that a sample of images of the usual mix is expected to have from it."""
    usual = usual.double()
    return float((2 * usual * (1 - usual) / (math.pi * images)).sqrt().sum()) / 2
