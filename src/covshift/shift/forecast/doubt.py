"""`Doubt`: how far a prediction may be off, by how far the images are from the corruptions that it was learned on.

Near to these, it is off as they are from the line through them. Farther away, each kind of shift is left out in turn:
how far off a line through the other corruptions is, and how far these are from it, is what is known of shifts that were
never seen. To either side on its own: a model is too sure of itself on pictures that it does not know, so that errors
are much more often above the line than below it.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from covshift.shift.forecast.cases import Case, Look, matrix
from covshift.shift.forecast.imitations import IMITATIONS
from covshift.shift.theory import Doubles

OUTSIDE = 0.7
"""Distance to the nearest cases, in standard deviations of all, up to which a target is never unlike all of them."""

_SHRINK = 0.1  # of the covariance of the features towards none
_NEAREST = 2  # cases that a target must be near to
_SPACED = 0.9  # share of the cases that are nearer to others than a target that is unlike them, if they are few
_LEARNED = 3  # corruptions that its distance from what the lines were learned on is measured to
_NEAR, _FAR = 0.5, 0.8  # from the one to the other, a target counts less and less as of their kind
_ALWAYS = 0.15  # share of the doubt far away that is there near them, too: they are of a few kinds
_FACTORS = (1.25, 5.0)  # the least and the greatest multiple of the spread that an interval is made of, far away
_SHARED = 0.4  # share of the variance by counting that is the same in all conditions that the same images are shown in
_SIGMAS = 1.96  # standard deviations that hold 95 % on either side, of a Gaussian
_EQUAL = 1e-6  # standard deviation of features that do not vary
_LEAST = 0.005  # spread that nothing is below, nor the deviation from the lines
_SPREAD = 2.5  # standard deviations in the mean deviation to one side, of a Gaussian


class Band(NamedTuple):
    """A predicted value, and the least and the greatest that it may be, 19 times out of 20."""

    value: float
    low: float
    high: float


class Outlook(NamedTuple):
    """What the calibration cases say of a target.

    Attributes:
        plain, adapted: the predicted errors.
        gain: the predicted fall of the error by adapting.
        novelty: the distance to the nearest cases, in standard deviations of all.
        odd: the position of the feature that differs most from all cases.
    """

    plain: Band
    adapted: Band
    gain: Band
    novelty: float
    odd: int


class Space(NamedTuple):
    """Coordinates in which the features of the cases have unit variance and little correlation.

    Attributes:
        mean: the mean of the features.
        scale: one over their standard deviations; 0 where all are equal.
        turn: the matrix that takes the correlations out.
    """

    mean: Doubles
    scale: Doubles
    turn: Doubles

    @classmethod
    def of(cls, features: Doubles) -> "Space":
        """Return the space of some features, [cases, features]."""
        mean, spread = features.mean(0), features.std(0)
        scale = np.where(spread > _EQUAL, 1 / np.maximum(spread, _EQUAL), 0.0)
        scaled = (features - mean) * scale
        covariance = (1 - _SHRINK) * scaled.T @ scaled / len(scaled) + _SHRINK * np.eye(len(mean))
        return cls(mean, scale, np.linalg.inv(np.linalg.cholesky(covariance)).T)

    def place(self, features: Doubles) -> Doubles:
        """Return the coordinates of features, [targets, features]."""
        return np.asarray((features - self.mean) * self.scale @ self.turn)


class Doubt:
    """The lines from signals to errors, and how far off these are; made of calibration cases.

    Args:
        cases: the cases, clean images first.
        images: the number of different images that they were measured on.

    Attributes:
        cases: the cases.
        outside: the novelty beyond which a target is unlike all cases.
    """

    def __init__(self, cases: Sequence[Case], images: int) -> None:
        self.cases = tuple(cases)
        self._images = images
        self._features = matrix(cases)
        self._space = Space.of(self._features)
        self._points = self._space.place(self._features)
        self._lines = _lines(cases)
        self._kinds = np.array([case.name for case in cases])
        self._learned = ~np.isin(self._kinds, IMITATIONS)
        off = np.array([self._left_out(case) for case in cases])[1:]  # [cases, plain adapted gain]
        sides = np.maximum([-off, off], 0)  # [below above, cases, plain adapted gain]
        far = np.array([self._far(near, self._kinds != kind) for near, kind in
                        zip(self._apart(self._points), self._kinds, strict=True)])[1:]  # fmt: skip
        noise = np.array([_noise(case.noise) for case in cases])[1:]
        self._growth = np.array([[_growth(far, each) for each in side.T] for side in sides])  # [.., constant square]
        ratios = np.sqrt(np.maximum(sides**2 - _SIGMAS**2 * noise, 0)) / self._spread(far)  # beyond counting
        others = ~self._learned[1:]
        # A dozen kinds cannot show what holds for 39 of 40 others; the worst of them is as much as they can.
        self._factors = (ratios[:, others] if others.any() else ratios).max(-2).clip(*_FACTORS)  # [below above, 3]
        self._near = self._around_lines()
        self._new_kind = self._near if others.all() else np.maximum(self._near, _beyond(off[~others], noise[~others]))
        spaced = np.sort(self._apart(self._points), 1)[:, 1 : 1 + _NEAREST].mean(1)
        self.outside = max(OUTSIDE, float(np.quantile(spaced, _SPACED)))

    def at(self, look: Look, images: int) -> Outlook:
        """Return what the cases say of a target of some images that looks like this."""
        near = self._apart(self._space.place(np.array([look.features])))[0]
        far = self._far(near, np.ones(len(near), bool))
        other = np.clip((far - _NEAR) / (_FAR - _NEAR), _ALWAYS, 1)
        away = (self._factors * self._spread(np.array([far]))[:, 0]) ** 2
        # Few imitations were below the line, but a target of a new kind may be, as a corruption that is left out may.
        away = np.maximum(away, _SIGMAS**2 * self._new_kind)
        of_line = other * away + (1 - other) * _SIGMAS**2 * self._near
        # Both the target and the images that the lines were learned on are some out of many.
        counted = _SIGMAS**2 * _noise(look.noise) * (1 + _SHARED * images / self._images)
        below, above = np.sqrt(of_line + counted)
        values = _predict(self._lines, look.signals)
        plain, adapted, gain = map(Band, values.tolist(), (values - below).tolist(), (values + above).tolist())
        novelty = float(np.sort(near)[:_NEAREST].mean())
        differences = np.abs(np.array(look.features) - self._features[np.argmin(near)]) * self._space.scale
        return Outlook(plain, adapted, gain, novelty, int(np.argmax(differences)))

    def below(self, distance: Sequence[float]) -> list[float]:
        """Return the share of cases in which each layer, and last the average, has moved less than this."""
        rows = np.array([[*case.distance, np.mean(case.distance)] for case in self.cases])
        return [float(share) for share in np.mean(rows < [*distance, np.mean(distance)], axis=0)]

    def _left_out(self, case: Case) -> Doubles:
        others = [other for other in self.cases if other.name != case.name or other.name == "clean"]
        return np.asarray(_truth(case) - _predict(_lines(others), case.signals))

    def _around_lines(self) -> Doubles:
        """Return the variance of the errors around the lines beyond counting, [plain adapted gain]."""
        rows = _learned_from(self.cases)
        off = np.array([_truth(case) - _predict(self._lines, case.signals) for case in rows])
        free = max(1, len(rows) - 2)  # each line has two numbers of its own
        noise = np.array([_noise(case.noise) for case in rows])
        return _beyond(off * math.sqrt(len(rows) / free), noise)

    def _apart(self, points: Doubles) -> Doubles:
        return np.asarray(np.sqrt(((points[:, None] - self._points) ** 2).mean(-1)))

    def _far(self, near: Doubles, others: NDArray[np.bool_]) -> float:
        """Return the mean distance to the nearest of some corruptions."""
        chosen = np.sort(near[others & self._learned])
        return float((chosen if len(chosen) else np.sort(near[others]))[:_LEARNED].mean())

    def _spread(self, far: Doubles) -> Doubles:
        """Return how far off predictions are at some distances from what they were learned on, [2, distances, 3]."""
        constant, slope = np.moveaxis(self._growth, -1, 0)[:, :, None]
        return np.asarray(constant + far[:, None] ** 2 * slope)


def _growth(far: Doubles, off: Doubles) -> Doubles:
    """Return how the spread grows with the square of the distance: a constant and a slope, by least squares.

    Neither is negative.

    Args:
        far: the distances.
        off: how far off predictions were to one side, and 0 where it was to the other.

    >>> _growth(np.array([0.0, 1.0, 2.0]), np.array([0.04, 0.08, 0.2])).round(3).tolist()
    [0.1, 0.1]
    """
    squares, sizes = far**2, _SPREAD * off
    moved = squares - squares.mean()
    slope = max(0.0, float(moved @ sizes / max(float(moved @ moved), _EQUAL)))
    constant = float(sizes.mean() - slope * squares.mean())
    if constant < 0:
        constant, slope = 0.0, float(squares @ sizes / max(float(squares @ squares), _EQUAL))
    return np.array([max(constant, _LEAST), slope])


def _beyond(off: Doubles, noise: Doubles) -> Doubles:
    """Return the variance of what predictions are off by, beyond counting, [3]."""
    return np.asarray(np.maximum((off**2).mean(0) - (1 - _SHARED) * noise.mean(0), _LEAST**2))


def _noise(of_two: tuple[float, float]) -> Doubles:
    return np.array([*of_two, sum(of_two)])


def _truth(case: Case) -> Doubles:
    return np.array([case.plain, case.adapted, case.plain - case.adapted])


def _learned_from(cases: Sequence[Case]) -> list[Case]:
    """Return the cases that lines are learned from: the corruptions, or all where there are hardly any."""
    rows = [case for case in cases if case.name not in IMITATIONS]
    return rows if len(rows) > 2 else list(cases)


def _lines(cases: Sequence[Case]) -> Doubles:
    """Return slope and intercept from signal to error of both models, [2, 2], by the corruptions alone."""
    rows, lines = _learned_from(cases), []
    for which in (0, 1):
        signals = np.array([case.signals[which] for case in rows])
        errors = np.array([(case.plain, case.adapted)[which] for case in rows])
        moved = signals - signals.mean()
        slope = float(moved @ errors / (moved @ moved)) if float(moved @ moved) > 1e-9 else 1.0
        lines.append((slope, float(errors.mean() - slope * signals.mean())))
    return np.array(lines)


def _predict(lines: Doubles, signals: tuple[float, float]) -> Doubles:
    plain, adapted = np.clip(lines[:, 0] * np.array(signals) + lines[:, 1], 0, 1)
    return np.array([plain, adapted, plain - adapted])
