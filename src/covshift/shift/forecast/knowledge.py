"""`Knowledge`: all that a predictor has learned, beside its lines, to know when it does not know."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from covshift.core.source import Source
from covshift.shift.distance import EPS, Distance
from covshift.shift.forecast.beliefs import Beliefs
from covshift.shift.forecast.cases import Case, Look, look
from covshift.shift.forecast.doubt import Doubt
from covshift.shift.forecast.observe import Observation
from covshift.shift.forecast.skew import Skews


@dataclass(frozen=True, eq=False)
class Knowledge:
    """What was learned on clean images, their corruptions and their imitations of other shifts.

    Attributes:
        beliefs: what the beliefs of both models say of an answer.
        cases: the calibration cases, clean images first.
        skews: what is known of images of few classes; None where nothing is.
        usual: the share of each class among the clean images.
        images: the number of different images that each case was measured on.
        fitted: the number of different clean images that all cases were made of.
        chance: how much the mean of one image varies at each layer, in variances of the source, summed over channels.
    """

    beliefs: Beliefs
    cases: tuple[Case, ...]
    skews: Skews | None
    usual: Tensor
    images: int
    fitted: int
    chance: Mapping[str, float]

    def doubt(self) -> Doubt:
        """Return how far predictions may be off."""
        return Doubt(self.cases, self.fitted)

    def look(self, seen: Observation, temperature: float) -> Look:
        """Return what some images look like, compared with calibration cases of more images."""
        distance = self.without_chance(seen.distance, seen.different)
        return look(seen, self.beliefs, temperature, distance)

    def without_chance(self, distance: Distance, images: int) -> tuple[float, ...]:
        """Return distances as they would be on as many images as the calibration cases have, in their order.

        Fewer images are farther from the source by chance alone. A distance is not taken to be below that of clean
        images.
        """
        more = max(0.0, 1 / images - 1 / self.images)
        clean = self.cases[0].distance
        layers = zip(distance.layers.items(), clean, strict=False)
        return tuple(
            float(np.sqrt(max(value**2 - more * self.chance.get(path, 0.0), min(value, least) ** 2)))
            for (path, value), least in layers
        )

    def by_chance(self, layers: Sequence[str], images: int) -> Distance:
        """Return the distance that this number of clean images have by chance."""
        clean = dict(zip(layers, self.cases[0].distance, strict=True))
        more = max(0.0, 1 / images - 1 / self.images)
        return Distance({path: float(np.sqrt(clean[path] ** 2 + more * self.chance.get(path, 0.0))) for path in layers})


def chance_of(source: Source | None) -> dict[str, float]:
    """Return how much the mean of one image varies at each place, in variances, summed over channels."""
    if source is None or not source.spread:
        return {}
    variances = {path: moments.var.double().clamp(min=EPS) for path, moments in source.statistics.items()}
    return {path: float((spread.double() / variances[path]).sum()) for path, spread in source.spread.items()}


def shares_of(labels: Tensor, classes: int) -> Tensor:
    """Return the share of each class that some labels speak for.

    Numbers that differ no more than chance has them differ speak for equal shares; the more they differ, the more they
    are taken for what they are. A class may be missing from a sample of few images for each.

    >>> shares_of(torch.tensor([0, 0, 1, 3]), 4)
    tensor([0.2500, 0.2500, 0.2500, 0.2500], dtype=torch.float64)
    """
    counted = torch.bincount(labels, minlength=classes).double() / len(labels)
    by_chance = (1 - 1 / classes) / len(labels)  # the sum of squares of what equal shares differ by
    equal = by_chance / max(float((counted - 1 / classes).square().sum()), by_chance)
    return equal / classes + (1 - equal) * counted
