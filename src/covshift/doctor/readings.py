"""The ways in which labels may mean other classes to the model than to the data."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment

from covshift.data.base import Labels
from covshift.doctor.trial import NO_CLASS, Trial

_EACH = 4  # images of a class, at least, to learn from one half what the other one confirms


class Reading(NamedTuple):
    """An interpretation of labels as other classes of the model.

    Attributes:
        name: the description of the reading in words.
        remedy: the advice to the user if this is the right reading.
        classes: the class of the model that each image would have.
    """

    name: str
    remedy: str
    classes: Labels


def explained(trial: Trial, classes: int) -> Trial:
    """Return the same answers of the model with labels read in the way that fits them best."""
    read = (Trial(trial.predictions, reading.classes) for reading in readings(trial, classes))
    return min([trial, *read], key=lambda each: each.error)


def readings(trial: Trial, classes: int) -> Iterator[Reading]:
    """Yield readings of labels that people get wrong, and last the one that fits the model's answers best."""
    given = trial.labels
    yield Reading("labels count from 1", "subtract 1 from the labels", given - 1)
    yield Reading("class 0 of the model is the background", "add 1 to the labels, or drop that output", given + 1)
    for first in (0, 1) if classes >= 10 and given.max() < classes else ():
        names = np.array(sorted(range(classes), key=lambda place: str(first + place)))
        some = ", ".join(str(first + place) for place in names[:4])
        remedy = "sort class folders as numbers, not as text: 2 before 10"
        yield Reading(f"the model's classes are sorted as text, {some} …", remedy, np.argsort(names)[given])
        yield Reading(f"the labels are sorted as text, {some} …", remedy, names[given])
    fitted = fit_reading(trial, classes)
    if fitted is not None:
        means = dict(zip(given.tolist(), fitted.tolist(), strict=True))
        moved = [f"{label} means {means[label]}" for label in sorted(means) if label != means[label]]
        remedy = "put the data's classes into the order that the model was trained with"
        yield Reading(f"label {', '.join(moved[:4])} …", remedy, fitted)


def fit_reading(trial: Trial, classes: int) -> Labels | None:
    """Return the one-to-one reading that fits the model's answers best, for each half learned from the other half.

    Returns:
        None where there are too few images of a class to learn anything from.
    """
    known, given = np.unique(trial.labels, return_inverse=True)
    if len(given) < _EACH * len(known):
        return None
    half = np.zeros(len(given), bool)
    half[np.argsort(given, kind="stable")[::2]] = True  # every second image of each class
    fitted = np.empty_like(trial.labels)
    for mine in (half, ~half):
        others = ~mine & (trial.predictions >= 0)
        counts = np.zeros((len(known), classes), np.int64)
        np.add.at(counts, (given[others], trial.predictions[others]), 2)
        # Where the answers leave a choice, a label means what it says.
        own = np.flatnonzero(known < classes)
        counts[own, known[own]] += 1
        meaning = np.full(len(known), NO_CLASS)
        rows, columns = linear_sum_assignment(counts, maximize=True)
        meaning[rows] = columns
        fitted[mine] = meaning[given[mine]]
    return fitted
