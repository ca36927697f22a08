"""Labels may mean other classes to the model than to the data: the ways in which they do."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from covshift.data.base import Labels
from covshift.doctor.trial import Trial

_EACH = 4  # images of a class, at least, to learn from one half what the other one confirms


class Reading(NamedTuple):
    """Labels taken for other classes than they say.

    Attributes:
        name: in words.
        remedy: what to do if this is how they are to be read.
        classes: of the model, that each image would have.
    """

    name: str
    remedy: str
    classes: Labels


def explained(trial: Trial, classes: int) -> Trial:
    """The same answers of the model with labels read in the way that fits them best."""
    read = (Trial(trial.predictions, reading.classes) for reading in readings(trial, classes))
    return min([trial, *read], key=lambda each: each.error)


def readings(trial: Trial, classes: int) -> Iterator[Reading]:
    """Ways to read labels that people get wrong, and last the one that fits the model's answers best."""
    given = trial.labels
    number = max(classes, int(given.max()) + 1)
    yield Reading("labels count from 1", "subtract 1 from the labels", given - 1)
    yield Reading("class 0 of the model is the background", "add 1 to the labels, or drop that output", given + 1)
    # Names as ImageFolder sorts them: 0, 1, 10, 11, 2.
    names = np.array(sorted(range(number), key=str))
    places = np.argsort(names)
    if number > 10:
        by_text = "sort class folders as numbers, not as text, 10 after 9; or number folders with leading zeros"
        yield Reading("the model's classes are sorted as text, 0, 1, 10, 11, 2", by_text, places[given])
        yield Reading("the labels are sorted as text, 0, 1, 10, 11, 2", by_text, names[given])
    fitted = fit(trial, number)
    if fitted is not None:
        moved = [(a, b) for a, b in dict(zip(given.tolist(), fitted.tolist(), strict=True)).items() if a != b]
        some = ", ".join(f"{a} means {b}" for a, b in sorted(moved)[:4])
        remedy = "put the data's classes into the order that the model was trained with"
        yield Reading(f"label {some} …", remedy, fitted)


def fit(trial: Trial, classes: int) -> Labels | None:
    """The one-to-one reading that fits the model's answers best, for each half learned from the other half.

    Returns:
        None where there are too few images of a class to learn anything from.
    """
    given, seen = trial.labels, trial.predictions
    if len(given) < _EACH * len(np.unique(given)):
        return None
    # Every second image of each class.
    order = np.argsort(given, kind="stable")
    half = np.zeros(len(given), bool)
    half[order[::2]] = True
    fitted = np.empty_like(given)
    for mine in (half, ~half):
        counts: NDArray[np.int64] = np.zeros((classes, classes), np.int64)
        known = ~mine & (seen >= 0)
        np.add.at(counts, (given[known], seen[known]), 1)
        # Where a class was not seen, and only there, it may as well stay what it is.
        chosen = linear_sum_assignment(2 * counts + np.eye(classes, dtype=np.int64), maximize=True)[1]
        fitted[mine] = chosen[given[mine]]
    return fitted
