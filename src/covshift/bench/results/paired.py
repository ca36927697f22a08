"""Paired statistics: differences between answers to the same images, by resampling the images.

Two methods, or two networks, mostly err on the same images, and an image that is hard in one condition is hard in most.
Whatever is a weighted sum of error rates, such as a mean over conditions, a difference or mCE, is a mean over images of
the same sum for one image; so its interval follows from drawing the images, each with all of its answers, anew.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.stats import t as student

from covshift.bench.results.book import AnswerBook
from covshift.bench.results.difference import Difference, weighted_difference
from covshift.bench.results.metrics import Baseline, Z
from covshift.bench.results.records import Row
from covshift.corruptions import names
from covshift.data.condition import CLEAN, SEVERITIES, Condition

Weights = Mapping[Condition, float]
"""What the error in each condition counts for in a sum."""

REPEATS = 2000
"""Number of times that the images are drawn."""

FEW = 25
"""Number of images with another answer below which resampling is not trusted, as usual for McNemar's test."""

_NOT_SHOWN = -1


class ImageErrors:
    """The errors of a run image by image, of the cells whose answers are kept.

    Args:
        book: the answers of the run.
        rows: its finished cells.
    """

    def __init__(self, book: AnswerBook, rows: Iterable[Row]) -> None:
        self._book = book
        self._rows = {(row.method, Condition(row.corruption, row.severity)): row for row in rows}
        self._known: dict[tuple[str, Condition, bool], NDArray[np.int8] | None] = {}

    @cached_property
    def indices(self) -> NDArray[np.int64]:
        """The indices of the images in their data set, in ascending order; none where the run has no answers."""
        images = self._book.images
        return np.empty(0, np.int64) if images is None else np.sort(images.indices)

    def wrong(self, method: str, condition: Condition, *, top5: bool = False) -> NDArray[np.int8] | None:
        """Return for each of `indices` 1 where the answer is wrong, 0 where it is right, and -1 where there is none.

        None where the answers of the cell are not kept.
        """
        key = (method, condition, top5)
        if key not in self._known:
            row = self._rows.get((method, condition))
            self._known[key] = self._read(row, top5) if row else None
        return self._known[key]

    def _read(self, row: Row, top5: bool) -> NDArray[np.int8] | None:
        answers = self._book.of(row)
        if answers is None or (images := self._book.images) is None:
            return None
        labels = images.labels[images.places(answers.indices)]
        errors = ~answers.in_top5 if top5 else answers.classes != labels
        wrong = np.full(len(self.indices), _NOT_SHOWN, np.int8)
        wrong[np.searchsorted(self.indices, answers.indices)] = errors
        return wrong

    def in_conditions(
        self, method: str, conditions: Iterable[Condition], *, top5: bool = False
    ) -> NDArray[np.int8] | None:
        """Return `wrong` for each condition, [conditions, images]; None where the answers of one are not kept."""
        lines = [self.wrong(method, condition, top5=top5) for condition in conditions]
        kept = [line for line in lines if line is not None]
        return np.stack(kept) if kept and len(kept) == len(lines) and len(self.indices) else None


class Pairs(NamedTuple):
    """The errors before and after on the same images, each [conditions, images], and the weight of each condition."""

    before: NDArray[np.int8]
    after: NDArray[np.int8]
    weights: NDArray[np.float64]

    def among(self, images: NDArray[np.bool_]) -> "Pairs":
        """Return the pairs of some images."""
        return Pairs(self.before[:, images], self.after[:, images], self.weights)

    def change(self) -> Difference:
        """Return by how much the weighted sum of error rates changes, with its 95 % interval."""
        shown = (self.before != _NOT_SHOWN) & (self.after != _NOT_SHOWN)
        values = _by_image(self.after, self.weights) - _by_image(self.before, self.weights)
        value = float(values.mean())
        if np.count_nonzero((shown & (self.before != self.after)).any(0)) >= FEW:
            return Difference(value, *_interval(values))
        few = weighted_difference(
            (weight, _few(first[both], second[both]))
            for weight, first, second, both in zip(self.weights, self.before, self.after, shown, strict=True)
        )
        return Difference(value, min(few.low, value), max(few.high, value))


def pairs(
    before: tuple[ImageErrors, str], after: tuple[ImageErrors, str], weights: Weights, *, top5: bool = False
) -> Pairs | None:
    """Return the errors of two methods on the same images, image by image.

    Args:
        before: the errors of a run, and a method.
        after: those that they are compared with, of the same run or of another one.
        weights: the conditions, and what each of them counts for; see `evenly` and `mce_weights`.
        top5: whether to compare top-5 errors.

    Returns:
        The pairs; None where answers are not kept, or the images are not the same.
    """
    sides = [errors.in_conditions(method, weights, top5=top5) for errors, method in (before, after)]
    if sides[0] is None or sides[1] is None or not np.array_equal(before[0].indices, after[0].indices):
        return None
    return Pairs(sides[0], sides[1], np.array(list(weights.values())))


