"""`Follower`: forecasts for a running stream, from what its adapter has anyway: its answers and its statistics.

Only the first place counts among the statistics: what comes after it depends on how far the adapter has corrected what
comes before, which differs from policy to policy.

An adapter that holds still gives the answers of the model as it is, which is surer of itself than the adapted one that
beliefs were calibrated on. So a stream is never taken to be less doubtful than clean images are to the adapted model.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from covshift.core.moments import Moments
from covshift.core.statistics import Statistics
from covshift.shift.distance import Distance, wasserstein
from covshift.shift.forecast.beliefs import belief
from covshift.shift.forecast.cases import Case, Look, features_of_distance, logs
from covshift.shift.forecast.doubt import Band, Doubt
from covshift.shift.forecast.forecast import Advice, ClassMix, Forecast
from covshift.shift.forecast.judgement import FEWEST, MIX, few_classes, interval_of, too_few
from covshift.shift.forecast.knowledge import Knowledge
from covshift.shift.forecast.mix import unusual
from covshift.shift.forecast.observe import check_logits
from covshift.shift.forecast.regression import regress
from covshift.shift.theory import Doubles

_RIDGE = 3.0  # in units of features with a standard deviation of 1
_WATCH = Advice("nothing", "a stream is only watched; `predict` on some of its images gives advice")


class Answers(NamedTuple):
    """What is remembered of the last answers of a stream; a few numbers, however many images there were.

    Attributes:
        images: the number of images that count.
        doubt: the chance of an answer to be wrong by the model's own belief, on average.
        noise: the variance of one answer's being wrong, on average.
        shares: the mean probability of each class.
    """

    images: float
    doubt: float
    noise: float
    shares: tuple[float, ...]


class Follower:
    """Forecasts for streams, made by `Predictor.follow`; serves any number of cameras, whose `Answers` are kept apart.

    Args:
        known: what the predictor has learned.
        temperature: divides the logits, so that probabilities are about right.
        origin: what clean images look like at the places of the model; None where there are none.
        memory: the number of images that are remembered.
    """

    def __init__(self, known: Knowledge, temperature: float, origin: Statistics | None, memory: float) -> None:
        self._known, self._temperature, self._origin, self._memory = known, temperature, origin, memory
        self._plain = [_fit_plain([other for other in known.cases if other.name != case.name]) for case in known.cases]
        self._plain.append(_fit_plain(known.cases))
        pairs = zip(known.cases, self._plain, strict=False)
        self._doubt = Doubt([_as_running(case, weights) for case, weights in pairs], known.fitted)

    def remember(self, before: Answers | None, logits: Tensor) -> Answers:
        """Return what is remembered after some more answers of the adapted model, logits [images, classes].

        >>> follower = Follower.__new__(Follower)
        >>> follower._temperature, follower._memory = 1.0, 200
        >>> follower.remember(None, torch.zeros(3, 2))
        Answers(images=3.0, doubt=0.5, noise=0.25, shares=(0.5, 0.5))
        """
        logits = check_logits(logits).double()
        doubts = 1 - belief(logits, logits.argmax(1), self._temperature)
        shares = (logits / self._temperature).softmax(1).mean(0)
        new = [float(doubts.mean()), float((doubts * (1 - doubts)).mean()), *shares.tolist()]
        old, seen = (new, 0.0) if before is None else ([before.doubt, before.noise, *before.shares], before.images)
        images = min(seen + len(logits), self._memory)
        share = min(1.0, len(logits) / images)
        doubt, noise, *mix = (a + share * (b - a) for a, b in zip(old, new, strict=True))
        return Answers(float(images), doubt, noise, tuple(mix))

    def forecast(self, answers: Answers, seen: Mapping[str, Moments]) -> Forecast:
        """Return the errors to expect of the model as it is and as it is adapted now.

        Args:
            answers: what is remembered of the last answers.
            seen: the moments of the last images at each place: an adapter's state, or the memory of a camera.
        """
        distance = self._distance(seen)
        usual = self._known.usual
        shares = torch.tensor(answers.shares, dtype=torch.float64)
        images = max(1, int(answers.images))
        skewed = unusual(shares, usual, images) > MIX
        classes = ClassMix(answers.shares, tuple(usual.tolist()), skewed)
        outlook = None if distance is None else self._doubt.at(self._look(answers, distance, images), images)
        why = ""
        if answers.images < FEWEST:
            why = too_few(int(answers.images), int(answers.images))
        elif outlook is None:
            why = "nothing was seen at the place that the predictor goes by"
        elif skewed:
            why = few_classes(classes)
        elif outlook.novelty > self._doubt.outside:
            why = "the images are unlike all that the predictor was calibrated on"
        plain, adapted = (Band(0.5, 0.0, 1.0),) * 2 if outlook is None else (outlook.plain, outlook.adapted)
        return Forecast(
            interval_of(plain, sure=not why),
            interval_of(adapted, sure=not why),
            Distance({}) if distance is None else distance,
            int(answers.images),
            sure=not why,
            why=why,
            classes=classes,
            advice=_WATCH,
        )

    def _distance(self, seen: Mapping[str, Moments]) -> Distance | None:
        """Return the distance of the first place, where there is one; None if nothing was seen at it."""
        if self._origin is None:
            return Distance({})
        first = next(iter(self._origin))
        if first not in seen or not seen[first].count:
            return None
        source, target = (Statistics({first: each[first]}, self._origin.fingerprint) for each in (self._origin, seen))
        return wasserstein(source, target, normalized=True)

    def _look(self, answers: Answers, distance: Distance, images: int) -> Look:
        layers = self._known.without_chance(distance, images)
        clean = self._known.cases[0]
        doubt = max(answers.doubt, clean.signals[1])
        features = (*logs([doubt]), *features_of_distance(layers))
        plain = _plain_error(self._plain[-1], features)
        noise = (plain * (1 - plain), max(answers.noise, clean.noise[1] * self._known.images))
        return Look((plain, doubt), (noise[0] / images, noise[1] / images), features, layers)


def _as_running(case: Case, weights: Doubles) -> Case:
    """Return a calibration case as a running adapter sees it: without the answers of the model as it is."""
    features = _running(case)
    return case._replace(signals=(_plain_error(weights, features), case.signals[1]), features=features)


def _running(case: Case) -> tuple[float, ...]:
    return (case.features[1], *features_of_distance(case.distance[:1]))


def _fit_plain(cases: list[Case] | tuple[Case, ...]) -> Doubles:
    """Return intercept and slopes from what a running adapter sees to the error of the model as it is."""
    features, errors = np.array([_running(case) for case in cases]), np.array([case.plain for case in cases])
    intercept, slopes = regress(features, errors, _RIDGE)
    return np.array([intercept, *slopes])


def _plain_error(weights: Doubles, features: tuple[float, ...]) -> float:
    return float(np.clip(weights[0] + weights[1:] @ np.array(features), 0, 1))
