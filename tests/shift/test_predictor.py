"""`Predictor`: on a small network that really classifies, against the labels that it is not shown."""

import copy

import numpy as np
import pytest
import torch
from digit_pictures import FIT, TEST, Classifier, digits, prepare
from safetensors.torch import save as to_safetensors
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import covshift
from covshift import CovshiftError
from covshift.core.calling import call_model
from covshift.shift import Predictor
from covshift.shift.forecast.observe import as_labels
from covshift.shift.forecast.regression import Calibration, fit_line
from covshift.shift.forecast.signals import COMBINED


def truth(model, images, labels):
    """The errors of the plain and of the adapted model, with labels."""
    batch = prepare(images)
    with torch.inference_mode():
        plain = (model(batch).argmax(1) != labels).float().mean().item()
        with covshift.adapt(model, covshift.Batch(prior=0)):
            adapted = (model(batch).argmax(1) != labels).float().mean().item()
    return plain, adapted


def test_predicts_the_error_on_shifts_it_has_not_seen(trained, predictor):
    images, labels = digits()
    off, plain_errors = [], []
    for name in ("gaussian_noise", "fog", "contrast", "defocus_blur", "pixelate"):
        for severity in (2, 4):
            shown = covshift.corrupt(images[TEST], name, severity)
            want = truth(trained, shown, labels[TEST])
            got = predictor.predict(shown)
            off.append([abs(got.plain.error - want[0]), abs(got.adapted.error - want[1])])
            plain_errors.append(want[0])
            for each in (got.plain, got.adapted):
                assert 0 <= each.low <= each.error <= each.high <= 1
            assert got.images == len(labels[TEST])
    plain, adapted = np.mean(off, 0)
    # Guessing the mean of the true errors would be off by this much.
    assert plain < np.mean(np.abs(plain_errors - np.mean(plain_errors))) / 2
    assert adapted < 0.06


def test_images_arrays_and_loaders_give_the_same(predictor):
    images, _ = digits()
    shown = covshift.corrupt(images[TEST], "fog", 3)
    want = predictor.predict(shown)
    assert predictor.predict(shown.permute(0, 2, 3, 1).numpy()) == want
    got = predictor.predict([(prepare(part), None) for part in shown.split(100)])
    assert got.plain == pytest.approx(want.plain, abs=1e-5)
    assert got.distance.layers.keys() == {"body.1", "body.4", "body.7"}


def test_answers_among_some_classes(trained, predictor):
    images, labels = digits()
    few = labels[TEST] < 3
    shown, want = covshift.corrupt(images[TEST][few], "fog", 3), labels[TEST][few]
    with torch.inference_mode():
        true = (trained(prepare(shown))[:, :3].argmax(1) != want).float().mean().item()
    among, of_all = predictor.predict(shown, among=range(3)), predictor.predict(shown)
    assert among.distance == of_all.distance
    assert abs(among.plain.error - true) < abs(of_all.plain.error - true)
    assert sum(among.classes.shares) == pytest.approx(1)
    assert not any(among.classes.shares[3:])


def test_one_class_among_some(predictor):
    images, labels = digits()
    forecast = predictor.predict(images[900:][labels[900:] == 4], among=range(3, 9))
    assert forecast.classes.skewed
    assert np.argmax(forecast.classes.shares) == 4
    assert not forecast.sure


def test_a_loader_that_shuffles_is_noticed(predictor):
    images, labels = digits()
    data = TensorDataset(prepare(images[TEST]), labels[TEST])
    want = predictor.predict(images[TEST])
    assert predictor.predict(DataLoader(data, 100)).plain == pytest.approx(want.plain, abs=1e-5)
    for size in (100, len(data)):
        with pytest.raises(CovshiftError, match="turn off shuffling"):
            predictor.predict(DataLoader(data, size, shuffle=True))


def test_batches_go_where_the_model_is():
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)).eval().to("meta")
    assert call_model(model, [torch.rand(2, 3, 8, 8), None]).device.type == "meta"
    assert call_model(model, {"input": torch.rand(2, 3, 8, 8)}).device.type == "meta"


def test_labels_of_any_whole_type():
    for dtype in (torch.int32, torch.uint8):
        found = as_labels(torch.tensor([3, 1], dtype=dtype), IMAGES[:2])
        assert (found.dtype, found.tolist()) == (torch.int64, [3, 1])


class Silent(Classifier):
    """One that has no answer."""

    def forward(self, x):
        return super().forward(x) * torch.nan


