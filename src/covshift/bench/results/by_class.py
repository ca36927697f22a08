"""What answers say beyond counts: errors of each class, which classes are taken for which, and calibration."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from covshift.bench.results.book import AnswerBook
from covshift.bench.results.records import Row

BINS = 15
"""Number of bins of equal width that confidence is cut into."""


class Pooled(NamedTuple):
    """The answers of some cells, one after the other: true classes, answers, and confidence from 0 to 1."""

    labels: NDArray[np.int64]
    classes: NDArray[np.int64]
    confidence: NDArray[np.float64]

    @property
    def right(self) -> NDArray[np.bool_]:
        """Whether each answer is right."""
        return np.equal(self.labels, self.classes)


def pool(book: AnswerBook, rows: Iterable[Row]) -> Pooled | None:
    """Return the answers of cells; None where those of one are not kept."""
    parts = []
    for row in rows:
        answers, images = book.of(row), book.images
        if answers is None or images is None:
            return None
        parts.append((images.labels[images.places(answers.indices)], answers.classes, answers.probability))
    return Pooled(*(np.concatenate(column) for column in zip(*parts, strict=True))) if parts else None


class ClassShare(NamedTuple):
    """The number of answers to images of a class, and of those that are wrong."""

    label: int
    answers: int
    wrong: int


def by_class(pooled: Pooled) -> list[ClassShare]:
    """Return the errors of each class that has images.

    >>> by_class(Pooled(np.array([0, 0, 2]), np.array([0, 1, 2]), np.ones(3)))
    [ClassShare(label=0, answers=2, wrong=1), ClassShare(label=2, answers=1, wrong=0)]
    """
    answers = np.bincount(pooled.labels)
    wrong = np.bincount(pooled.labels[~pooled.right], minlength=len(answers))
    return [ClassShare(int(label), int(answers[label]), int(wrong[label])) for label in np.flatnonzero(answers)]


class Confusion(NamedTuple):
    """How often a class is taken for another one, before and after, as a share of the answers to its images."""

    label: int
    answer: int
    before: float
    after: float

    @property
    def change(self) -> float:
        """What adaptation adds; negative where it removes."""
        return self.after - self.before


def confusions(before: Pooled, after: Pooled) -> list[Confusion]:
    """Return every pair of classes that is confused before or after, the largest change first."""
    sides = _confused(before), _confused(after)
    pairs = [Confusion(*pair, *(side.get(pair, 0.0) for side in sides)) for pair in sides[0] | sides[1]]
    return sorted(pairs, key=lambda pair: (-abs(pair.change), pair.label, pair.answer))


def _confused(pooled: Pooled) -> dict[tuple[int, int], float]:
    """Return the share of the answers to a class that are another class, for each such pair that there is."""
    answers, size = np.bincount(pooled.labels), int(pooled.classes.max()) + 1
    keys, counts = np.unique((pooled.labels * size + pooled.classes)[~pooled.right], return_counts=True)
    pairs = (divmod(int(key), size) for key in keys)
    return {pair: float(count / answers[pair[0]]) for pair, count in zip(pairs, counts, strict=True)}


class Bin(NamedTuple):
    """Answers of about the same confidence: their number, their mean confidence, and the share that is right."""

    answers: int
    confidence: float
    right: float


def reliability(pooled: Pooled) -> list[Bin]:
    """Return the points of a reliability diagram, without bins that have no answers."""
    places = np.minimum((pooled.confidence * BINS).astype(np.intp), BINS - 1)
    return [
        Bin(int(mine.sum()), float(pooled.confidence[mine].mean()), float(pooled.right[mine].mean()))
        for place in range(BINS)
        if (mine := places == place).any()
    ]


def calibration_error(bins: Sequence[Bin]) -> float:
    """Return the expected calibration error: how far confidence is from the share of right answers, on average.

    >>> calibration_error([Bin(30, 0.6, 0.5), Bin(10, 0.9, 0.9)])
    0.075
    """
    total = sum(each.answers for each in bins)
    return round(sum(each.answers * abs(each.confidence - each.right) for each in bins) / total, 12)
