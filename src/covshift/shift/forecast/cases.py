"""Cases: what a predictor was calibrated on, as it looks without labels and as it is with them."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from covshift.shift.forecast.beliefs import Beliefs, belief, counting, wrong_answers
from covshift.shift.forecast.observe import Observation, WhichModel
from covshift.shift.theory import Doubles

FEATURES = ("doubt of the answers", "doubt of the adapted model", "lack of confidence", "disagreement")
PLACES = ("the first layers", "the middle layers", "the last layers")
_OFFSET, _OFFSET_FAR = 0.02, 0.05  # shares and distances below which differences do not count


class Case(NamedTuple):
    """A calibration condition.

    Attributes:
        name: the corruption or imitation.
        severity: the severity from 1 to 5; 0 for clean images.
        plain, adapted: the errors of the two models.
        signals: the errors to expect of the two by their beliefs alone.
        noise: the variance by counting of each of these, on the images at hand.
        features: what the condition looks like without labels.
        distance: the distance of each layer, in their order.
    """

    name: str
    severity: int
    plain: float
    adapted: float
    signals: tuple[float, float]
    noise: tuple[float, float]
    features: tuple[float, ...]
    distance: tuple[float, ...]


class Look(NamedTuple):
    """What some images look like without labels: the parts of a `Case` that need none."""

    signals: tuple[float, float]
    noise: tuple[float, float]
    features: tuple[float, ...]
    distance: tuple[float, ...]


def look(seen: Observation, beliefs: Beliefs, temperature: float, distance: tuple[float, ...] | None = None) -> Look:
    """Return what an observation looks like.

    Args:
        seen: the observation.
        beliefs: what the beliefs of both models say of an answer.
        temperature: divides the logits, so that probabilities are about right.
        distance: the distance of each layer; by default as observed.
    """
    chances = [wrong_answers(seen, which, beliefs, temperature) for which in ("plain", "adapted")]
    signals = tuple(float(chance.mean()) for chance in chances)
    noise = [seen.repeats * counting(chance) for chance in chances]
    answers, own = seen.plain.argmax(1), seen.adapted.argmax(1)
    shares = [*signals, 1 - float(belief(seen.plain, answers, 1.0).mean()), float((answers != own).double().mean())]
    distance = tuple(seen.distance.layers.values()) if distance is None else distance
    features = (*logs(shares), *features_of_distance(distance))
    return Look((signals[0], signals[1]), (noise[0], noise[1]), features, distance)


def logs(shares: Sequence[float]) -> tuple[float, ...]:
    """Return shares on a scale on which 2 % and 4 % are as far apart as 30 % and 58 %."""
    return tuple(math.log(share + _OFFSET) for share in shares)


def features_of_distance(distance: Sequence[float]) -> tuple[float, ...]:
    """Return how far the first, middle and last layers have moved, on a scale of ratios; nothing without layers."""
    return tuple(math.log(part + _OFFSET_FAR) for part in thirds(distance))


def thirds(distance: Sequence[float]) -> list[float]:
    """Return how far the first, middle and last layers have moved, on average; nothing without layers.

    >>> thirds([1.0, 2.0, 3.0, 5.0])
    [1.5, 3.0, 5.0]
    """
    return [float(np.mean(part)) for part in np.array_split(distance, 3) if len(part)]


def case_of(name: str, severity: int, seen: Observation, labels: Tensor, beliefs: Beliefs, temperature: float) -> Case:
    """Return an observation of images with labels as a case."""
    return Case(name, severity, error(seen, "plain", labels), error(seen, "adapted", labels),
                *look(seen, beliefs, temperature))  # fmt: skip


def error(seen: Observation, which: WhichModel, labels: Tensor) -> float:
    """Return the share of answers of the plain or the adapted model that are wrong."""
    return (seen.logits(which).argmax(1) != labels).double().mean().item()


def matrix(cases: Sequence[Case | Look]) -> Doubles:
    """Return the features, [cases, features]."""
    return np.array([case.features for case in cases])


def split_classes(labels: Tensor, fewest: int, groups: int) -> list[Tensor]:
    """Return the positions of the images of few classes each, in a number of groups at most; none with too few images.

    >>> [each.tolist() for each in split_classes(torch.tensor([1, 0, 1, 0]), 2, 10)]
    [[1, 3], [0, 2]]
    """
    classes = torch.unique(labels)
    parts = classes.tensor_split(min(groups, len(classes)))
    found = [torch.isin(labels, part).nonzero().squeeze(1) for part in parts]
    return [each for each in found if fewest <= len(each) < len(labels)]