def test_what_was_saved_predicts_the_same(trained, predictor, tmp_path):
    images, _ = digits()
    predictor.save(tmp_path / "predictor")
    loaded = Predictor.load(tmp_path / "predictor", trained, preprocess=prepare)
    assert loaded.conditions == predictor.conditions
    assert loaded.predict(images[TEST]) == predictor.predict(images[TEST])
    with pytest.raises(CovshiftError, match="on other weights"):
        Predictor.load(tmp_path / "predictor", Classifier().eval())
    (tmp_path / "broken").write_bytes((tmp_path / "predictor").read_bytes()[:-30])
    with pytest.raises(CovshiftError, match="not a whole predictor"):
        Predictor.load(tmp_path / "broken", trained)
    with pytest.raises(CovshiftError, match="no predictor at"):
        Predictor.load(tmp_path / "nothing", trained)
    measured = torch.tensor([[0.1] * 4] * 2)
    metadata = {"format": "covshift predictor 1", "weights": "", "scale": "[1, 1, 1]", "signals": '["a", "b"]'}
    metadata["conditions"] = '[["clean", 0], ["fog", 3]]'
    for numbers, changes in (
        (measured[:1], {}),
        (measured * torch.nan, {}),
        (measured, {"scale": "[NaN, 1, 1]"}),
        (measured, {"scale": '["a", 1, 1]'}),
        (measured, {"signals": "[]"}),
        (measured, {"conditions": "7"}),
    ):
        (tmp_path / "spoilt").write_bytes(to_safetensors({"measured": numbers.clone()}, metadata | changes))
        with pytest.raises(CovshiftError, match="not a whole predictor"):
            Predictor.load(tmp_path / "spoilt", trained)
    covshift.Statistics.of(trained).save(tmp_path / "patch")
    with pytest.raises(CovshiftError, match="not a predictor"):
        Predictor.load(tmp_path / "patch", trained)


def test_other_methods(predictor):
    images, _ = digits()
    clean = predictor.conditions[0]
    assert (clean.corruption, clean.severity) == ("clean", 0)
    for method in ("agreement", "distance", "confidence", "difference", "threshold", "combined"):
        assert 0 <= predictor.predict(images[TEST], method=method).plain.error < 0.3
    assert predictor.line("plain", "difference").slopes == (1,)
    # By definition these two are right on the clean calibration images.
    for method in ("difference", "threshold"):
        line = predictor.line("plain", method)
        value = line.intercept + line.slopes[0] * clean.signals[f"plain {method}"]
        assert value == pytest.approx(clean.plain, abs=0.01)


def conditions(slope=2.0, noise=0.0):
    """Errors on a line with the signal "plain judge", and some corruptions off it."""
    rows = [("clean", 0), *((name, s) for name in ("speckle_noise", "gaussian_blur", "spatter") for s in (1, 3, 5))]
    return [
        Calibration(name, s, 0.1 + slope * s / 100 + noise * (name == "spatter"), 0.1, {"plain judge": s / 100})
        for name, s in rows
    ]


def test_lines():
    line = fit_line(conditions(), "plain", "judge")
    assert (line.intercept, *line.slopes, line.spread) == pytest.approx((0.1, 2.0, 0.0), abs=1e-9)
    assert line.at([0.2], 100)[0] == pytest.approx(0.5)
    assert line.at([0.2], 100)[1] == pytest.approx(1.96 * 0.05)
    assert line.at([9], 100)[0] == 1
    assert 0.05 < line.at([9], 40)[1] < 0.1  # 40 right answers leave room for 1 error in 20
    # spatter is one tenth off, and left out it lies that far from the line of the others
    assert fit_line(conditions(noise=0.1), "plain", "judge").spread > 0.05
    assert fit_line(conditions(noise=0.1), "plain", "judge", kind="blur").slopes == pytest.approx((2,))


def test_combined_takes_each_signal_for_what_it_is_worth():
    rng = np.random.default_rng(0)
    rows = [
        each._replace(signals={f"plain {name}": value for name, value in zip(COMBINED, rng.random(3), strict=True)})
        for each in conditions()
    ]
    true = (0.3, 0.0, 0.1)
    errors = [0.05 + sum(w * x for w, x in zip(true, row.signals.values(), strict=True)) for row in rows]
    rows = [row._replace(plain=error) for row, error in zip(rows, errors, strict=True)]
    line = fit_line(rows, "plain", "combined")
    assert line.slopes == pytest.approx(true, abs=0.01)
    constant = [row._replace(signals={**row.signals, "plain agreement": 0.0}) for row in rows]
    assert fit_line(constant, "plain", "combined").slopes[1] == 0


