"""Summaries of a run's errors: error rates with intervals, corruption errors, mCE, and the choice of N."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from covshift.bench.methods import NONE, PARTIAL_IMAGES, PRIORS, batch
from covshift.bench.results.store import Row
from covshift.corruptions import names
from covshift.data.condition import CLEAN, SEVERITIES, Condition
from covshift.shift.prior import least_error_prior
from covshift.support.errors import CovshiftError

ErrorRates = Mapping[Condition, float]
"""Top-1 error, from 0 to 1, in each condition."""

ALEXNET = {
    "gaussian_noise": 0.886428,
    "shot_noise": 0.894468,
    "impulse_noise": 0.922640,
    "defocus_blur": 0.819880,
    "glass_blur": 0.826268,
    "motion_blur": 0.785948,
    "zoom_blur": 0.798360,
    "snow": 0.866816,
    "frost": 0.826572,
    "fog": 0.819324,
    "brightness": 0.564592,
    "contrast": 0.853204,
    "elastic_transform": 0.646056,
    "pixelate": 0.717840,
    "jpeg_compression": 0.606500,
    "speckle_noise": 0.845388,
    "gaussian_blur": 0.787108,
    "spatter": 0.717512,
    "saturate": 0.658248,
}
"""AlexNet's top-1 error on ImageNet-C, mean over the severities: what corruption errors are measured against."""

ALEXNET_CLEAN = 0.43478

Z = 1.959963984540054
"""The number of standard deviations within which 95 % of a normal distribution lie."""


class Baseline(NamedTuple):
    """The model whose errors others are measured against: on clean images, and by corruption, over severities."""

    name: str
    clean: float | None
    errors: Mapping[str, float]


AS_PUBLISHED = Baseline("AlexNet", ALEXNET_CLEAN, ALEXNET)


class Rate(NamedTuple):
    """A share of errors and its 95 % interval."""

    value: float
    low: float
    high: float


def rate(errors: int, images: int) -> Rate:
    """Return the share of errors, with Wilson's interval.

    >>> [round(value, 4) for value in rate(50, 100)]
    [0.5, 0.4038, 0.5962]
    """
    if not 0 <= errors <= images or images == 0:
        raise CovshiftError(f"expected 0 to {images} errors in one image or more, got {errors}")
    share, z = errors / images, Z**2 / images
    middle = (share + z / 2) / (1 + z)
    half = Z / (1 + z) * math.sqrt(share * (1 - share) / images + z / (4 * images))
    return Rate(share, max(0.0, middle - half), min(1.0, middle + half))


def mean_rate(rates: Iterable[Rate]) -> Rate:
    """Return the mean of error rates on the same images.

    The interval is the mean of theirs: as wide as if all of them erred together, since they share their images.
    """
    rates = list(rates)
    value, low, high = (math.fsum(column) / len(rates) for column in zip(*rates, strict=True))
    return Rate(value, low, high)


def by_corruption(errors: ErrorRates) -> dict[str, float]:
    """Return the mean error over severities of each corruption that has all five."""
    return {
        name: math.fsum(errors[Condition(name, severity)] for severity in SEVERITIES) / len(SEVERITIES)
        for name in names("all")
        if all(Condition(name, severity) in errors for severity in SEVERITIES)
    }


def corruption_errors(errors: ErrorRates, baseline: Baseline = AS_PUBLISHED) -> dict[str, float]:
    """Return the CE of each corruption: the error over severities, as a share of the baseline's."""
    found = by_corruption(errors)
    return {name: value / baseline.errors[name] for name, value in found.items() if baseline.errors.get(name)}


def mce(errors: ErrorRates, baseline: Baseline = AS_PUBLISHED) -> float | None:
    """Return the mean corruption error of the 15 test corruptions, 1 for the baseline; None where one is missing."""
    return _mean_over_test(corruption_errors(errors, baseline))


def relative_mce(errors: ErrorRates, baseline: Baseline = AS_PUBLISHED) -> float | None:
    """Return mCE for what corruption adds to the clean error; None without clean errors of both."""
    if CLEAN not in errors or baseline.clean is None:
        return None
    clean = errors[CLEAN]
    return _mean_over_test(
        {
            name: (value - clean) / (baseline.errors[name] - baseline.clean)
            for name, value in by_corruption(errors).items()
            if name in baseline.errors and baseline.errors[name] != baseline.clean
        }
    )


def _mean_over_test(values: Mapping[str, float]) -> float | None:
    test = names("test")
    return math.fsum(values[name] for name in test) / len(test) if all(name in values for name in test) else None


def errors_of(rows: Iterable[Row], method: str) -> dict[Condition, float]:
    """Return the errors of one method."""
    return {
        Condition(row.corruption, row.severity): row.top1_errors / row.images for row in rows if row.method == method
    }


def baseline_of(rows: Iterable[Row], name: str) -> Baseline:
    """Return another run's model, without adaptation, as a baseline in AlexNet's place."""
    errors = errors_of(rows, NONE)
    found = by_corruption(errors)
    if not found:
        raise CovshiftError(f"the baseline {name} has no corruption with method {NONE} at all five severities")
    if zero := [corruption for corruption, value in found.items() if value == 0 and corruption in names("test")]:
        raise CovshiftError(f"the baseline {name} makes no error on {zero[0]}, nothing can be measured against it")
    return Baseline(name, errors.get(CLEAN), found)


def choose_prior(rows: Iterable[Row], *, weighted: bool, anchored: bool = False) -> float:
    """Return the N of 1, 2, 4 … 1024 that is best on the holdout corruptions, for batches of 8 images.

    Args:
        rows: of `batch:n=8,N=…` in conditions of holdout corruptions; others are passed over.
        weighted: by AlexNet's errors, as the paper does for ImageNet; else each condition counts the same.
        anchored: whether to choose N for batches that are corrected to a measured source.
    """
    methods = {replace(batch(PARTIAL_IMAGES, prior), anchored=anchored).name: prior for prior in PRIORS}
    totals: dict[float, list[float]] = defaultdict(list)
    for row in rows:
        if row.method in methods and row.corruption in names("holdout"):
            weight = 1 / ALEXNET[row.corruption] if weighted else 1.0
            totals[methods[row.method]].append(weight * row.top1_errors / row.images)
    if not totals:
        raise CovshiftError("expected rows of batch:n=8,N=… on holdout corruptions to choose N by, found none")
    return least_error_prior({prior: math.fsum(sorted(errors)) for prior, errors in totals.items()})
