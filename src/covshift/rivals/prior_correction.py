"""Prior correction: the classes that a batch seems to hold are made more likely."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from covshift.core.calling import logits_of
from covshift.core.wrappers import module_of
from covshift.rivals.base import Answer, Rival


@dataclass(frozen=True)
class PriorCorrection(Rival):
    """Prior correction: probabilities times the smoothed mean answer of their batch.

    With p the mean answer to a batch of B images, K classes and γ = max(1/B, 1/K)/max p, each probability is
    multiplied by (p + γ)/(1 + γK). Marsden, Döbler and Yang, Universal test-time adaptation (ROID), 2024, whose
    correction alone this is.
    """

    needs_statistics: ClassVar[bool] = False

    @contextmanager
    def answering(self, model: nn.Module) -> Iterator[Answer]:
        """Answer each batch by itself; see `Rival`."""
        module = module_of(model)
        with torch.inference_mode():
            yield lambda images: self.correct(logits_of(module(images)))

    def correct(self, logits: Tensor) -> Tensor:
        """Return the corrected logits of a batch, [images, classes]."""
        images, classes = logits.shape
        prior = logits.softmax(1).mean(0)
        smooth = max(1 / images, 1 / classes) / prior.max()
        return logits.log_softmax(1) + ((prior + smooth) / (1 + smooth * classes)).log()
