"""Predicted errors of cameras: by a saved predictor, in answers, metrics and alarms."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from networks import images
from prometheus_client.parser import text_string_to_metric_families
from serving import SIDE, serving, tiny_model

import covshift
from covshift import CovshiftError, Fleet, Live, Source, Stream
from covshift.serve import demo
from covshift.serve.alarms import Rules
from covshift.serve.build import build
from covshift.serve.predicting import EVERY, make_predict, open_predictor
from covshift.serve.settings import Settings
from covshift.serve.watch import watch

IMAGE = np.zeros((1, 3, SIDE, SIDE), np.float32)


class Counting:
    """A forecaster whose error is the number of answers in percent; sure from 16 on."""

    def remember(self, before, logits):
        return (before or 0) + len(logits)

    def forecast(self, answers, seen):
        error = SimpleNamespace(error=answers / 100, low=answers / 200, high=1.0)
        return SimpleNamespace(plain=None, adapted=error, sure=answers >= 16, why="too few")


def test_errors_are_predicted_anew_after_some_images_and_forgotten_with_the_stream():
    predict, fleet = make_predict(Counting()), Fleet(tiny_model(), Stream())

    def send(number: int, seed: int = 0):
        answers = fleet.answer({"gate": images(number, SIDE, seed=seed, dtype=torch.float32)})
        return predict(fleet["gate"], answers["gate"])

    with fleet:
        assert send(EVERY) is None, "it cannot be told"
        assert send(EVERY).error == pytest.approx(0.16)
        assert send(1).error == pytest.approx(0.16), "the last prediction holds for a while"
        assert send(EVERY - 1).error == pytest.approx(0.24)
        fleet["gate"].reset()
        assert send(1) is None
        assert predict(fleet["gate"], torch.full((1, 4), torch.nan)) is None


def test_answers_metrics_and_alarms_have_the_predicted_error():
    def extras(service):
        service._predict = make_predict(Counting())
        return [watch(service, Rules(error=0.05, days=1e-9))]

    with serving(policy=Stream(), extras=extras) as served:
        assert served.infer(IMAGE, "gate").json["parameters"]["predicted_error"] == "cannot tell"
        for seed in range(40):
            batch = images(4, SIDE, seed=seed, dtype=torch.float32).numpy()
            parameters = served.infer(batch, "gate").json["parameters"]
        assert parameters["predicted_error_low"] == pytest.approx(parameters["predicted_error"] / 2)
        text = served.request("GET", "/metrics").body.decode()
    found = {family.name: family.samples for family in text_string_to_metric_families(text)}
    bounds = {sample.labels["bound"]: sample.value for sample in found["covshift_camera_predicted_error"]}
    assert bounds["middle"] == pytest.approx(parameters["predicted_error"])
    assert found["covshift_cameras_alarmed"][0].value == 1


@pytest.mark.parametrize("condition", ["clean/0", demo.FOG])
def test_the_demonstration_predicts_its_own_errors(condition):
    """The interval holds the error on the images that are shown, all of which the predictor has not seen."""
    model, data = covshift.open_model(demo.MODEL), covshift.open_data(demo.DATA)
    source = Source.measure(model, data.loader(model, batch_size=50, limit=500), progress=False)
    shown = data.pixels(model, condition=condition, **demo.SHOWN)
    frames, labels = model.preprocess.tensor(shown.images), torch.as_tensor(shown.labels)
    predict, wrong = open_predictor(demo.PREDICTOR, model, Live()), []
    with Fleet(model, Live(), source=source) as fleet:
        for batch, truth in zip(frames.split(10), labels.split(10), strict=True):
            logits = fleet.answer({"gate": batch})["gate"]
            predicted = predict(fleet["gate"], logits)
            wrong += (logits.argmax(1) != truth).tolist()
    assert predicted is not None
    assert predicted.low <= np.mean(wrong[-200:]) <= predicted.high


def test_a_predictor_of_another_model_is_refused():
    with pytest.raises(CovshiftError, match="another model"):
        build("builtin:resnet20-augmix", Settings(), predictor=demo.PREDICTOR)
