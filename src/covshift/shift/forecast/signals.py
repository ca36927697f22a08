"""Signals: single numbers, measured without labels, that rise with a model's error."""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn

from covshift.shift.forecast.beliefs import belief
from covshift.shift.forecast.observe import Observation, WhichModel

Signal = Literal["judge", "agreement", "distance", "confidence", "difference", "threshold"]
SIGNALS: tuple[Signal, ...] = get_args(Signal)
PredictionMethod = Signal | Literal["combined", "best"]
METHODS: tuple[PredictionMethod, ...] = ("best", *SIGNALS, "combined")
COMBINED: tuple[Signal, ...] = ("judge", "agreement", "distance")
"""The signals of the method `combined`: answers, how they change, and statistics."""


class Scale(NamedTuple):
    """The constants that signals need, found on labelled images.

    Attributes:
        temperature: divides the adapted model's logits so that its confidence is about right on calibration data.
        plain: the threshold below which the plain model's confidence falls as often as it errs, on clean images.
        adapted: the same for the adapted model.
    """

    temperature: float
    plain: float
    adapted: float


def signals_of(method: PredictionMethod) -> tuple[Signal, ...]:
    """Return the signals that a method uses.

    >>> signals_of("judge")
    ('judge',)
    """
    if method == "combined":
        return COMBINED
    return ("judge",) if method == "best" else (method,)


def signal(method: Signal, which: WhichModel, seen: Observation, scale: Scale) -> float:
    """Return one number that rises with the error of the plain or the adapted model.

    - judge: how little probability the adapted model gives to the answer, on average;
    - agreement: how often plain and adapted model disagree;
    - distance: the normalised Wasserstein distance, averaged over layers, which is the paper's estimator;
    - confidence, difference: 1 - average confidence;
    - threshold: how often confidence is below that of `scale`.
    """
    answers = seen.logits(which).argmax(1)
    if method == "judge":
        return 1 - belief(seen.adapted, answers, scale.temperature).mean().item()
    if method == "agreement":
        return (seen.plain.argmax(1) != seen.adapted.argmax(1)).double().mean().item()
    if method == "distance":
        return seen.distance.average
    confidence = seen.logits(which).softmax(1).amax(1)
    if method == "threshold":
        return (confidence < (scale.plain if which == "plain" else scale.adapted)).double().mean().item()
    return 1 - confidence.double().mean().item()


def fit_scale(seen: Sequence[Observation], labels: Sequence[Tensor]) -> Scale:
    """Find the temperature with the highest likelihood over all observations, and the thresholds on clean images.

    Args:
        seen: the observations, that of clean images first.
        labels: the labels of the images of each.
    """

    def threshold(logits: Tensor) -> float:
        confidence = logits.softmax(1).amax(1)
        wrong = (logits.argmax(1) != labels[0]).double().mean().item()
        return torch.quantile(confidence.double(), wrong).item()

    def loss(log_temperature: float) -> float:
        factor = 2.0**-log_temperature
        each = [
            nn.functional.cross_entropy(one.adapted * factor, truth).item()
            for one, truth in zip(seen, labels, strict=True)
        ]
        return sum(each) / len(each)

    return Scale(2.0 ** minimise(loss, -3, 6), threshold(seen[0].plain), threshold(seen[0].adapted))


def minimise(function: Callable[[float], float], low: float, high: float) -> float:
    """Return the minimum of a function with one minimum, to about a thousandth of the interval."""
    from scipy.optimize import minimize_scalar

    return float(minimize_scalar(function, bounds=(low, high), method="bounded", options={"xatol": 1e-3}).x)
