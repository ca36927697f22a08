"""Whole runs of a small model: the right counts, the same rows whichever way they come about."""

import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from runs import OPTIONS, by_cell, workplace

import covshift
from covshift.bench.evaluate import Evaluator
from covshift.bench.methods import PRIORS, parse_method
from covshift.bench.results.frame import frame
from covshift.bench.run import run
from covshift.bench.settings import Settings
from covshift.bench.summary import table
from covshift.data import CLEAN, Condition, open_data
from covshift.data.selection import Selection, choose
from covshift.models import Model, open_model
from covshift.support.errors import CovshiftError

FOG = Condition("fog", 5)


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(workplace(tmp_path))
    return tmp_path


def a_run(out: str, **changes) -> dict[str, dict]:
    """The rows of a run by cell, without what differs from one time to the next."""
    store = run(Settings.read({**OPTIONS, "severities": "1,5", **changes}), Path(out), progress=False)
    return by_cell(store.folder)


def model_and_data():
    return open_model(OPTIONS["model"], size=16), open_data(OPTIONS["data"])


def wrong(model: Model, images: np.ndarray, labels: np.ndarray, at_once: int) -> int:
    with torch.inference_mode():
        batches = [
            model.module(model.preprocess.tensor(images[i : i + at_once])) for i in range(0, len(images), at_once)
        ]
    return int((torch.cat(batches).argmax(1) != torch.from_numpy(labels)).sum())


def test_each_layer_may_choose_n_itself(here):
    """`N=auto`, written in the method or as the prior of `partial`, is what `Batch(prior="auto")` does."""
    rows = a_run("out", corruptions="fog,spatter", methods="none,partial,batch:n=5,N=auto", prior="auto", batch_size=40)
    model, data = model_and_data()
    order = choose(data.labels)
    images, labels = covshift.corrupt(data.array(CLEAN)[order], *FOG, indices=order), data.labels[order]
    for cell, n in (("batch:n=5,N=auto", 5), ("partial", 8)):
        assert (rows[f"fog/5/{cell}"]["n"], rows[f"fog/5/{cell}"]["prior"]) == (n, "auto")
        with covshift.adapt(model.module, covshift.Batch(prior="auto")):
            assert rows[f"fog/5/{cell}"]["top1_errors"] == wrong(model, images, labels, n)
    assert not any("N=16" in cell for cell in rows)  # nothing is tried on the holdout corruptions
    assert "partial (n=8, N=auto)" in table(Path("out"), "text")
    with pytest.raises(CovshiftError, match=r"batch:n=41,N=auto cannot choose N by itself.* 41 images .*batches of 40"):
        a_run("large", methods="batch:n=41,N=auto", batch_size=40)
    with pytest.raises(CovshiftError, match="takes no N"):
        a_run("whole", methods="full:N=auto")


def test_cells_count_errors_as_plain_code_does(here):
    """Each method against a loop that anybody would write."""
    rows = a_run("out", corruptions="fog,spatter", methods="none,partial,full,reverse,batch:n=5,N=2,stream:n=3,N=4")
    model, data = model_and_data()
    order = choose(data.labels)
    clean, labels = data.array(CLEAN)[order], data.labels[order]
    images = covshift.corrupt(clean, *FOG, indices=order)

    assert rows["fog/5/none"]["top1_errors"] == wrong(model, images, labels, 50)
    for cell, n, prior in (("batch:n=5,N=2", 5, 2), ("partial", 8, rows["fog/5/partial"]["prior"])):
        with covshift.adapt(model.module, covshift.Batch(prior=prior)):
            assert rows[f"fog/5/{cell}"]["top1_errors"] == wrong(model, images, labels, n)
    with covshift.adapt(model.module, covshift.Stream(prior=4)):
        assert rows["fog/5/stream:n=3,N=4"]["top1_errors"] == wrong(model, images, labels, 3)
    target = covshift.estimate(model.module, model.preprocess.tensor(images))
    target.apply(model.module)
    assert rows["fog/5/full"]["top1_errors"] == wrong(model, images, labels, 50)
    assert rows["fog/5/reverse"]["top1_errors"] == wrong(model, clean, labels, 50)
    assert {row["images"] for row in rows.values()} == {50}
    assert (rows["fog/5/full"]["n"], rows["fog/5/full"]["prior"]) == (50, 0)


def test_partial_takes_the_best_prior_on_holdout(here):
    rows = a_run("out", corruptions="fog,spatter,saturate")
    tried = {
        prior: sum(
            rows[f"{c}/{s}/batch:n=8,N={prior:g}"]["top1_errors"] for c in ("spatter", "saturate") for s in (1, 5)
        )
        for prior in PRIORS
    }
    best = min(tried, key=lambda prior: (tried[prior], prior))
    assert {row["prior"] for row in rows.values() if row["method"] == "partial"} == {best}
    assert rows["spatter/5/partial"]["top1_errors"] == rows[f"spatter/5/batch:n=8,N={best:g}"]["top1_errors"]


def test_partial_without_holdout_takes_sixteen(here):
    rows = a_run("out", corruptions="fog")
    assert {row["prior"] for row in rows.values() if row["method"] == "partial"} == {16}


def test_partial_takes_the_prior_it_is_given(here):
    rows = a_run("out", corruptions="fog,spatter", prior=4)
    assert {row["prior"] for row in rows.values() if row["method"] == "partial"} == {4}
    assert {row["method"] for row in rows.values()} == {"none", "partial", "full"}  # nothing was searched
    with pytest.raises(CovshiftError, match="prior"):
        a_run("out", corruptions="fog,spatter", prior=8)
    with pytest.raises(CovshiftError, match="'prior': expected a number from 0"):
        a_run("other", prior=-1)


