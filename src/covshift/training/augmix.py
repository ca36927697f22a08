"""AugMix (Hendrycks et al., 2020): mixed chains of simple operations, and a loss that wants them classified alike.

None of the operations is one of the test corruptions: no noise, blur, contrast, colour, brightness or sharpness.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from covshift.support.arrays import Array
from covshift.training import loops as kernels

OPERATIONS = (
    "autocontrast",
    "equalize",
    "posterize",
    "solarize",
    "rotate",
    "shear_x",
    "shear_y",
    "translate_x",
    "translate_y",
)
CHAINS, DEPTH, SEVERITY = 3, 3, 3.0
CONSISTENCY = 12.0
"""The weight of the Jensen-Shannon divergence in the loss."""


class Draws(NamedTuple):
    """All that is random in AugMix, for a batch of n images."""

    ops: Array  # n x chains x depth: which operation
    amounts: Array  # n x chains x depth: how much of it
    depths: Array  # n x chains: how many operations
    weights: Array  # n x chains, of sum 1
    strength: Array  # n: how much of the mixture, against the image itself


def draw(rng: np.random.Generator, count: int, size: int) -> Draws:
    """Draw operations and weights for `count` images of `size` pixels."""
    shape = (count, CHAINS, DEPTH)
    ops = rng.integers(len(OPERATIONS), size=shape)
    level = rng.uniform(0.1, SEVERITY, shape) / 10
    sign = rng.choice((-1.0, 1.0), shape)
    amount_of = {
        "posterize": 4 - np.floor(4 * level),
        "solarize": 256 - np.floor(256 * level),
        "rotate": sign * np.floor(30 * level),
        "shear_x": sign * 0.3 * level,
        "shear_y": sign * 0.3 * level,
        "translate_x": sign * np.floor(size / 3 * level),
        "translate_y": sign * np.floor(size / 3 * level),
    }
    none = np.zeros(shape)
    amounts = np.choose(ops, [amount_of.get(name, none) for name in OPERATIONS])
    depths = rng.integers(1, DEPTH + 1, size=shape[:2])
    weights = rng.dirichlet(np.ones(CHAINS), count).astype(np.float32)
    return Draws(ops, amounts, depths, weights, rng.beta(1, 1, count).astype(np.float32))


def mix(images: Array, rng: np.random.Generator) -> Array:
    """Return a mixed version of each image: uint8 NHWC in, float32 in [0, 255] out.

    >>> images = np.full((1, 32, 32, 3), 200, np.uint8)
    >>> mixed = mix(images, np.random.default_rng(0))
    >>> mixed.shape, bool((mixed <= 255).all())
    ((1, 32, 32, 3), True)
    """
    out = np.zeros(images.shape, np.float32)
    kernels.mix_chains(images, *draw(rng, len(images), images.shape[1]), out)
    return out.clip(0, 255)


def divergence(*logits: Tensor) -> Tensor:
    """Return the Jensen-Shannon divergence of the predictions, averaged over the images: 0 if and only if they agree.

    >>> divergence(torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, 2.0]])).item()
    0.0
    """
    predictions = torch.stack([F.log_softmax(each, 1) for each in logits])
    mixture = predictions.exp().mean(0).clamp(1e-7, 1).log()
    return F.kl_div(mixture.expand_as(predictions), predictions, reduction="none", log_target=True).sum(2).mean()


def loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the cross-entropy of the first view plus the divergence of all views, stacked along the batch."""
    views = logits.chunk(len(logits) // len(labels))
    return F.cross_entropy(views[0], labels) + CONSISTENCY * divergence(*views)
