"""Every mistake, planted on a trained model: the doctor finds it, and nothing else."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from stripes import CLASSES, stripes, train
from typer.testing import CliRunner

from covshift.bench import run
from covshift.bench.results.store import Store
from covshift.cli import app
from covshift.data.selection import choose
from covshift.doctor import CHECKS, Examination, examine, examine_run
from covshift.models import open_model
from covshift.support.errors import CovshiftError

NET, FUSED = "file:net.pt?arch=py:stripes:net", "file:fused.pt?arch=py:stripes:fused"
DATA = "npz:set.npz"
IMAGES, LABELS = stripes(1200, seed=2)
FEW = choose(LABELS, limit=24)


@pytest.fixture(scope="session")
def trained(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    train(folder)
    return folder


@pytest.fixture
def here(trained, tmp_path, monkeypatch) -> Path:
    for name in ("net.pt", "fused.pt"):
        shutil.copy(trained / name, tmp_path)
    monkeypatch.chdir(tmp_path)
    store(IMAGES, LABELS)
    return tmp_path


def store(images: np.ndarray, labels: np.ndarray) -> str:
    np.savez("set.npz", images=images, labels=labels)
    return DATA


def unhealthy(report: Examination) -> dict[str, str]:
    return {name: finding.level for name, finding in report.findings.items() if finding.level != "ok"}


def as_text(first: int = 0) -> np.ndarray:
    """Where ImageFolder puts each of the folders 0, 1, 2 …, or 1, 2, 3 …"""
    numbers = [str(number) for number in range(first, first + CLASSES)]
    return np.array([sorted(numbers).index(number) for number in numbers])


def folder(broken: int) -> str:
    for index, (image, label) in enumerate(zip(IMAGES[:600], LABELS[:600], strict=True)):
        path = Path("val", str(label), f"{index}.png")
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path)
        if index < broken:
            path.write_bytes(path.read_bytes()[:100])
    return "folder:val"


def shuffled(labels: np.ndarray) -> np.ndarray:
    return np.random.default_rng(3).permutation(CLASSES)[labels]


def spoil(name: str, value: float = float("nan")) -> None:
    state = torch.load("net.pt", weights_only=True)
    state[name][0] += value
    torch.save(state, "net.pt")


def colours(mean: float, std: float) -> str:
    return f"&mean={mean},{mean},{mean}&std={std},{std},{std}"


# mistake: the model, what makes the data, and what must be found
MODEL_AND_DATA: dict[str, tuple[str, Callable[[], str], dict[str, str]]] = {
    "none": (NET, lambda: DATA, {}),
    "none, in files": (NET, lambda: folder(broken=0), {}),
    "a mean and std that are nearly right": (NET + "&mean=0.49,0.48,0.45&std=0.25,0.24,0.26", lambda: DATA, {}),
    "-1 to 1": (NET + colours(0.5, 0.5), lambda: DATA, {"normalisation": "problem"}),
    "0 to 1": (NET + colours(0, 1), lambda: DATA, {"normalisation": "problem"}),
    "0 to 255": (NET + colours(0, 1 / 255), lambda: DATA, {"normalisation": "problem"}),
    "BGR": (NET, lambda: store(IMAGES[..., ::-1], LABELS), {"channels": "problem"}),
    "enlarged": (NET + "&size=36", lambda: DATA, {"size": "problem"}),
    "labels of folders sorted as text": (
        NET,
        lambda: store(IMAGES, as_text()[LABELS]),
        {"labels": "problem"},
    ),
    "a model of folders sorted as text": (
        NET,
        lambda: store(IMAGES, np.argsort(as_text())[LABELS]),
        {"labels": "problem"},
    ),
    "labels of folders from 1 sorted as text": (
        NET,
        lambda: store(IMAGES, as_text(1)[LABELS]),
        {"labels": "problem"},
    ),
    "labels from 1": (NET, lambda: store(IMAGES, LABELS + 1), {"labels": "problem"}),
    "labels in any order": (NET, lambda: store(IMAGES, shuffled(LABELS)), {"labels": "problem"}),
    "other classes": (NET, lambda: DATA + "?classes=15", {"labels": "problem"}),
    "labels by chance": (
        NET,
        lambda: store(IMAGES, np.random.default_rng(0).permutation(LABELS)),
        {"labels": "problem"},
    ),
    "some classes": (
        NET,
        lambda: store(IMAGES[LABELS < 11], LABELS[LABELS < 11]) + f"?classes={CLASSES}",
        {"classes": "warning"},
    ),
    "NaN": (NET, lambda: spoil("8.weight") or DATA, {"outputs": "problem", "labels": "problem"}),
    "few images": (NET, lambda: store(IMAGES[FEW], LABELS[FEW]), {"images": "problem"}),
    "broken images": (NET, lambda: folder(broken=60), {"broken": "problem"}),
    "no statistics": (FUSED, lambda: DATA, {"statistics": "warning"}),
    "no statistics, and 0 to 1": (
        FUSED + colours(0, 1),
        lambda: DATA,
        {"statistics": "warning", "normalisation": "problem"},
    ),
    "0 to 1, and BGR": (
        NET + colours(0, 1),
        lambda: store(IMAGES[..., ::-1], LABELS),
        {"normalisation": "problem", "channels": "problem"},
    ),
    "0 to 1, and labels from 1": (
        NET + colours(0, 1),
        lambda: store(IMAGES, LABELS + 1),
        {"normalisation": "problem", "labels": "problem"},
    ),
}


@pytest.mark.parametrize("mistake", MODEL_AND_DATA)
def test_what_was_planted_is_found_and_nothing_else(here, mistake):
    model, make, expected = MODEL_AND_DATA[mistake]
    report = examine(model, make())
    assert unhealthy(report) == expected, report.findings
    for name in expected:
        assert report.findings[name].remedy


def test_answers_are_compared_among_the_classes_of_the_set(here, monkeypatch):
    spoil("8.bias", 100.0)  # the model only ever says 0
    data = store(IMAGES[LABELS > 0], LABELS[LABELS > 0]) + f"?classes={CLASSES}"
    assert unhealthy(examine(NET, data))["labels"] == "problem"
    monkeypatch.setattr("covshift.data.arrays.CleanArray.among", tuple(range(1, CLASSES)))
    assert unhealthy(examine(NET, data)) == {}


# what is planted: the words that name it
NAMED: dict[str, tuple[np.ndarray, str]] = {
    "text": (as_text()[LABELS], "the labels are sorted as text, 0, 1, 10, 11"),
    "text from 1": (as_text(1)[LABELS], "the labels are sorted as text, 1, 10, 11, 12"),
    "text, in the model": (np.argsort(as_text())[LABELS], "the model's classes are sorted as text, 0, 1, 10, 11"),
    "from 1": (LABELS + 1, "labels count from 1"),
    "two swapped": (np.where(LABELS > 1, LABELS, 1 - LABELS), "label 0 means 1, 1 means 0"),
    "far away": (LABELS + 10**6, "label 1000000 means 0, 1000001 means 1"),
}


@pytest.mark.parametrize("planted", NAMED)
def test_readings_have_names(here, planted):
    labels, words = NAMED[planted]
    finding = examine(NET, store(IMAGES, labels)).findings["labels"]
    assert words in finding.text
    assert finding.figures["mended_error"] < 0.1


def forget() -> None:
    rows = Path("out/rows.jsonl")
    rows.write_text("".join(rows.read_text().splitlines(keepends=True)[:3]))


# mistake: settings of the run, what happens after it, and what must be found
RUNS: dict[str, tuple[dict[str, object], Callable[[], None], dict[str, str]]] = {
    "none": ({}, lambda: None, {}),
    "sorted, but no method minds": ({"order": "label", "methods": "none,full"}, lambda: None, {}),
    "sorted": ({"order": "label"}, lambda: None, {"order": "problem"}),
    "another model": ({}, lambda: spoil("0.bias", 1e-3), {"changed": "problem"}),
    "stopped": ({}, forget, {"unfinished": "warning"}),
    "few images": ({"limit": 24}, lambda: None, {"images": "problem"}),
    "wrong std": ({"std": (1, 1, 1)}, lambda: None, {"normalisation": "problem"}),
}


@pytest.mark.parametrize("mistake", RUNS)
def test_runs(here, mistake):
    settings, happen, expected = RUNS[mistake]
    run({"model": NET, "data": DATA, "corruptions": "contrast", "severities": "1", **settings}, "out", progress=False)
    happen()
    report = examine_run(Path("out"))
    assert unhealthy(report) == expected, report.findings
    assert {"changed", "unfinished"} <= report.findings.keys() <= CHECKS.keys()


def test_figures_are_those_of_a_plain_loop(here):
    figures = examine(NET + colours(0, 1), DATA).findings["normalisation"].figures
    chosen = choose(LABELS, limit=512)
    for name, uri in (("error", NET + colours(0, 1)), ("mended_error", NET)):
        model = open_model(uri)
        with torch.inference_mode():
            seen = model.module(model.preprocess.tensor(IMAGES[chosen])).argmax(1).numpy()
        assert figures[name] == (seen != LABELS[chosen]).mean()


def test_a_wrong_order_of_labels_hides_nothing(here):
    findings = examine(NET + colours(0.5, 0.5), store(IMAGES, shuffled(LABELS))).findings
    healthy = examine(NET, store(IMAGES, LABELS)).findings["labels"].figures["error"]
    assert findings["normalisation"].figures["mended_error"] == pytest.approx(healthy, abs=0.02)
    assert findings["labels"].figures["mended_error"] == pytest.approx(healthy, abs=0.02)


def test_the_remedy_cures(here):
    remedy = examine(NET + colours(0.5, 0.5), DATA).findings["normalisation"].remedy
    mean, std = re.match(r"set `mean=(\S+)` and `std=(\S+)`, or", remedy).groups()
    assert not unhealthy(examine(f"{NET}&mean={mean}&std={std}", DATA))


def test_a_published_set_without_clean_images(here):
    for index, (image, label) in enumerate(zip(IMAGES[:600], LABELS[:600], strict=True)):
        path = Path("tree/contrast/1", str(label), f"{index}.png")
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path)
    report = examine(NET, "imagenet-c:tree")
    assert report.condition == "contrast/1"
    assert not unhealthy(report)


def test_the_command(here):
    def doctor(*arguments: str):
        return CliRunner().invoke(app, ["doctor", *arguments])

    healthy = doctor(NET, DATA, "--limit", "300")
    assert (healthy.exit_code, healthy.stdout.splitlines()[-1]) == (0, "no problem found")
    assert "300 images examined" in healthy.stdout
    sick = doctor(NET + colours(0, 1), DATA)
    assert sick.exit_code == 3
    assert "→ set --mean 0.485,0.456,0.406 and --std 0.229,0.224,0.225" in sick.stdout
    found = json.loads(doctor(NET + colours(0, 1), DATA, "--json").stdout)
    assert found["problems"] == ["normalisation"]
    first = next(finding for finding in found["findings"] if finding["check"] == "normalisation")
    assert first["figures"]["error"] > first["figures"]["mended_error"]
    for arguments, words in (
        (["nowhere"], "there is no run in nowhere"),
        ([NET], "expected a run folder, or a model and data"),
        ([NET, DATA, DATA], "expected a run folder, or a model and data"),
        ([NET, "npz:none.npz"], "there is no file"),
    ):
        failed = doctor(*arguments)
        assert failed.exit_code == 1
        assert words in failed.stderr


def test_nothing_can_be_read(here):
    Path("val/0").mkdir(parents=True)
    for index in range(3):
        Path(f"val/0/{index}.png").write_bytes(b"no picture")
    with pytest.raises(CovshiftError, match="none of the 3 images"):
        examine(NET, "folder:val")


def test_the_run_is_left_as_it_was(here):
    run({"model": NET, "data": DATA, "corruptions": "contrast", "severities": "1"}, "out", progress=False)
    before = {path.name: path.read_bytes() for path in Path("out").iterdir()}
    examine_run(Path("out"))
    assert {path.name: path.read_bytes() for path in Path("out").iterdir()} == before
    assert len(Store(Path("out")).rows()) == 6


def test_a_network_without_statistics_is_tried_anchored(here):
    found = examine(FUSED, DATA, limit=200).findings["statistics"]
    assert found.figures["images"] == 100
    assert abs(found.figures["full:anchored"] - found.figures["none"]) < 0.1  # nothing has shifted
    assert "anchored by half of the clean images" in found.text
    assert found.remedy == "use anchored methods: `methods=none,full:anchored`"
