"""What a model says of some images, and whether another way to show them is better."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from covshift.bench.results.metrics import Rate, rate
from covshift.data.base import Labels
from covshift.models import Preprocess

SURE = 0.001
"""Below this, fewer errors are no chance: a dozen comparisons on healthy models hardly ever get there."""

LEAST = 0.01
"""A share of errors that is too small to speak of, however sure it is."""

NO_CLASS = -9
"""What a model sees that says NaN or infinity: no label, nor one off a label."""


@dataclass(frozen=True)
class Look:
    """A way to show images to a model.

    Attributes:
        preprocess: how they are resized, cropped and normalised.
        swapped: whether red and blue change places.
    """

    preprocess: Preprocess
    swapped: bool = False


@dataclass(frozen=True, eq=False)
class Trial:
    """The classes that a model sees in images, and those that they have; images are in the same order in all trials."""

    predictions: Labels
    labels: Labels

    @property
    def wrong(self) -> NDArray[np.bool_]:
        """Which images the model gets wrong."""
        return np.not_equal(self.predictions, self.labels)

    @property
    def rate(self) -> Rate:
        """The error with its interval."""
        return rate(int(self.wrong.sum()), len(self.labels))

    @property
    def error(self) -> float:
        """The share of images that the model gets wrong."""
        return self.rate.value

    @property
    def silent(self) -> int:
        """For how many images the model says NaN or infinity."""
        return int((self.predictions == NO_CLASS).sum())

    def sees(self, classes: int) -> bool:
        """Whether the model does better than guessing."""
        return self.rate.high < 1 - 1 / classes


def chance(before: Trial, after: Trial) -> float:
    """How probable it is that `after` has so many errors fewer if both are equally good, on the same images.

    The sign test (McNemar's, exact, one-sided): only images count that one gets right and the other does not.

    >>> a, b = (Trial(np.array(guesses), np.zeros(8, int)) for guesses in ([1, 1, 1, 1, 1, 1, 0, 1], [0] * 6 + [1, 1]))
    >>> chance(a, b), chance(a, a)
    (0.0625, 1.0)
    """
    mended = int((before.wrong & ~after.wrong).sum())
    spoilt = int((~before.wrong & after.wrong).sum())
    return float(binom.sf(mended - 1, mended + spoilt, 0.5))


def better(before: Trial, after: Trial, sure: float = SURE) -> bool:
    """Whether `after` has fewer errors, and it is neither chance nor too little to speak of."""
    return before.error - after.error >= LEAST and chance(before, after) < sure
