"""What classes do to activations: the part of a difference from the source that is no shift.

A run of dogs differs from the source because of the shift and because of the dogs. So a source also knows how the
moments of an image depend on what the model says it shows: linear in the expected embedding of its class, by ridge
regression on the clean images. An answer that is unsure tends to the mean embedding, and so to no dependence at all.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from covshift.core.calling import logits_of
from covshift.core.moments import Moments, widen
from covshift.core.places import Place
from covshift.core.ranks import sum_over_ranks
from covshift.core.reading import Reader
from covshift.support.errors import CovshiftError

LEAST = 0.1
"""The least share of the source's variance that a mix of classes is believed to have."""

DIRECTIONS = 32
"""The largest number of numbers that an embedding has where there are many classes."""

_FEW = 64  # classes: each has a direction of its own
_RIDGE = 10  # images that speak for no dependence
_LEAST_NOISE = 1e-3  # of the mean over channels
_IMAGES_EACH = 8  # images for each direction of the embedding, at least


@dataclass(frozen=True, eq=False)
class Slopes:
    """How the moments at one place depend on the class, and how much they vary where the class is known.

    Attributes:
        mean, second: the change of the mean and of the mean square, [directions, channels].
        unexplained: the variance of an image's mean that its class does not explain, [channels].
    """

    mean: Tensor
    second: Tensor
    unexplained: Tensor

    @cached_property
    def noise(self) -> Tensor:
        """The variance that is not explained, of which no channel has next to nothing."""
        return self.unexplained.clamp(min=_LEAST_NOISE * float(self.unexplained.mean()))


@dataclass(frozen=True, eq=False)
class Classes:
    """The embedding of classes, and what they do to the activations of each place.

    Attributes:
        embedding: a vector for each class, [classes, directions].
        centre: the mean over the source images, [directions].
        slopes: what classes do at each place, by path.
    """

    embedding: Tensor
    centre: Tensor
    slopes: Mapping[str, Slopes]

    @property
    def separate(self) -> bool:
        """Whether every class has a direction of its own."""
        return len(self.embedding) == self.embedding.shape[1]

    @cached_property
    def covariance(self) -> Tensor:
        """The covariance of the embedding, over classes that are equally frequent, [directions, directions]."""
        return self.apart.mT @ self.apart / len(self.apart)

    @cached_property
    def apart(self) -> Tensor:
        """The embedding of each class, from the mean over the source images, [classes, directions]."""
        return (self.embedding - self.centre).contiguous()

    @cached_property
    def readers(self) -> dict[str, Reader]:
        """How classes are read off the means of images, by path."""
        return {path: Reader.of(each.mean, each.noise, self.covariance) for path, each in self.slopes.items()}

    def locate(self, output: object) -> Tensor | None:
        """Return the expected embedding of each image by the model's answers; None if these are not of its classes."""
        return locate(output, self.embedding)


def locate(output: object, embedding: Tensor) -> Tensor | None:
    """Return the expected embedding, [images, directions], by a model's output; None if there are other classes."""
    logits = logits_in(output)
    if logits is None or logits.shape[1] != len(embedding):
        return None
    return widen(logits.detach()).softmax(1) @ embedding.to(logits.device)


def logits_in(output: object) -> Tensor | None:
    """Return the logits in a model's output, [images, classes]; None if it has none of that shape."""
    try:
        logits = logits_of(output)
    except CovshiftError:
        return None
    return logits if logits.ndim == 2 else None


def embed_classes(model: nn.Module, output: object) -> Tensor | None:
    """Return a vector for each class that a model tells apart: a direction of its own or, of many, its weights.

    The rows of the classifier's weight lie near each other for classes that look alike; their principal directions
    are the embedding. Returns None for models without logits, or without a classifier where it is needed.
    """
    logits = logits_in(output)
    if logits is None or logits.shape[1] < 2:
        return None
    number = logits.shape[1]
    if number <= _FEW:
        return widen(torch.eye(number, device=logits.device))
    weights = [
        module.weight
        for module in model.modules()
        if isinstance(module, nn.Linear | nn.Conv2d) and len(module.weight) == number
    ]
    if not weights:
        return None
    rows = widen(weights[-1].detach().flatten(1))
    rows = rows - rows.mean(0)
    directions = torch.linalg.svd(rows, full_matrices=False).Vh[:DIRECTIONS]
    embedding = rows @ directions.mT
    scale = float(embedding.std())
    return embedding / scale if scale else None


