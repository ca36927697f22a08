"""`covshift shift` on the command line, with a small network and images from files."""

import json

import numpy as np
import pytest
from networks import images
from PIL import Image
from typer.testing import CliRunner

from covshift.cli import app
from covshift.shift import Distance
from covshift.shift.forecast import assess
from covshift.shift.forecast.forecast import Forecast, Prediction
from covshift.support.errors import CovshiftError

NETS = """
import torch
from torch import nn
from covshift.models import Preprocess

def net(seed=0):
    torch.manual_seed(int(seed))
    body = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    net = nn.Sequential(body, nn.Linear(8, 4)).train()
    for _ in range(50):
        net(torch.rand(16, 3, 24, 24) * 3 - 1)
    return net.eval(), Preprocess(None, 24, "bilinear", (0.5, 0.5, 0.5), (0.25, 0.25, 0.25))

def other():
    return net(1)
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    (tmp_path / "nets_to_shift.py").write_text(NETS)
    pixels = (images(20, 24).clamp(-1, 1) * 127.5 + 127.5).byte().permute(0, 2, 3, 1).numpy()
    np.savez(tmp_path / "some.npz", images=pixels, labels=np.arange(20) % 4)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)

    def call(*arguments, model="net"):
        return CliRunner().invoke(
            app, ["shift", "--model", f"py:nets_to_shift:{model}", "--target", "npz:some.npz", *arguments]
        )

    return call


def test_distance_alone(run):
    near, far = (json.loads(run("--condition", c, "--json").stdout) for c in ("clean/0", "contrast/5"))
    assert near["layers"].keys() == {"0.1"}
    assert near["images"] == 20
    assert far["distance"] != near["distance"]
    assert "plain" not in near
    text = run("--limit", "7").stdout
    assert text.startswith("normalised distance ")
    assert "over 7 images" in text
    assert "with --source" in text


def test_prediction_and_alarm(run, tmp_path):
    given = ("--source", "npz:some.npz", "--condition", "gaussian_noise/3", "--predictor", "kept")
    first = run(*given)
    assert first.exit_code == 0, first.output
    assert "a guess, which may be off by any amount: " in first.stdout
    assert "% if adapted" in first.stdout
    assert (tmp_path / "kept").exists()
    assert run(*given, "--alarm", "1", "--ignore-unsure").exit_code == 0  # no error is above 100 %
    # what was kept needs no source
    told = json.loads(run(*given[2:], "--json").stdout)
    assert 0 <= told["plain"]["low"] <= told["plain"]["error"] <= told["plain"]["high"] <= 1
    wrong = run(*given, model="other")
    assert wrong.exit_code == 1
    assert "on other weights" in wrong.stderr


def test_three_times_as_many_images_are_taken_of_the_source(run, monkeypatch):
    def learn(model, data, limit, **_):
        raise CovshiftError(f"asked for {limit}")

    monkeypatch.setattr(assess, "learn", learn)
    assert "asked for 15" in run("--source", "npz:some.npz", "--limit", "5").stderr


def test_images_to_label_have_the_names_of_their_files(run, tmp_path):
    """Images are taken evenly from a folder, so that the tenth of them is not the folder's tenth."""
    (tmp_path / "pictures").mkdir()
    for number in range(50):
        level = np.full((24, 24, 3), 5 * number, np.uint8)
        Image.fromarray(level).save(tmp_path / "pictures" / f"{number:02}.png")
    assert run("--source", "npz:some.npz", "--predictor", "kept").exit_code == 0
    given = ("--target", "folder:pictures", "--limit", "10", "--predictor", "kept")
    advice = json.loads(run(*given, "--json").stdout)["advice"]
    taken = [f"{round(position * 49 / 9):02}.png" for position in range(10)]
    assert advice["names"] == [taken[position] for position in advice["label"]]
    assert f"label 10 of the 10 images: {', '.join(advice['names'])}" in run(*given).stdout


