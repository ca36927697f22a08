"""LAME: the model stays as it is, and the answers of a batch are drawn to those of images with similar features."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from covshift.core.calling import logits_of
from covshift.core.wrappers import module_of
from covshift.rivals.base import Answer, Rival
from covshift.support.checks import check_choice, check_number
from covshift.support.errors import CovshiftError

_TINY = 1e-10
_STEPS = 100
_SETTLED = 1e-8  # relative change of the energy


@dataclass(frozen=True)
class Lame(Rival):
    """LAME: Y ← softmax(log p + W·Y) until it settles, W being the affinity of the images of a batch.

    Features are what the last linear layer is given. Boudiaf et al., Parameter-free online test-time adaptation, 2022.

    Attributes:
        k: the number of neighbours.
        affinity: "knn", 1 for the k nearest images and 0 for the others, or "rbf", a Gaussian as wide as the mean
            distance to the k-th nearest.
    """

    needs_statistics: ClassVar[bool] = False

    k: int = 5
    affinity: Literal["knn", "rbf"] = "knn"

    def __post_init__(self) -> None:
        check_number(self.k, "k", 1, whole=True)
        check_choice(self.affinity, "affinity", ("knn", "rbf"))

    @contextmanager
    def answering(self, model: nn.Module) -> Iterator[Answer]:
        """Answer each batch by itself; see `Rival`."""
        inputs: list[Any] = []
        model = module_of(model)

        def before(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            inputs[:] = [args[0] if args else next(iter(kwargs.values()))]

        def answer(images: Tensor) -> Tensor:
            inputs.clear()
            logits = logits_of(model(images))
            features = inputs.pop() if inputs else None
            if not isinstance(features, Tensor) or features.ndim != 2 or len(features) != len(logits):
                raise CovshiftError(
                    "LAME needs the features of each image, and the model does not end in a linear layer that gets "
                    "one feature vector for each image; leave LAME out"
                )
            return self.correct(logits.softmax(1), features).clamp_min(1e-30).log()

        linear = [module for module in model.modules() if isinstance(module, nn.Linear)]
        handles = [module.register_forward_pre_hook(before, with_kwargs=True) for module in linear]
        try:
            with torch.inference_mode():
                yield answer
        finally:
            for handle in handles:
                handle.remove()

    def correct(self, probabilities: Tensor, features: Tensor) -> Tensor:
        """Return the corrected probabilities of a batch, [images, classes], given its features."""
        known = (probabilities + _TINY).log()
        weights = self.weights(features.to(known.dtype))
        answers, energy = known.softmax(1), torch.tensor(torch.inf)
        for step in range(_STEPS):
            pull = weights @ answers
            answers = (known + pull).softmax(1)
            before, energy = energy, (answers * (answers.clamp_min(1e-20).log() - known - pull)).sum()
            if step > 1 and (energy - before).abs() <= _SETTLED * before.abs():
                break
        return answers

    def weights(self, features: Tensor) -> Tensor:
        """Return the affinity of each image to each other, [images, images]."""
        features = normalize(features, dim=1)
        distance = torch.cdist(features, features, compute_mode="donot_use_mm_for_euclid_dist")
        if self.affinity == "rbf":
            width = distance.kthvalue(min(self.k, len(features))).values.mean()
            return (-distance.square() / (2 * width.square()).clamp_min(1e-30)).exp()
        distance = distance.fill_diagonal_(-1)  # an image is the nearest to itself, and does not count
        nearest = distance.topk(min(self.k + 1, len(features)), largest=False).indices[:, 1:]
        return torch.zeros_like(distance).scatter_(1, nearest, 1.0)
