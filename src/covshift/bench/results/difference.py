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


def mean_difference(differences: Iterable[Difference]) -> Difference:
    """Return the mean over conditions that share their images; its interval is as wide as if they erred together."""
    listed = list(differences)
    value, low, high = (math.fsum(column) / len(listed) for column in zip(*listed, strict=True))
    return Difference(value, low, high)
