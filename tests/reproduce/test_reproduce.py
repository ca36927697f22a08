"""`covshift reproduce`: what the paper's tables need, its numbers, and the miniature from end to end."""

import csv
import json
from contextlib import nullcontext
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner

from covshift import CovshiftError
from covshift.bench.engines.where import Shard, Where
from covshift.bench.results.merge import merge_runs
from covshift.bench.results.metrics import ALEXNET
from covshift.bench.results.store import Row, Store
from covshift.bench.settings import Settings
from covshift.cli import app
from covshift.corruptions import names
from covshift.models import builtin
from covshift.models.cifar import ResNet
from covshift.models.zoo import ENTRIES
from covshift.reproduce import Metric, contents
from covshift.reproduce import hours as estimate
from covshift.reproduce import rerun as command
from covshift.reproduce.locations import Locations
from covshift.reproduce.miniature import miniature
from covshift.reproduce.paper_figures import published_grid
from covshift.reproduce.target import join
from covshift.support.uri import parse

TARGETS = contents.targets(builtin=False)
NETWORKS = ("resnet20", "resnet20-augmix", "resnet20-noise", "resnet20-gn", "resnet20-fixup", "resnet32")
FOLDERS = {
    name: Path(name) for name in ("imagenet", "imagenet-c", "imagenet-a", "imagenet-r", "imagenet-v2", "objectnet")
}
WEIGHTS = {name: Path("x") for name, entry in ENTRIES.items() if not entry.files}


def paper(target, row, column):
    return next(n.paper for n in TARGETS[target].numbers if (n.row, n.column) == (row, column))


@pytest.mark.parametrize("target", [*TARGETS.values(), *miniature(NETWORKS)], ids=lambda target: target.name)
def test_every_number_comes_from_a_run_that_is_made(target):
    jobs = join(target.jobs)
    places = Locations(FOLDERS, WEIGHTS)
    for number in target.numbers:
        settings = Settings.read(places.settings(jobs[number.run]))
        assert number.metric.method in settings.methods
        assert set(number.metric.conditions) <= set(settings.plan.conditions), number
    used = {number.run for number in target.numbers}
    assert used == set(jobs)
    for job in jobs.values():  # and nothing that no number needs, but to choose N by
        wanted = {number.metric.method for number in target.numbers if number.run == job.name}
        assert wanted == set(job.settings["methods"])
    assert len({(n.row, n.column) for n in target.numbers}) == len(target.numbers)


def test_the_papers_numbers_agree_with_each_other():
    # The column of differences in table 1, which is printed there (but for AssembleNet, whose -1.16 is a misprint).
    printed = {
        "Vanilla ResNet-50": 14.45,
        "SIN": 9.83,
        "ANT": 9.80,
        "ANT+SIN": 7.02,
        "DeepAug": 10.92,
        "DeepAug+AM": 8.19,
    }
    for row, difference in printed.items():
        assert paper("table1", row, "mCE, without") - paper("table1", row, "mCE, full") == pytest.approx(
            difference, abs=0.02
        )
    gains = {"SIN": 4.4, "ANT": 3.0, "ANT+SIN": 1.8, "DeepAug": 5.3, "DAug+AM+RNXt101": 3.9}
    for row, gain in gains.items():
        assert paper("table5", row, "base") - paper("table5", row, "adapted") == pytest.approx(gain)
    # Partial adaptation of table 1 is a cell of the table of n and N.
    grid = published_grid()
    assert len(grid) == 9 * (5 * 10 + 3)
    assert grid["resnet50", 8, 32.0] == pytest.approx(paper("table1", "Vanilla ResNet-50", "mCE, partial"), abs=0.01)
    assert grid["augmix", 8, 32.0] == pytest.approx(paper("table1", "AugMix", "mCE, partial"), abs=0.01)
    assert grid["deepaugment-augmix-resnext101", 8, 8.0] == 40.67
    assert paper("table3", "ResNet-50", "BN") == pytest.approx(
        paper("table1", "Vanilla ResNet-50", "mCE, without"), abs=0.05
    )


def row(corruption, severity, method, wrong, images=1000):
    return Row(
        cell=f"{corruption}/{severity}/{method}",
        model="m",
        data="d",
        corruption=corruption,
        severity=severity,
        method=method,
        n=None,
        prior=None,
        images=images,
        top1_errors=wrong,
        top5_errors=wrong // 2,
        seconds=1,
    )


