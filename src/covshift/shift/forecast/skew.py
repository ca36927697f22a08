"""Images of few classes: whether some are, and the errors to expect on those that have not moved besides.

Full adaptation takes the look of a class for a shift. A model that is adapted to what the classes do not explain is
surer on such images, and the more so the fewer classes there are; on images of all classes it is not.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from torch import Tensor

from covshift.shift.forecast.beliefs import belief, counting
from covshift.shift.forecast.cases import error, thirds
from covshift.shift.forecast.doubt import Band
from covshift.shift.forecast.observe import Observation
from covshift.shift.theory import Doubles

SUSPECT = 0.15
"""Loss of doubt by adapting past the classes, above that on clean images, and the distance of the mix of classes from
the usual one, beyond chance: a sum of the two that speaks for few classes."""

FEWEST = 16
"""The least number of images of a few classes to learn from."""

_SLACK = 1.15  # how far above what was learned from a target may look
_SIGMAS = 1.96
_LEAST = 0.01  # spread that nothing is below
_ENOUGH = 3  # groups of classes to learn from
_WIDEST = 0.04  # margin of an error beyond which it is not named; 5 points are promised, and mixes differ


class Skewed(NamedTuple):
    """What images of few classes look like without labels, to the model adapted past their classes.

    Attributes:
        gap: how much surer that model is than the fully adapted one.
        signals: how likely the answers of the plain and of the adapted model are wrong by it, on average.
        noise: the variance of these by counting.
        bounds: numbers that rise with a shift: its doubt, and the distance of the first, middle and last layers.
    """

    gap: float
    signals: tuple[float, float]
    noise: tuple[float, float]
    bounds: tuple[float, ...]


class SkewedCase(NamedTuple):
    """Clean images of few classes, with the errors of both models on them."""

    look: Skewed
    plain: float
    adapted: float


def look_skewed(seen: Observation, temperature: float) -> Skewed | None:
    """Return what an observation looks like past its classes; None where that was not tried."""
    if seen.conditional is None:
        return None
    rows, logits = seen.conditional
    doubts = [1 - float(belief(each, each.argmax(1), temperature).mean()) for each in (seen.adapted[rows], logits)]
    chances = [1 - belief(logits, each[rows].argmax(1), temperature) for each in (seen.plain, seen.adapted)]
    return Skewed(
        doubts[0] - doubts[1],
        (float(chances[0].mean()), float(chances[1].mean())),
        (seen.repeats * counting(chances[0]), seen.repeats * counting(chances[1])),
        (doubts[1], *thirds(list(seen.distance.layers.values()))),
    )


def skewed_case(seen: Observation, labels: Tensor, temperature: float) -> SkewedCase | None:
    """Return an observation of clean images of few classes as a case."""
    look = look_skewed(seen, temperature)
    return None if look is None else SkewedCase(look, error(seen, "plain", labels), error(seen, "adapted", labels))


class Skews:
    """What is known of images of few classes.

    Args:
        gap: the gap on clean images of all classes.
        cases: clean images of few classes.
    """

    def __init__(self, gap: float, cases: Sequence[SkewedCase]) -> None:
        self.gap = gap
        self.cases = tuple(cases)

    def suspects(self, look: Skewed, mix: float) -> bool:
        """Return whether images seem to be of few classes.

        Args:
            look: what they look like past their classes.
            mix: how far their classes are from the usual mix, beyond chance, in the answers of the adapted model.
        """
        return look.gap - self.gap + mix > SUSPECT

    def unmoved(self, look: Skewed) -> bool:
        """Return whether images of few classes look like clean ones, on which the error is known well enough."""
        if len(self.cases) < _ENOUGH:
            return False
        bounds = np.max([case.look.bounds for case in self.cases], axis=0)
        signal = max(case.look.signals[0] for case in self.cases)
        alike = bool((np.array(look.bounds) <= _SLACK * bounds).all()) and look.signals[0] <= _SLACK * signal
        return alike and self._margin(look, 0) <= _WIDEST

    def at(self, look: Skewed) -> tuple[Band, Band]:
        """Return the errors to expect of both models on clean images of few classes."""
        return self._band(look, 0), self._band(look, 1)

    def _band(self, look: Skewed, which: int) -> Band:
        value = min(1.0, max(0.0, look.signals[which] + float(self._off(which).mean())))
        margin = self._margin(look, which)
        return Band(value, value - margin, value + margin)

    def _margin(self, look: Skewed, which: int) -> float:
        off = self._off(which)
        noise = np.array([case.look.noise[which] for case in self.cases])
        spread = max(float(off.var(ddof=1) - noise.mean()), _LEAST**2) * (1 + 1 / len(off))
        sigmas = _SIGMAS + (_SIGMAS**3 + _SIGMAS) / (4 * (len(off) - 1))  # Student's: of so few groups, more
        return sigmas * float(np.sqrt(spread + look.noise[which]))

    def _off(self, which: int) -> Doubles:
        return np.array([(case.plain, case.adapted)[which] - case.look.signals[which] for case in self.cases])
