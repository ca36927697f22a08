"""`Trial`: a model's answers to images in one format, and whether those in another are better."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from covshift.bench.results.metrics import Rate, rate
from covshift.data.base import Labels
from covshift.models import Preprocess

SURE = 0.001
"""Probability of chance below which a difference counts; a dozen comparisons on healthy models stay above it."""

LEAST = 0.01
"""The share of errors below which a difference does not matter, however sure it is."""

NO_CLASS = -9
"""The class recorded for an output of NaN or infinity: not a label, nor next to one."""


@dataclass(frozen=True)
class InputFormat:
    """A way to turn images into a model's input.

    Attributes:
        preprocess: the preprocessing: how images are resized, cropped and normalised.
        swapped: whether red and blue change places.
    """

    preprocess: Preprocess
    swapped: bool = False


@dataclass(frozen=True, eq=False)
class Trial:
    """The classes that a model sees in images, and their labels; images are in the same order in all trials."""

    predictions: Labels
    labels: Labels

    @property
    def wrong(self) -> NDArray[np.bool_]:
        """Whether the model gets each image wrong."""
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
        """The number of images for which the model's output is NaN or infinite."""
        return int((self.predictions == NO_CLASS).sum())

    def sees(self, classes: int) -> bool:
        """Return whether the model does better than guessing."""
        return self.rate.high < 1 - 1 / classes


def chance(before: Trial, after: Trial) -> float:
    """Return the probability that `after` has that many errors fewer if both are equally good, on the same images.

    The sign test (McNemar's, exact, one-sided): only images count that one gets right and the other does not.

    >>> a, b = (Trial(np.array(guesses), np.zeros(8, int)) for guesses in ([1, 1, 1, 1, 1, 1, 0, 1], [0] * 6 + [1, 1]))
    >>> chance(a, b), chance(a, a)
    (0.0625, 1.0)
    """
    mended = int((before.wrong & ~after.wrong).sum())
    spoilt = int((~before.wrong & after.wrong).sum())
    return float(binom.sf(mended - 1, mended + spoilt, 0.5))


def better(before: Trial, after: Trial, sure: float = SURE) -> bool:
    """Return whether `after` has fewer errors, by more than chance and by enough to matter."""
    return before.error - after.error >= LEAST and chance(before, after) < sure
