"""Forecasts of running streams: on digits that were never shown, one small batch after another."""

import pytest
import torch
from digit_pictures import FIT, digits, prepare

import covshift
from covshift import CovshiftError, Live, Source
from covshift.shift import Predictor
from covshift.shift.forecast.follow import Answers

MEMORY = 300


def stream(predictor, source, images, labels):
    """The forecast after a stream of images, and the errors of the plain and of the adapted model on its last ones."""
    model = predictor._model
    follower, recent = predictor.follow(MEMORY), None
    shown = prepare(images)
    with torch.inference_mode():
        plain = model(shown).argmax(1)
        with covshift.adapt(model, Live(memory=MEMORY), source=source) as adapter:
            answers = []
            for batch in shown.split(20):
                logits = model(batch)
                recent = follower.remember(recent, logits)
                answers.append(logits.argmax(1))
            forecast = follower.forecast(recent, adapter.state)
    last = slice(-MEMORY, None)
    errors = [(each[last] != labels[last]).double().mean().item() for each in (plain, torch.cat(answers))]
    return forecast, *errors


@pytest.fixture(scope="module")
def source(trained):
    return Source.measure(trained, prepare(digits()[0][FIT]), progress=False)


@pytest.mark.parametrize(("name", "severity"), [(None, 0), ("fog", 1), ("gaussian_noise", 2), ("contrast", 2)])
def test_the_errors_on_a_stream_are_inside(predictor, source, name, severity):
    images, labels = digits()
    images, labels = images[900:1500], labels[900:1500]
    shown = images if name is None else covshift.corrupt(images, name, severity)
    forecast, plain, adapted = stream(predictor, source, shown, labels)
    assert forecast.images == MEMORY
    assert forecast.plain.low <= plain <= forecast.plain.high
    assert forecast.adapted.low <= adapted <= forecast.adapted.high
    if name is None:
        assert forecast.sure
        assert forecast.adapted.high < 0.3


def test_a_stream_of_one_class_cannot_be_told(predictor, source):
    images, labels = digits()
    few = labels == 3
    forecast, *_ = stream(predictor, source, images[few], labels[few])
    assert not forecast.sure
    assert "few classes (class 3" in forecast.why
    assert (forecast.adapted.low, forecast.adapted.high) == (0, 1)


def test_a_stream_of_something_else_cannot_be_told(predictor, source):
    noise = torch.randint(0, 256, (300, 3, 24, 24), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    forecast, *_ = stream(predictor, source, noise, torch.zeros(300, dtype=torch.long))
    assert not forecast.sure


def test_the_beginning_of_a_stream_cannot_be_told(predictor, source):
    images, labels = digits()
    forecast, *_ = stream(predictor, source, images[900:920], labels[900:920])
    assert forecast.why == "there are only 20 images; at least 32 are needed"


def test_other_places_cannot_be_told(predictor):
    answers = Answers(100.0, 0.1, 0.05, (0.1,) * 10)
    forecast = predictor.follow().forecast(answers, {})
    assert "nothing was seen" in forecast.why
    assert not forecast.sure


def test_what_is_remembered_is_the_mean_until_the_memory_is_full(predictor):
    logits = torch.randn(60, 10, generator=torch.Generator().manual_seed(0))
    follower, recent = predictor.follow(100), None
    for part in logits.split([1, 19, 40]):
        recent = follower.remember(recent, part)
    whole = follower.remember(None, logits)
    assert recent.images == whole.images == 60
    assert recent.doubt == pytest.approx(whole.doubt)
    assert recent.shares == pytest.approx(whole.shares)
    assert sum(recent.shares) == pytest.approx(1)


def test_an_old_predictor_cannot_follow(trained, predictor):
    old = Predictor(trained, predictor.conditions, predictor._scale)
    with pytest.raises(CovshiftError, match="fit it again"):
        old.follow()


def test_health_has_the_forecast_of_the_stream(predictor, source):
    images, labels = digits()
    images, labels = images[900:1200], labels[900:1200]
    wanted, *_ = stream(predictor, source, images, labels)
    model = predictor._model
    with torch.inference_mode(), covshift.adapt(model, Live(memory=MEMORY), source=source, predictor=predictor) as live:
        for batch in prepare(images).split(20):
            model(batch)
        assert live.health.forecast == wanted