def test_metrics_are_read_off_rows():
    rows = [row(name, s, "none", round(1e6 * ALEXNET[name]), 10**6) for name in names("test") for s in range(1, 6)]
    rows += [row("clean", 0, "none", 250), row("mixed", 0, "full", 400)]
    assert Metric("mce", "none").of(rows) == pytest.approx(100, abs=1e-3)
    assert Metric("top1", "none").of(rows) == pytest.approx(
        100 * np.mean([ALEXNET[n] for n in names("test")]), abs=1e-3
    )
    assert Metric("accuracy", "none", "clean").of(rows) == 75
    assert Metric("top5", "none", "clean").of(rows) == 12.5
    assert Metric("top1", "full", "mixed").of(rows) == 40
    assert Metric("top1", "none", "fog").of(rows) == pytest.approx(100 * ALEXNET["fog"], abs=1e-3)
    assert Metric("mce", "full").of(rows) is None
    assert Metric("top1", "none", "mixed").of(rows) is None


def test_data_and_weights_that_are_missing():
    places = Locations({"imagenet": Path("in")})
    runs, missing = command.needed_runs(contents.choose_targets("table3", [], builtin=False), places)
    assert set(missing) == {*(f"fixup-resnet{d}-imagenet-c" for d in (50, 101, 152)), "groupnorm-resnet152-imagenet-c"}
    assert (
        "covshift train resnet50-fixup, and name it: `weights=fixup-resnet50=FILE`"
        in missing["fixup-resnet50-imagenet-c"]
    )
    settings = runs["resnet50-imagenet-c"]
    assert (settings.data, settings.jpeg, settings.model) == ("imagenet:in", 85, "zoo:resnet50")
    assert settings.methods == ("none", "full")
    with pytest.raises(CovshiftError, match=r"imagenet-r is missing; name its folder: `imagenet-r=DIR`$"):
        command.needed_runs(contents.choose_targets("table5", [], builtin=False), places)
    runs, _ = command.needed_runs(
        contents.choose_targets("figure5", ["threshold"], builtin=False), Locations({"imagenet-v2": Path("v2")})
    )
    assert [run.data for run in runs.values()] == ["imagenet-v2:v2?variant=threshold0.7"]
    for name, message in {
        "table11": "table11 needs no benchmark: covshift shift",
        "tabel1": "unknown table or figure 'tabel1'; did you mean 'table1'",
    }.items():
        with pytest.raises(CovshiftError, match=message):
            contents.choose_targets(name, [], builtin=False)
    with pytest.raises(
        CovshiftError,
        match=r"expected a part of a label of table1, got nothing; its rows are Vanilla ResNet-50, SIN, ANT, ",
    ):
        contents.choose_targets("table1", ["nothing"], builtin=False)


def test_a_row_runs_what_it_needs():
    (target,) = contents.choose_targets("table12", ["ResNet-50, n = 8"], builtin=False)
    (job,) = target.jobs
    assert job.settings["methods"] == tuple(f"batch:n=8,N={2**power}" for power in range(9))
    (target,) = contents.choose_targets("table4", ["BN w/o"], builtin=False)
    assert {job.settings["methods"] for job in target.jobs} == {("none",)}
    assert len(target.jobs) == 3


def test_imagenet_c_is_made_in_one_way_for_all_models():
    places = Locations({"imagenet": Path("in")})
    found = contents.choose_targets("table10", [], builtin=False) + contents.choose_targets(
        "figure3", [], builtin=False
    )
    for settings in command.needed_runs(found, places)[0].values():
        assert (settings.size, settings.resize, settings.interpolation) == (224, 256, "bilinear")


def test_weights_in_a_file_with_an_odd_name(tmp_path):
    file = tmp_path / "R&D 100%?.pth"
    job = contents.choose_targets("table3", ["ResNet-50"], builtin=False)[0].jobs[0]
    uri = Locations({"imagenet": tmp_path}, {job.model: file}).settings(job)["model"]
    assert parse(uri, "model", "zoo:resnet50").query == {"file": str(file)}


def test_the_estimate_counts_operations_and_cells():
    settings = Settings.read(
        {"model": "zoo:resnet50", "data": "imagenet-c:x", "corruptions": "test", "methods": "none"}
    )
    assert estimate.images_per_cell(settings) == 50_000
    assert estimate.flops(settings) == pytest.approx(2 * 4.09e9, rel=0.01)  # torchvision says 4.09 billion pairs
    few = settings.model_copy(update={"limit": 5000})
    found = estimate.hours({"a": settings, "b": few, "c": settings}, {"a": 76, "b": 76, "c": 38})
    assert found["a"] > 0
    assert found["b"] == pytest.approx(found["a"] / 10)
    assert found["c"] == pytest.approx(found["a"] / 2)


