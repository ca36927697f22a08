"""Anchored methods: any network in a run, by a source measured on clean images that are never tested on."""

from pathlib import Path

import numpy as np
import pytest
import torch
from runs import OPTIONS, by_cell, workplace

import covshift
from covshift import CovshiftError, Source
from covshift.bench.methods import parse_method, parse_methods
from covshift.bench.run import run
from covshift.bench.settings import Settings
from covshift.core.statistics import Prior
from covshift.corruptions import corrupt
from covshift.data.selection import choose

BARE = """
import torch
from torch import nn

def net():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(200, 6)
    )
"""
WITHOUT = {**OPTIONS, "model": "py:bare:net", "corruptions": "contrast", "severities": "5", "threads": 1, "limit": 30}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(workplace(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "bare.py").write_text(BARE)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("full:anchored", ["full:anchored"]),
        ("none,full:anchored,partial", ["none", "full:anchored", "partial"]),
        ("live:n=4,anchored,live", ["live:n=4,memory=200,anchored", "live:n=1,memory=200"]),
        ("stream:n=1,N=16,anchored,full", ["stream:n=1,N=16,anchored", "full"]),
        ("batch:anchored,n=4", ["batch:n=4,N=16,anchored"]),
        ("partial:anchored,partial", ["partial:anchored", "partial"]),
    ],
)
def test_how_anchored_methods_are_written(text, names):
    assert [method.name for method in parse_methods(text)] == names
    assert [parse_method(name).name for name in names] == names
    assert [method.anchored for method in parse_methods(text)] == ["anchored" in name for name in names]


@pytest.mark.parametrize("text", ["none:anchored", "reverse:anchored", "lame:anchored"])
def test_what_cannot_be_anchored(text):
    with pytest.raises(CovshiftError, match="cannot be anchored; partial, full, batch, stream, live and"):
        parse_method(text)


def by_hand(prior: Prior) -> tuple[int, int]:
    """The errors of adaptation to all of contrast/5, and the number of images of the source."""
    model = covshift.open_model("py:bare:net", size=16)
    with np.load("set.npz") as held:
        images, labels = held["images"], held["labels"]
    tested = choose(labels, limit=30)
    free = [index for index in range(50) if index not in tested]
    source = Source.measure(model, model.preprocess.tensor(images[free]), progress=False)
    rows = np.stack([corrupt(images[i : i + 1], "contrast", 5, seed=0)[0] for i in tested])
    target = covshift.estimate(model, model.preprocess.tensor(rows), source=source, prior=prior, progress=False)
    with target.apply(model), torch.inference_mode():
        answers = model(rows).argmax(1).numpy()
    return int((answers != labels[tested]).sum()), len(free)


def test_a_network_without_statistics_is_anchored_by_images_that_are_not_tested():
    store = run({**WITHOUT, "methods": "none,full:anchored,batch:n=30,N=0,anchored"}, "out", progress=False)
    rows = {row.cell: row for row in store.rows()}
    (errors, images), (errors_of_auto, _) = by_hand(0), by_hand("auto")
    full, batch = (rows[f"contrast/5/{name}"] for name in ("full:anchored", "batch:n=30,N=0,anchored"))
    assert (full.top1_errors, batch.top1_errors) == (errors_of_auto, errors)
    assert (full.source, full.source_images) == ("npz:set.npz", images)
    assert "source" not in rows["contrast/5/none"].model_dump()
    assert store.run.source_images == images == 20
    assert store.run.source_digest == store.run.data_digest


def test_the_source_is_measured_once(monkeypatch):
    options = {**WITHOUT, "methods": "full:anchored"}
    run(options, "out", progress=False)
    before = by_cell("out")
    Path("out/rows.jsonl").unlink()
    monkeypatch.setattr(Source, "measure", None)
    run(options, "out", progress=False)
    assert by_cell("out") == before


def test_a_source_that_is_named(here):
    with np.load("set.npz") as held:
        np.savez("clean.npz", images=255 - held["images"], labels=held["labels"])
    options = {**WITHOUT, "methods": "full:anchored", "limit": 50, "source": "npz:clean.npz", "source_limit": 12}
    store = run(options, "out", progress=False)
    assert {(row.source, row.source_images) for row in store.rows()} == {("npz:clean.npz", 12)}
    assert "--source npz:clean.npz --source-limit 12" in Settings.read(options).command("out")
    with pytest.raises(CovshiftError, match="source_limit is 12 there and 13 here"):
        run(options | {"source_limit": 13}, "out", progress=False)


def test_partial_chooses_n_for_each_of_its_kinds():
    options = {**WITHOUT, **OPTIONS, "corruptions": "contrast,spatter", "methods": "partial,partial:anchored"}
    store = run(options, "out", progress=False)
    rows = {row.cell: row for row in store.rows()}
    for name, suffix in (("partial", ""), ("partial:anchored", ",anchored")):
        tried = {
            row.prior: row.top1_errors
            for row in rows.values()
            if row.cell.startswith("spatter/5/batch") and row.method.endswith(",anchored") == bool(suffix)
        }
        assert len(tried) == 11
        chosen = rows[f"spatter/5/{name}"]
        assert chosen.top1_errors == min(tried.values()) == tried[chosen.prior]
        assert rows[f"contrast/5/{name}"].prior == chosen.prior


REFUSED = {
    "not anchored": ({"methods": "none,full"}, "holds no statistics.*or by anchored methods such as full:anchored"),
    "all are tested": ({"methods": "full:anchored", "limit": None}, "got 0 of 50; set `limit=1` or less, or name"),
    "no image left": ({"methods": "full:anchored", "limit": 45, "source_limit": 5}, "got 5 of 50; set `limit=45`"),
    "no number": ({"methods": "full:anchored", "source_limit": 0}, "source_limit.*expected a number from 1"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_refused(kind):
    changes, words = REFUSED[kind]
    with pytest.raises(CovshiftError, match=words):
        run({**WITHOUT, **changes}, "out", progress=False)