def test_what_cannot_be_told_is_an_alarm(run):
    given = ("--source", "npz:some.npz", "--predictor", "kept")
    first = run(*given)
    assert first.stdout.startswith("cannot tell the error: there are only 20 images; at least 32 are needed")
    assert "advice: label 20 of the 20 images: " in first.stdout
    assert "(clean images " in first.stdout
    told = json.loads(run(*given, "--json").stdout)
    assert (told["sure"], told["advice"]["action"], len(told["advice"]["label"])) == (False, "label", 20)
    assert told["chance"]["layers"].keys() == told["below"]["layers"].keys() == told["layers"].keys()
    assert sum(told["classes"]["shares"]) == pytest.approx(1)
    assert run(*given, "--alarm", "0.99").exit_code == 4
    assert run(*given, "--alarm", "1").exit_code == 4
    assert run(*given, "--alarm", "0.99", "--ignore-unsure").exit_code == 0
    assert run(*given, "--alarm", "0", "--ignore-unsure").exit_code == 0


@pytest.mark.parametrize(
    ("sure", "options", "code"),
    [
        (True, ["--alarm", "0.6"], 0),
        (True, ["--alarm", "0.4"], 3),
        (True, ["--alarm", "0.4", "--ignore-unsure"], 3),
        (True, [], 0),
        (False, ["--alarm", "0.6"], 4),
        (False, ["--alarm", "0.4"], 4),  # a guess is not above anything
        (False, ["--alarm", "0.4", "--ignore-unsure"], 0),
        (False, [], 0),
    ],
)
def test_exit_codes(run, monkeypatch, sure, options, code):
    forecast = Forecast(Prediction(0.5, 0.4, 0.7), Prediction(0.3, 0.2, 0.4), Distance({}), 100, sure=sure, why="odd")
    monkeypatch.setattr(assess, "assess", lambda *_, **__: assess.Assessment(forecast.distance, 100, forecast))
    assert run("--source", "npz:some.npz", *options).exit_code == code


def test_an_alarm_is_a_share(run):
    result = run("--source", "npz:some.npz", "--alarm", "40")
    assert result.exit_code == 2
    assert "--alarm" in result.stderr


def test_pictures_without_classes(run, tmp_path):
    pixels = np.load("some.npz")["images"]
    (tmp_path / "night" / "deep").mkdir(parents=True)
    for place, image in enumerate(pixels):
        Image.fromarray(image).save(tmp_path / "night" / ("deep" if place > 9 else "") / f"{place:02}.png")
    got = json.loads(run("--target", "folder:night", "--json").stdout)
    assert got["images"] == 20
    assert got["distance"] == pytest.approx(json.loads(run("--json").stdout)["distance"])
    assert "expected a folder for each class" in run("--source", "folder:night").stderr


def test_a_source_whose_answers_are_compared_among_some_classes(run, monkeypatch):
    monkeypatch.setattr("covshift.data.arrays.CleanArray.among", (0, 1))
    assert "compared among 2 of them" in run("--source", "npz:some.npz").stderr


def test_a_target_whose_answers_are_compared_among_some_classes(run, monkeypatch):
    run("--source", "npz:some.npz", "--predictor", "kept")
    of_all = json.loads(run("--predictor", "kept", "--json").stdout)
    monkeypatch.setattr("covshift.data.arrays.CleanArray.among", (0, 1))
    among = json.loads(run("--predictor", "kept", "--json").stdout)
    assert among["distance"] == of_all["distance"]
    assert among["plain"] != of_all["plain"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--condition", "fog"], "a condition such as fog/3"),
        (["--condition", "fog/9"], "severity from 1 to 5"),
        (["--condition", "mist/3"], "unknown corruption 'mist'"),
        (["--alarm", "0.3"], "expected --source or --predictor with --alarm"),
        (["--predictor", "typo"], "there is no predictor at typo; name clean labelled images to learn one: --source"),
        (["--source", "npz:nothing.npz"], "nothing.npz"),
        (["--source", "npz:some.npz?classes=5"], "distinguishes 4 classes, and npz:some.npz?classes=5 has 5"),
        (["--device", "abacus"], "expected a device such as auto, cpu, cuda, cuda:1 or mps, got 'abacus'"),
    ],
)
def test_bad_input(run, arguments, message):
    result = run(*arguments)
    assert result.exit_code == 1
    assert message in result.stderr
