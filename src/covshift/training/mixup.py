"""Mixup (Zhang et al., 2018): pairs of images, and of their labels, blended."""

import numpy as np
import torch
from torch.nn import functional as F

from covshift.training.feed import TrainingBatch

ALPHA = 0.7
"""Parameter of the beta distribution that the shares are drawn from, as Fixup's authors use it for ImageNet."""


def mixup(batch: TrainingBatch, classes: int, rng: np.random.Generator) -> TrainingBatch:
    """Blend each image with another one of the batch, in one share for all; labels become probabilities.

    >>> batch = TrainingBatch(torch.ones(2, 3, 4, 4), torch.tensor([0, 1]))
    >>> mixup(batch, 2, np.random.default_rng(0)).labels.sum(1)
    tensor([1., 1.])
    """
    share, other = rng.beta(ALPHA, ALPHA), torch.from_numpy(rng.permutation(len(batch.labels)))
    labels = F.one_hot(batch.labels, classes).float()
    return TrainingBatch(*(share * part + (1 - share) * part[other] for part in (batch.images, labels)))