class Regression:
    """Collects what the images of a source show and say, and fits one to the other."""

    def __init__(self, embedding: Tensor) -> None:
        self.embedding = embedding
        size = embedding.shape[1] + 1
        self._inputs = torch.zeros(size, size, dtype=embedding.dtype, device=embedding.device)
        self._outputs: dict[str, Tensor] = {}
        self._squares: dict[str, Tensor] = {}

    def add(self, output: object, moments: Mapping[str, tuple[Tensor, Tensor]]) -> None:
        """Add a batch: the model's output, and the mean and mean square of each image at each place."""
        located = locate(output, self.embedding)
        if located is None:
            return
        ones = torch.ones(len(located), 1, dtype=located.dtype, device=located.device)
        given = torch.cat([ones, located], 1)
        self._inputs += given.mT @ given
        for path, (mean, second) in moments.items():
            if len(mean) == len(given):
                both = widen(torch.cat([mean, second], 1))
                products, squares = given.mT @ both, both.square().sum(0)
                self._outputs[path] = self._outputs[path] + products if path in self._outputs else products
                self._squares[path] = self._squares[path] + squares if path in self._squares else squares

    def fit(self, *, sync: bool = False) -> Classes | None:
        """Return the classes, over all ranks if `sync`; None if too little was seen."""
        if sync:
            sum_over_ranks([self._inputs, *self._outputs.values(), *self._squares.values()])
        images = float(self._inputs[0, 0])
        directions = min(self.embedding.shape[1], int(images // _IMAGES_EACH))
        if directions < 1:
            return None
        kept = directions + 1
        centre = self._inputs[0, 1:kept] / images
        scatter = self._inputs[1:kept, 1:kept] - images * centre.outer(centre)
        ridge = _RIDGE * scatter.diagonal().mean() / images
        if not ridge > torch.finfo(torch.float32).eps:
            return None  # all images got the same answer
        eye = torch.eye(directions, dtype=centre.dtype, device=centre.device)
        slopes = {}
        for path, outputs in self._outputs.items():
            mean = outputs[0] / images
            cross = outputs[1:kept] - images * centre.outer(mean)
            slope = torch.linalg.solve(scatter + ridge * eye, cross)
            total = self._squares[path] - images * mean.square()
            # What is left after the fit: Σ(y - xb)² = Σy² - 2 b·Σxy + b·Σxx·b.
            left = total - 2 * (slope * cross).sum(0) + (slope * (scatter @ slope)).sum(0)
            left = left.clamp(min=0) / max(1.0, images - kept)
            channels = len(left) // 2
            slopes[path] = Slopes(slope[:, :channels], slope[:, channels:], left[:channels])
        return Classes(self.embedding[:, :directions], centre, slopes)


def without_classes(place: Place, seen: Moments, slopes: Slopes, offset: Tensor) -> Moments:
    """Return what would have been seen if the classes had been those of the source.

    With μ_q, σ_q² what the source has at this place for the classes in the stream, the correction that brings what
    was seen to these is the one to apply. Seen from the source's own statistics μ_s, σ_s² it is the correction of a
    target with variance σ_s²·σ²/σ_q² and mean μ - (μ_q - μ_s)·σ/σ_q.

    Args:
        place: the place, with its source statistics.
        seen: what was seen there.
        slopes: what classes do there.
        offset: the mean embedding of the classes in the stream, from the source's.
    """
    source_mean, source_var = place.wide_clean
    mean = source_mean + offset @ slopes.mean
    second = source_var + source_mean.square() + offset @ slopes.second
    var = torch.maximum(second - mean.square(), LEAST * source_var)
    ratio = (widen(seen.var) + place.eps) / (var + place.eps)
    wanted = ((source_var + place.eps) * ratio - place.eps).clamp(min=0)
    return Moments(seen.count, seen.images, widen(seen.mean) - (mean - source_mean) * ratio.sqrt(), wanted)
