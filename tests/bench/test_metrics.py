"""Numbers from rows, against published ones."""

import pytest
from runs import a_row

from covshift.bench.methods import PRIORS, parse_methods
from covshift.bench.results import metrics
from covshift.corruptions import names
from covshift.data.condition import CLEAN, SEVERITIES, Condition
from covshift.shift.prior import PRIOR_GRID, least_error_prior
from covshift.support.errors import CovshiftError

# Published for torchvision's ResNet-50 on all of ImageNet-C: top-1 accuracy by corruption, mean over severities.
RESNET50 = {
    "gaussian_noise": 29.29,
    "shot_noise": 27.03,
    "impulse_noise": 23.81,
    "defocus_blur": 38.75,
    "glass_blur": 26.79,
    "motion_blur": 38.67,
    "zoom_blur": 36.24,
    "snow": 32.53,
    "frost": 38.14,
    "fog": 45.83,
    "brightness": 68.02,
    "contrast": 39.06,
    "elastic_transform": 45.25,
    "pixelate": 44.79,
    "jpeg_compression": 53.41,
}


def errors(by_name: dict[str, float]) -> dict[Condition, float]:
    return {Condition(name, severity): value for name, value in by_name.items() for severity in SEVERITIES}


def test_published_mce_of_resnet50():
    found = errors({name: 1 - accuracy / 100 for name, accuracy in RESNET50.items()})
    assert round(100 * metrics.mce(found), 2) == 76.70
    assert round(100 * sum(metrics.by_corruption(found).values()) / 15, 2) == 60.83  # 39.17 % accuracy


def test_alexnet_measures_itself():
    found = errors(metrics.ALEXNET) | {CLEAN: metrics.ALEXNET_CLEAN}
    assert set(metrics.ALEXNET) == set(names("all"))
    assert metrics.mce(found) == pytest.approx(1)
    assert metrics.relative_mce(found) == pytest.approx(1)


def test_mce_needs_all_fifteen():
    found = errors(RESNET50)
    del found[Condition("fog", 3)]
    assert metrics.mce(found) is None
    assert metrics.relative_mce(errors(RESNET50)) is None  # no clean error


def test_another_baseline():
    rows = [a_row(f"{name}/{severity}/none", wrong=50) for name in names("test") for severity in SEVERITIES]
    baseline = metrics.baseline_of([*rows, a_row("clean/0/none", wrong=10)], "other")
    assert metrics.mce(errors(dict.fromkeys(names("test"), 0.25)), baseline) == pytest.approx(0.5)
    found = errors(dict.fromkeys(names("test"), 0.3)) | {CLEAN: 0.1}
    assert metrics.relative_mce(found, baseline) == pytest.approx(0.5)
    with pytest.raises(CovshiftError, match="makes no error"):
        metrics.baseline_of([row.model_copy(update={"top1_errors": 0}) for row in rows], "perfect")
    with pytest.raises(CovshiftError, match="no corruption with method none"):
        metrics.baseline_of(rows[:3], "short")


@pytest.mark.parametrize("wrong", [0, 1, 50, 99, 100])
def test_intervals_are_wilsons(wrong):
    from scipy.stats import binomtest

    interval = binomtest(wrong, 100).proportion_ci(0.95, method="wilson")
    found = metrics.rate(wrong, 100)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), abs=1e-12)


def test_prior_is_chosen_on_holdout_only():
    rows = []
    for place, prior in enumerate(PRIORS):
        name = f"batch:n=8,N={prior:g}"
        rows.append(a_row(f"spatter/1/{name}", wrong=50 + abs(place - 5)))
        rows.append(a_row(f"fog/1/{name}", wrong=50 + abs(place - 1)))
    assert metrics.choose_prior(rows, weighted=False) == 32
    assert metrics.choose_prior(rows, weighted=True) == 32
    with pytest.raises(CovshiftError, match="holdout"):
        metrics.choose_prior(rows[1::2], weighted=False)


def test_of_priors_that_tie_the_smallest_is_chosen_everywhere():
    tied = {1.0: 0.5, 8.0: 0.25, 2.0: 0.25, 1024.0: 0.25}
    assert least_error_prior(tied) == 2
    rows = [a_row(f"spatter/1/batch:n=8,N={prior:g}", wrong=round(100 * error)) for prior, error in tied.items()]
    assert metrics.choose_prior(rows, weighted=True) == 2
    assert PRIOR_GRID == PRIORS
    with pytest.raises(CovshiftError, match="one N or more"):
        least_error_prior({})


def test_weights_are_alexnets():
    # Saturate counts more than speckle_noise, on which AlexNet errs more.
    rows = [
        a_row("speckle_noise/1/batch:n=8,N=1", wrong=50),
        a_row("saturate/1/batch:n=8,N=1", wrong=54),
        a_row("speckle_noise/1/batch:n=8,N=2", wrong=55),
        a_row("saturate/1/batch:n=8,N=2", wrong=50),
    ]
    assert metrics.choose_prior(rows, weighted=False) == 1
    assert metrics.choose_prior(rows, weighted=True) == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("parital", "did you mean 'partial'"),
        ("batch", "how many images"),
        ("batch:n=0", "whole number"),
        ("batch:n=2.5", "whole number"),
        ("batch:n=8,N=-1", "to be a number from 0"),
        ("batch:n=8,N=x", "expected a method such as"),
        ("batch:n=8,M=1", "takes no M"),
        ("none:n=3", "takes no n"),
        ("stream:decay=2", "expected decay to be a factor"),
        ("live:memory=1", "expected memory to be a number of images above 1"),
        ("", "unknown method"),
    ],
)
def test_bad_methods(text, words):
    with pytest.raises(CovshiftError) as caught:
        parse_methods(text)
    assert words in str(caught.value)
