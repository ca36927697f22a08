"""Straight lines from a signal to an error, and how far off they are on a kind of shift they have not seen."""

import math
from collections.abc import Sequence
from typing import NamedTuple, get_args

import numpy as np

from covshift.corruptions import category
from covshift.shift.forecast.observe import WhichModel
from covshift.shift.forecast.signals import SIGNALS, PredictionMethod, Scale, signals_of
from covshift.shift.theory import Doubles
from covshift.support.errors import CovshiftError

_RIDGE = 0.1  # in units of signals with a standard deviation of 1
_ROUNDING = 1e-5
_EQUAL = 1e-6  # standard deviation of signals that do not vary
_SIGMAS = 1.96  # of a Gaussian's standard deviations hold 95 % on either side


class Calibration(NamedTuple):
    """A condition that a predictor was calibrated on, and what was measured on it.

    Attributes:
        corruption: the name of the corruption, or "clean".
        severity: the severity from 1 to 5; 0 for clean images.
        plain: the error of the model as it is.
        adapted: the error of the adapted model.
        signals: the value of each method's signal, under "plain judge", "adapted judge" and so on.
    """

    corruption: str
    severity: int
    plain: float
    adapted: float
    signals: dict[str, float]


class Line(NamedTuple):
    """error = intercept + Σ slope · signal, and the standard deviation of what is left on an unseen corruption."""

    intercept: float
    slopes: tuple[float, ...]
    spread: float

    def at(self, signals: Sequence[float], images: int) -> tuple[float, float]:
        """Return the error for the signals, and half of its interval where it is counted on this number of images."""
        error = min(1.0, max(0.0, self.intercept + sum(s * x for s, x in zip(self.slopes, signals, strict=True))))
        # Two wrong and two right answers more: an error of 0 that is counted on few images is not certain.
        counted = (error * images + 2) / (images + 4)
        return error, _SIGMAS * math.sqrt(self.spread**2 + counted * (1 - counted) / images)


def check_measured(conditions: Sequence[Calibration], scale: Scale) -> None:
    """Raise a `ValueError` unless these are such names and numbers as a calibration measures."""
    if not conditions or conditions[0][:2] != ("clean", 0):
        raise ValueError("its first condition is not clean/0")
    wanted = {f"{which} {name}" for which in get_args(WhichModel) for name in SIGNALS}
    for each in conditions:
        where = f"{each.corruption}/{each.severity}"
        if not isinstance(each.corruption, str) or type(each.severity) is not int or not 0 <= each.severity <= 5:
            raise ValueError(f"{where} is not a condition")
        if each.signals.keys() != wanted:
            odd = sorted(map(str, each.signals.keys() ^ wanted))[0]
            raise ValueError(f"its signals are not those that this version measures; the first that differs is {odd!r}")
        for name, value in {"plain error": each.plain, "adapted error": each.adapted, **each.signals}.items():
            _check_share(value, f"{name} of {where}", math.inf if name.endswith("distance") else 1.0)
    if len({each[:2] for each in conditions}) < len(conditions):
        raise ValueError("it has a condition twice")
    _check_share(scale.plain, "plain threshold")
    _check_share(scale.adapted, "adapted threshold")
    if not 0 < scale.temperature < math.inf:
        raise ValueError(f"its temperature is {scale.temperature}")


def _check_share(value: float, name: str, most: float = 1.0) -> None:
    # An average of probabilities may be off by a rounding error.
    if not (-_ROUNDING <= value <= most + _ROUNDING and math.isfinite(value)):
        raise ValueError(f"the {name} is {value:g}, which is not from 0 to {most:g}")


def fit_line(
    conditions: Sequence[Calibration], which: WhichModel, method: PredictionMethod, kind: str | None = None
) -> Line:
    """Fit the line of one method.

    Confidence and threshold stand for the error themselves, and the difference of confidences is added to the clean
    error; the others are regressed. The spread is that of corruptions left out of the regression in turn.

    Args:
        conditions: the calibration conditions, the clean one first.
        which: the model whose error is predicted: plain or adapted.
        method: the method whose signals are used.
        kind: the kind of conditions to use; the spread is then that around the line. None for all.
    """
    chosen = [each for each in conditions if kind is None or _kind(each) == kind]
    if len(chosen) < 2:
        raise CovshiftError(
            f"expected a kind with at least 2 calibration conditions to learn from, such as 'noise', got {kind!r} with "
            f"{len(chosen)}"
        )
    signals = np.array([[each.signals[f"{which} {name}"] for name in signals_of(method)] for each in chosen])
    errors = np.array([getattr(each, which) for each in chosen])
    if method in ("confidence", "difference", "threshold"):
        clean = conditions[0]
        offset = getattr(clean, which) - clean.signals[f"{which} {method}"] if method == "difference" else 0.0
        return Line(offset, (1.0,), float(np.sqrt(np.mean((signals[:, 0] + offset - errors) ** 2))))
    if not (signals.std(0) > _EQUAL).any():
        raise CovshiftError(
            "all calibration conditions look the same to the model; are the images constant, or all the same one?"
        )
    ridge = _RIDGE if signals.shape[1] > 1 else 0.0
    intercept, slopes = regress(signals, errors, ridge)
    if kind is not None:
        free = max(1, len(chosen) - 1 - len(slopes))
        spread = float(np.sqrt(np.sum((intercept + signals @ slopes - errors) ** 2) / free))
        return Line(intercept, tuple(slopes.tolist()), spread)
    groups = np.array([each.corruption for each in chosen])
    off = []
    for group in dict.fromkeys(groups):
        a, b = regress(signals[groups != group], errors[groups != group], ridge)
        off.append(a + signals[groups == group] @ b - errors[groups == group])
    return Line(intercept, tuple(slopes.tolist()), float(np.sqrt(np.mean(np.concatenate(off) ** 2))))


def _kind(condition: Calibration) -> str:
    return "clean" if condition.corruption == "clean" else category(condition.corruption)


def regress(signals: Doubles, errors: Doubles, ridge: float) -> tuple[float, Doubles]:
    """Return intercept and slopes of a ridge regression; the slope of a signal that does not vary is 0.

    Args:
        signals: [conditions, signals].
        errors: [conditions].
        ridge: how much slopes are held back, in units of signals with a standard deviation of 1.

    >>> intercept, slopes = regress(np.array([[0.0, 7.0], [1.0, 7.0]]), np.array([0.25, 0.75]), 0.0)
    >>> intercept, slopes.tolist()
    (0.25, [0.5, 0.0])
    """
    spread = signals.std(0)
    varied = spread > _EQUAL
    scale = np.where(varied, spread, np.inf)
    moved = (signals - signals.mean(0)) / scale
    held = np.diag(np.where(varied, ridge, 1.0))
    slopes = np.linalg.solve(moved.T @ moved + held, moved.T @ errors) / scale
    return float(errors.mean() - signals.mean(0) @ slopes), slopes