@pytest.fixture
def tiny_builtins(tmp_path, monkeypatch):
    """Untrained networks in place of the built-in ones, and a handful of images in place of CIFAR-10."""
    weights = tmp_path / "weights"
    weights.mkdir()
    for name in NETWORKS[:1] + NETWORKS[3:5]:
        norm = {"resnet20": "batch", "resnet20-gn": "group", "resnet20-fixup": "fixup"}[name]
        torch.manual_seed(0)
        network = ResNet(8, 8, norm, 10)
        card = {"name": name, "classes": 10, "mean": [0.5] * 3, "std": [0.25] * 3}
        card["recipe"] = {"data": "cifar10", "depth": 8, "width": 8, "norm": norm}
        save_file(network.state_dict(), weights / f"{name}.safetensors")
        (weights / f"{name}.json").write_text(json.dumps(card))
    monkeypatch.setattr(builtin, "WEIGHTS", weights)
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "set.npz", images=rng.integers(0, 256, (20, 32, 32, 3), np.uint8), labels=np.arange(20) % 10)
    return f"npz:{tmp_path / 'set.npz'}"


def test_the_miniature_from_end_to_end(tiny_builtins, tmp_path, monkeypatch):
    places = Locations(builtin=tiny_builtins, limit=10, device="cpu")
    monkeypatch.setattr(estimate, "device_speed", lambda device: 1e9)
    said = []
    found = contents.choose_targets("table3", [], builtin=True) + contents.choose_targets("table4", [], builtin=True)
    assert command.reproduce(found, places, tmp_path / "out", said.append, dry=True).text == ""
    assert not (tmp_path / "out").exists()
    text = command.reproduce(found, places, tmp_path / "out", said.append, form="json").text
    assert sorted(folder.name for folder in (tmp_path / "out").iterdir()) == sorted(
        f"{name}-builtin{mixed}" for name in ("resnet20", "resnet20-gn", "resnet20-fixup") for mixed in ("", "-mixed")
    )
    assert any("6 runs, about" in line and "forward passes on this device" in line for line in said)
    table3, table4 = json.loads(text)
    numbers3, numbers4 = ([line["values"] for line in table["lines"]] for table in (table3, table4))
    assert [number["column"] for number in numbers3] == ["Fixup", "GN", "BN", "BN+adapt"]
    for number in numbers3 + numbers4:
        assert 0 <= number["ours"] <= 100
        assert number["difference"] == pytest.approx(number["ours"] - number["paper"])
    rows = Store(tmp_path / "out" / "resnet20-builtin").rows()
    assert len(rows) == 75 * 2
    full = [row.top1_errors / row.images for row in rows if row.method == "full"]
    assert numbers3[3]["ours"] == pytest.approx(100 * np.mean(full))
    before = {folder: (folder / "rows.jsonl").read_text() for folder in (tmp_path / "out").iterdir()}
    said.clear()
    again = command.reproduce(found, places, tmp_path / "out", said.append, form="markdown").text
    assert said == []
    assert before == {folder: (folder / "rows.jsonl").read_text() for folder in (tmp_path / "out").iterdir()}
    assert "| ResNet-20 | BN+adapt |" in again
    assert "| 62.2 |" in again
    rows = csv.DictReader(command.reproduce(found, places, tmp_path / "out", form="csv").text.splitlines())
    numbers = {(row["row"], row["column"]): row["ours"] for row in rows}
    assert numbers["ResNet-20", "BN"] == f"{numbers3[2]['ours']:.1f}"
    assert r"ResNet-20 & BN+adapt &" in command.reproduce(found, places, tmp_path / "out", form="latex").text


def test_another_table_adds_its_methods_to_the_run(tiny_builtins, tmp_path, monkeypatch):
    places = Locations(builtin=tiny_builtins, limit=4, device="cpu")
    monkeypatch.setattr(estimate, "device_speed", lambda device: 1e9)
    command.reproduce(contents.choose_targets("figure3", [], builtin=True), places, tmp_path)
    assert len(Store(tmp_path / "resnet20-builtin").rows()) == 150
    text = command.reproduce(
        contents.choose_targets("table3", ["ResNet-20"], builtin=True), places, tmp_path, lambda line: None
    )
    assert len(Store(tmp_path / "resnet20-builtin").rows()) == 150
    assert "difference" in text.text
    assert text.failed == {}


def test_shards_are_merged_into_the_same_table(tiny_builtins, tmp_path, monkeypatch):
    places = Locations(builtin=tiny_builtins, limit=4, device="cpu")
    monkeypatch.setattr(estimate, "device_speed", lambda device: 1e9)
    found, said = contents.choose_targets("table4", ["BN"], builtin=True), []
    for number in range(2):
        shard = Where(shard=Shard(number, 2))
        text = command.reproduce(found, places, tmp_path / "parts", said.append, where=shard).text
        assert f"{2 - 2 * number} of {2 - 2 * number} cells done" in text
    assert merge_runs([tmp_path / "parts"]) == [tmp_path / "parts" / "resnet20-builtin-mixed"]
    said.clear()
    merged = command.reproduce(found, places, tmp_path / "parts", said.append).text
    assert said == []  # nothing is left to run
    assert merged == command.reproduce(found, places, tmp_path / "whole", said.append).text


