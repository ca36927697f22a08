"""`Difference`: how far two error rates are apart, with an interval."""

import math
from collections.abc import Iterable
from typing import NamedTuple

from covshift.bench.results.metrics import Rate


class Difference(NamedTuple):
    """A difference of error rates and its 95 % interval."""

    value: float
    low: float
    high: float

    @property
    def significant(self) -> bool:
        """Whether the interval leaves out zero."""
        return self.low > 0 or self.high < 0


def difference(first: Rate, second: Rate) -> Difference:
    """Return `second` minus `first`, with Newcombe's interval, which is made of Wilson's.

    The interval is that of independent rates. Rates on the same images rise and fall together, so for these it is too
    wide rather than too narrow.

    >>> from covshift.bench.results.metrics import rate
    >>> [round(value, 4) for value in difference(rate(48, 80), rate(56, 70))]  # Newcombe's example, turned round
    [0.2, 0.0524, 0.3339]
    """
    value = second.value - first.value
    down = math.hypot(second.value - second.low, first.high - first.value)
    up = math.hypot(second.high - second.value, first.value - first.low)
    return Difference(value, value - down, value + up)


def weighted_difference(weighted: Iterable[tuple[float, Difference]]) -> Difference:
    """Return a weighted sum of differences on the same images; its interval is as wide as if they erred together.

    >>> weighted_difference([(1.0, Difference(0.25, 0.125, 0.5)), (-1.0, Difference(0.5, 0.25, 0.75))])
    Difference(value=-0.25, low=-0.625, high=0.25)
    """
    values, lows, highs = [], [], []
    for weight, each in weighted:
        values.append(weight * each.value)
        low, high = sorted((weight * each.low, weight * each.high))
        lows.append(low)
        highs.append(high)
    return Difference(math.fsum(values), math.fsum(lows), math.fsum(highs))


def mean_difference(differences: Iterable[Difference]) -> Difference:
    """Return the mean over conditions that share their images; see `weighted_difference`."""
    listed = list(differences)
    value, low, high = (math.fsum(column) / len(listed) for column in zip(*listed, strict=True))
    return Difference(value, low, high)