def change(
    before: tuple[ImageErrors, str], after: tuple[ImageErrors, str], weights: Weights, *, top5: bool = False
) -> Difference | None:
    """Return by how much a weighted sum of error rates changes on the same images; see `pairs`."""
    paired = pairs(before, after, weights, top5=top5)
    return paired.change() if paired else None


def _by_image(wrong: NDArray[np.int8], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the weighted sum of errors of each image, whose mean is that of the error rates.

    An image that could not be read in some condition counts there as the mean of the others.
    """
    shown = wrong != _NOT_SHOWN
    if shown.all():
        return weights @ wrong.astype(np.float64)
    numbers = shown.sum(1, keepdims=True).clip(min=1)
    rates = (wrong * shown).sum(1, keepdims=True) / numbers
    values: NDArray[np.float64] = weights @ (rates + np.where(shown, wrong - rates, 0) * (wrong.shape[1] / numbers))
    return values


def evenly(conditions: Sequence[Condition]) -> dict[Condition, float]:
    """Return the weights of a mean over conditions."""
    return dict.fromkeys(conditions, 1 / len(conditions)) if conditions else {}


def mce_weights(baseline: Baseline, *, relative: bool = False) -> dict[Condition, float]:
    """Return the weights of mCE, or of relative mCE; the baseline's errors are taken as given.

    None of them where the baseline lacks a corruption, or its clean error.
    """
    test = names("test")
    clean = (baseline.clean if relative else 0.0) or 0.0
    spans = {name: baseline.errors.get(name, clean) - clean for name in test}
    if not all(spans.values()) or (relative and baseline.clean is None):
        return {}
    shares = {name: 1 / len(test) / span for name, span in spans.items()}
    weights = {Condition(name, severity): shares[name] / len(SEVERITIES) for name in test for severity in SEVERITIES}
    return weights | ({CLEAN: -math.fsum(shares.values())} if relative else {})


def ce_weights(corruption: str, baseline: Baseline) -> dict[Condition, float]:
    """Return the weights of the CE of a corruption; none where the baseline lacks it."""
    error = baseline.errors.get(corruption)
    conditions = [Condition(corruption, severity) for severity in SEVERITIES]
    return {condition: weight / error for condition, weight in evenly(conditions).items()} if error else {}


def _interval(values: NDArray[np.float64]) -> tuple[float, float]:
    """Return the 95 % interval of the mean of values that were drawn independently.

    The middle 95 % of the means of resampled values, stretched by what such means are too narrow for few values.
    """
    images, mean = len(values), values.mean()
    counts = _drawn(images)
    centred = (values - mean).astype(np.float32)
    step = max(1, 2**22 // images)
    means = [counts[start : start + step].astype(np.float32) @ centred / images for start in range(0, REPEATS, step)]
    stretch = student.ppf(0.975, images - 1) / Z * math.sqrt(images / (images - 1))
    low, high = mean + stretch * np.quantile(np.concatenate(means), [0.025, 0.975])
    return float(low), float(high)


@lru_cache(maxsize=2)
def _drawn(images: int) -> NDArray[np.uint8]:
    """Return how often each image is drawn, when as many as there are are drawn with replacement: [repeats, images]."""
    random = np.random.default_rng(images)
    counts = np.empty((REPEATS, images), np.uint8)
    for line in counts:
        line[:] = np.bincount(random.integers(0, images, images), minlength=images)
    return counts


def _few(before: NDArray[np.int8], after: NDArray[np.int8]) -> Difference:
    """Return the change in one condition in which few answers change.

    Its interval is Tango's score interval, which leaves out zero exactly where McNemar's test finds a difference.
    """
    broken, repaired = int((after > before).sum()), int((after < before).sum())
    images = len(before)
    if not images:
        return Difference(0.0, -1.0, 1.0)
    return Difference((broken - repaired) / images, *tango(broken, repaired, images))


def tango(more: int, fewer: int, images: int) -> tuple[float, float]:
    """Return the 95 % score interval of a paired difference of shares.

    Args:
        more: number of images that only the second answer gets wrong.
        fewer: number of images that only the first answer gets wrong.
        images: number of all images.

    >>> [round(end, 4) for end in tango(1, 12, 44)]
    [-0.4023, -0.1068]
    """

    def score(delta: float) -> float:
        b = -more - fewer + (2 * images - more + fewer) * delta
        c = -fewer * delta * (1 - delta)
        share = (math.sqrt(max(0.0, b * b - 8 * images * c)) - b) / (4 * images)
        variance = images * (2 * share + delta * (1 - delta))
        return (more - fewer - images * delta) / math.sqrt(max(variance, 1e-12))

    found = (more - fewer) / images
    edge = 1 - 1e-9
    low = brentq(lambda delta: score(delta) - Z, -edge, found) if score(-edge) > Z and found > -edge else -1.0
    high = brentq(lambda delta: score(delta) + Z, found, edge) if score(edge) < -Z and found < edge else 1.0
    return float(low), float(high)