def test_the_engine_is_the_one_asked_for(tiny_builtins, tmp_path, monkeypatch):
    asked = []

    def fail(*args, where, **options):
        asked.append(where)
        raise CovshiftError("no such cluster")

    monkeypatch.setattr(estimate, "device_speed", lambda device: 1e9)
    monkeypatch.setattr("covshift.bench.engines.ray.cluster", nullcontext)
    monkeypatch.setattr(import_module("covshift.bench.run"), "run", fail)
    options = ["reproduce", "table4", "--builtin", "--row", "BN", "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(app, [*options, "--engine", "ray", "--address", "auto", "--worker-gpus", "0.5"])
    assert "no such cluster" in done.stderr
    assert asked == [Where("ray", address="auto", gpus=0.5)]
    assert "did you mean 'ray'" in CliRunner().invoke(app, [*options, "--engine", "rey"]).stderr


def test_a_folder_with_another_run_is_not_taken_for_this_one(tiny_builtins, tmp_path, monkeypatch):
    monkeypatch.setattr(estimate, "device_speed", lambda device: 1e9)
    found = contents.choose_targets("table4", ["BN w/o"], builtin=True)
    places = Locations(builtin=tiny_builtins, limit=4, device="cpu")
    command.reproduce(found, places, tmp_path / "out")
    for other in (replace(places, limit=8), replace(places, builtin=f"{tiny_builtins}?classes=10")):
        with pytest.raises(CovshiftError, match=r"holds a run with other settings: \w+ is .*use another folder$"):
            command.reproduce(found, other, tmp_path / "out", lambda line: None, dry=True)
    # Other weights are noticed when they are opened, and what is there is not shown as theirs.
    card = tmp_path / "weights" / "resnet20.safetensors"
    save_file({name: tensor + 1 for name, tensor in ResNet(8, 8, "batch", 10).state_dict().items()}, card)
    both, said = contents.choose_targets("table4", ["BN", "Fixup"], builtin=True), []
    text, failed = command.reproduce(both, places, tmp_path / "out", said.append, form="json")
    assert "holds a run of other weights" in failed["resnet20-builtin-mixed"]
    assert [line["values"]["ours"] is None for line in json.loads(text)[0]["lines"]] == [True, True, False]
    assert "resnet20-builtin-mixed: 1 cell, about 0 min" in said  # the other one is there


def test_a_run_that_fails_does_not_stop_the_others(tiny_builtins, tmp_path, monkeypatch):
    monkeypatch.setattr(estimate, "device_speed", lambda device: 1e9)
    (tmp_path / "weights" / "resnet20-gn.safetensors").write_bytes(b"half")
    monkeypatch.setattr(estimate, "flops", lambda settings: 1.0)
    said = []
    places = Locations(builtin=tiny_builtins, limit=4, device="cpu")
    text, failed = command.reproduce(
        contents.choose_targets("table4", [], builtin=True), places, tmp_path / "out", said.append
    )
    assert failed.keys() == {"resnet20-gn-builtin-mixed"}
    (told,) = [line for line in said if line.startswith("failed: resnet20-gn-builtin-mixed: ")]
    assert "resnet20-gn.safetensors" in told
    assert "is not a whole safetensors file" in told
    assert "│ Fixup" in text


def test_the_command(tmp_path):
    def run(*words):
        return CliRunner().invoke(app, ["reproduce", *words])

    shown = run("--list").stdout
    assert "table1      Robust models on ImageNet-C (9 runs)" in shown
    assert "figure6     covshift theory --grid" in shown
    assert {"table1", "figure5"} <= {target["name"] for target in json.loads(run("--list", "--json").stdout)}
    missing = run("table5", "--out", str(tmp_path))
    assert missing.exit_code == 1
    assert "--imagenet-r DIR" in missing.stderr
    wrong = run("table1", "--weights", "augmix")
    assert "expected weights as NAME=FILE with a name of the zoo, got 'augmix'" in wrong.stderr
    gone = run("table1", "--imagenet-c", "x", "--dry-run")
    assert (gone.exit_code, gone.stderr) == (
        1,
        "error: expected a folder for --imagenet-c DIR, got x, which is not a folder\n",
    )
    gone = run("table1", "--weights", "augmix=x.pth")
    assert "expected a file for --weights augmix=FILE, got x.pth, which does not exist" in gone.stderr
    dry = run(
        "table1",
        "--imagenet-c",
        str(tmp_path),
        "--row",
        "AugMix",
        "--dry-run",
        "--device",
        "cpu",
        "--out",
        str(tmp_path),
    )
    assert dry.exit_code == 0, dry.output
    assert "augmix-imagenet-c-holdout: 505 cells, about" in dry.stderr