IMAGES = digits()[0][:20]
BAD = [
    (lambda m, p: Predictor.fit(m, IMAGES, range(20), corruptions=[]), "at least 2 holdout corruptions .* got 0"),
    (lambda m, p: Predictor.fit(m, IMAGES, range(20), corruptions=["fog"]), "got 1; one alone"),
    (lambda m, p: Predictor.fit(m, IMAGES, range(20), corruptions=["fog", "mist"], preprocess=prepare), "unknown"),
    (lambda m, p: Predictor.fit(m, IMAGES, range(19)), "one label for each of 20 images"),
    (lambda m, p: Predictor.fit(m, torch.zeros(20, 3, 24, 24, dtype=torch.uint8), range(20)), "the same one"),
    (lambda m, p: Predictor.fit(m, IMAGES, torch.rand(20)), "whole numbers from 0, got torch.float32"),
    (lambda m, p: Predictor.fit(m, IMAGES, range(-1, 19)), "whole numbers from 0, got torch.int64 from -1"),
    (lambda m, p: Predictor.fit(m, IMAGES, range(20), preprocess=prepare), "labels below 10, .* got 19"),
    (lambda m, p: Predictor.fit(m, IMAGES, range(20), severities=[]), "at least one severity"),
    (lambda m, p: Predictor.fit(m, IMAGES, range(20), batch_size=0), "batch_size to be .* from 1, got 0"),
    (lambda m, p: Predictor.fit(Silent().eval(), IMAGES, range(20), preprocess=prepare), "logits are NaN"),
    (lambda m, p: p.predict([prepare(IMAGES[:1])]), "several different images"),
    (lambda m, p: p.predict([torch.zeros(8, 3, 24, 24)]), "several different images"),
    (lambda m, p: p.predict([prepare(IMAGES) / 0]), "logits are NaN or infinite; check the images"),
    (lambda m, p: p.predict("folder:night"), "a loader that gives batches of images, got str"),
    (lambda m, p: p.predict(IMAGES[:1]), "several different images"),
    (lambda m, p: p.predict(IMAGES[0]), "expected uint8 images, .* or torch .* of shape"),
    (lambda m, p: p.predict(iter([IMAGES])), "gone through twice"),
    (lambda m, p: p.predict(7), "gone through twice"),
    (lambda m, p: p.predict(IMAGES, method="guess"), "unknown method 'guess'"),
    (lambda m, p: p.predict(IMAGES, among=[3, 10]), r"among the model's 10, got \[3, 10\]"),
    (lambda m, p: p.predict(IMAGES, kind="rain"), "at least 2 calibration conditions .* got 'rain' with 0"),
    (lambda m, p: Predictor.fit(nn.Sequential(nn.BatchNorm2d(3)).eval(), IMAGES, range(20), preprocess=prepare),
     r"logits \[images, classes\], got shape"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "message"), BAD, ids=[message for _, message in BAD])
def test_bad_input(call, message, trained, predictor):
    with pytest.raises(CovshiftError, match=message):
        call(trained, predictor)


def test_any_network_is_predicted_with_a_source(trained, tmp_path):
    """A network that holds no statistics is adapted by a source that is measured on the images to learn from."""
    images, labels = digits()
    model = copy.deepcopy(trained)
    for place in (1, 4, 7):  # its BatchNorm folded, so that nothing is left to correct
        conv, norm = model.body[place - 1], model.body[place]
        model.body[place - 1] = nn.utils.fuse_conv_bn_eval(conv, norm)
        model.body[place] = nn.Identity()
    options = {"preprocess": prepare, "severities": (3, 5)}
    fitted = Predictor.fit(model, images[FIT], labels[FIT], **options)
    assert fitted.source.statistics.keys() == {"body.0", "body.3", "body.6"}
    assert Predictor.fit(trained, images[FIT], labels[FIT], **options).source is None
    shifted = covshift.corrupt(images[TEST], "contrast", 4, seed=1)
    got = fitted.predict(shifted)
    batch = prepare(shifted)
    with torch.inference_mode():
        plain = (model(batch).argmax(1) != labels[TEST]).double().mean().item()
        with covshift.adapt(model, covshift.Batch(prior=0), source=fitted.source):
            adapted = (model(batch).argmax(1) != labels[TEST]).double().mean().item()
    assert got.adapted.error == pytest.approx(adapted, abs=0.15)
    assert got.plain.error > got.adapted.error
    assert plain > adapted
    fitted.save(tmp_path / "kept")
    kept = Predictor.load(tmp_path / "kept", model, preprocess=prepare)
    assert kept.predict(shifted) == got