def test_an_infinite_prior_is_no_adaptation(here):
    rows = a_run("out", corruptions="fog,snow", methods="none,batch:n=8,N=inf")
    for cell, row in rows.items():
        assert row["top1_errors"] == rows[cell.replace("batch:n=8,N=inf", "none")]["top1_errors"]


@pytest.mark.parametrize("batch_size", [1, 3, 8, 16, 50])
def test_the_compute_batch_changes_nothing(here, batch_size):
    methods = "none,full,batch:n=8,N=4,batch:n=20,N=4,batch:n=1,N=4,stream:n=2,N=4"
    whole = a_run("whole", corruptions="fog", methods=methods, batch_size=64)
    assert a_run("out", corruptions="fog", methods=methods, batch_size=batch_size) == whole


def test_cells_do_not_depend_on_each_other(here):
    options = {"corruptions": "fog,spatter,snow", "methods": "none,full,reverse,batch:n=4,N=1", "mixed": True}
    whole = a_run("whole", **options)
    settings = Settings.read({**OPTIONS, "severities": "1,5", **options})
    conditions = list(settings.plan.conditions)
    model, data = model_and_data()
    evaluator = Evaluator(model, Selection(data, choose(data.labels), model.preprocess.picture), batch_size=50)
    random.Random(0).shuffle(conditions)
    for condition in conditions[:4]:
        for method in ("reverse", "batch:n=4,N=1", "none", "full"):
            errors, _ = evaluator.run(evaluator.selection.images_in(condition), parse_method(method))
            assert errors.top1 == whole[f"{condition}/{method}"]["top1_errors"]


def test_finished_cells_are_not_run_again(here, monkeypatch):
    whole = a_run("out", corruptions="fog,spatter")
    monkeypatch.setattr(Evaluator, "run", None)
    assert a_run("out", corruptions="fog,spatter") == whole


def test_a_run_extends(here):
    a_run("out", corruptions="fog", methods="none")
    settings = Settings.read({**OPTIONS, "severities": "1,5", "corruptions": "fog,snow", "methods": "none,full"})
    run(settings, Path("out"), extend=True, progress=False)
    assert by_cell("out") == a_run("whole", corruptions="fog,snow", methods="none,full")


def test_extending_adds_only_what_is_said(here):
    a_run("out", corruptions="fog", methods="none", severities="5")
    run({"methods": "full"}, "out", extend=True, progress=False)
    assert set(by_cell("out")) == {"clean/0/none", "fog/5/none", "clean/0/full", "fog/5/full"}


def test_partial_is_no_copy_of_a_stream(here):
    options = {"corruptions": "saturate", "severities": "5", "order": "label"}
    alone = a_run("alone", methods="partial", **options)
    prior = alone["saturate/5/partial"]["prior"]
    beside = a_run("beside", methods=f"partial,stream:n=8,N={prior:g}", **options)
    assert beside["saturate/5/partial"] == alone["saturate/5/partial"]


def test_the_grid_needs_no_test_corruption(here):
    a_run("out", corruptions="saturate", severities="5", methods="none", grid=True, limit=12)
    assert "batch:n=512" in Path("out/rows.jsonl").read_text()
    assert table(Path("out"), "text")


def test_label_order_is_another_run(here):
    shuffled = a_run("a", corruptions="fog", methods="batch:n=8,N=0")
    by_label = a_run("b", corruptions="fog", methods="batch:n=8,N=0", order="label")
    assert shuffled["fog/5/batch:n=8,N=0"]["top1_errors"] != by_label["fog/5/batch:n=8,N=0"]["top1_errors"]
    assert by_label["fog/5/batch:n=8,N=0"]["order"] == "label"


def test_limit_is_in_every_row(here):
    rows = a_run("out", corruptions="fog", limit=12)
    assert {(row["limit"], row["images"]) for row in rows.values()} == {(12, 12)}


def test_a_tidy_frame(here):
    a_run("out", corruptions="fog", methods="none")
    found = frame("out")
    assert set(found.columns) >= {"cell", "method", "top1_error", "low", "high", "top5_error"}
    assert (found.low <= found.top1_error).all()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": "py:nets:plain"}, "methods=none"),
        ({"model": "py:nets:broken"}, "NaN"),
        ({"data": "npz:set.npz?classes=7"}, "distinguishes 6 classes"),
        ({"device": "cudda"}, "a device such as auto, cpu"),
    ],
)
def test_what_cannot_be_run(here, changes, words):
    with pytest.raises(CovshiftError) as caught:
        a_run("out", corruptions="fog", **changes)
    assert words in str(caught.value)


def test_a_model_without_statistics_is_evaluated_as_it_is(here):
    assert len(a_run("out", model="py:nets:plain", corruptions="fog", methods="none")) == 3


COMMAND = [
    *(sys.executable, "-m", "covshift", "bench", "run", "--model", "py:nets:net", "--data", "npz:set.npz"),
    *("--size", "16"),
    *("--corruptions", "fog,spatter,snow", "--severities", "1,5", "--threads", "1", "--out"),
]


def test_two_processes_share_a_run(here):
    whole = a_run("whole", corruptions="fog,spatter,snow")
    processes = [subprocess.Popen([*COMMAND, "out"], stdout=subprocess.DEVNULL) for _ in range(2)]
    assert [process.wait() for process in processes] == [0, 0]
    assert by_cell("out") == whole
