"""Orders, sequences and rivals in whole runs: the right counts, nothing reset on the way, nothing left behind."""

from pathlib import Path

import numpy as np
import pytest
import torch
from runs import OPTIONS, by_cell, workplace

import covshift
from covshift.bench.results.over_time import errors_over_time
from covshift.bench.results.store import Store
from covshift.bench.run import run
from covshift.bench.settings import Settings
from covshift.bench.summary import answers, table
from covshift.data import CLEAN, open_data
from covshift.data.selection import choose
from covshift.data.sequences import stream
from covshift.models import open_model
from covshift.rivals import RIVALS
from covshift.support.errors import CovshiftError

ALL = ",".join(["none", *(f"{name}:n=8" for name in RIVALS)])


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(workplace(tmp_path))
    return tmp_path


def a_run(out: str, **changes) -> Store:
    return run(Settings.read({**OPTIONS, **changes}), Path(out), progress=False)


def pixels_of(shown) -> np.ndarray:
    clean = open_data(OPTIONS["data"]).array(CLEAN)
    made = [
        clean[[image]] if condition == CLEAN else covshift.corrupt(clean[[image]], *condition, indices=[image])
        for image, condition in shown
    ]
    return np.concatenate(made)


def wrong(answer, model, pixels: np.ndarray, labels: np.ndarray, n: int) -> np.ndarray:
    batches = [model.preprocess.tensor(pixels[start : start + n]) for start in range(0, len(pixels), n)]
    found = torch.cat([answer(batch).detach() for batch in batches]).argmax(1).numpy()
    return found != labels


def test_rivals_in_a_run_answer_as_they_do_alone(here):
    rows = by_cell(a_run("out", corruptions="fog", severities="5", methods=ALL, order="dirichlet:0.1", limit=30).folder)
    model, data = open_model(OPTIONS["model"], size=16), open_data(OPTIONS["data"])
    order = choose(data.labels, limit=30, order="dirichlet:0.1")
    images, labels = covshift.corrupt(data.array(CLEAN)[order], "fog", 5, indices=order), data.labels[order]
    for name, rival in RIVALS.items():
        with rival().answering(model.module) as answer:
            errors = int(wrong(answer, model, images, labels, 8).sum())
        row = rows[f"fog/5/{name}:n=8"]
        assert (row["top1_errors"], row["n"], row["order"]) == (errors, 8, "dirichlet:0.1")
    assert (
        by_cell(
            a_run("plain", corruptions="fog", severities="5", methods="none", order="dirichlet:0.1", limit=30).folder
        )["fog/5/none"]["top1_errors"]
        == rows["fog/5/none"]["top1_errors"]
    )


def test_a_sequence_is_never_reset(here):
    """RobustBN over clean and fog by hand: the second domain begins with what the first has left."""
    store = a_run("out", sequence="clean,fog/5:20", methods="none,robustbn:n=8,full,batch:n=40,N=0", batch_size=16)
    rows = {row.method: row for row in store.rows()}
    model, data = open_model(OPTIONS["model"], size=16), open_data(OPTIONS["data"])
    settings = store.run.settings
    shown = stream(settings.sequence, settings.pieces, choose(data.labels), data.labels, "shuffled", 0)
    pixels, labels = pixels_of(shown), data.labels[[each.image for each in shown]]
    with RIVALS["robustbn"]().answering(model.module) as answer:
        missed = {"robustbn:n=8": wrong(answer, model, pixels, labels, 8)}
    missed["none"] = wrong(model.module, model, pixels, labels, 70)
    with covshift.adapt(model, covshift.Batch(prior=0)):
        missed["full"] = wrong(model.module, model, pixels, labels, 70)
        missed["batch:n=40,N=0"] = wrong(model.module, model, pixels, labels, 40)
    for name, each in missed.items():
        row = rows[name]
        assert (row.images, row.top1_errors) == (70, each.sum())
        assert row.over_time == (each[:50].sum(), each[50:].sum()), name
        assert [(piece.piece.start, piece.piece.stop) for piece in errors_over_time(row, store.run)] == [
            (0, 50),
            (50, 70),
        ]


def test_rows_of_single_conditions_stay_as_they_were(here):
    store = a_run("out", corruptions="fog", severities="5", methods="none")
    assert "over_time" not in (store.folder / "rows.jsonl").read_text()
    assert "over_time" not in store.rows()[0].model_dump()


def test_a_sequence_can_be_resumed_extended_and_shown(here):
    a_run("out", sequence="recurring", corruptions="fog,snow", methods="none", limit=20)
    run({**OPTIONS, "methods": "tent:n=8"}, "out", extend=True, progress=False)
    store = Store(Path("out"))
    assert store.run.settings.corruptions == ("snow", "fog")
    assert [row.cell for row in store.rows()] == ["sequence/0/none", "sequence/0/tent:n=8"]
    assert {row.images for row in store.rows()} == {100}
    text = table(Path("out"), "text")
    assert all(word in text for word in ("recurring", "whole stream", "clean", "fog", "ms an image", "tent:n=8"))
    with pytest.raises(CovshiftError, match="other settings: corruptions"):
        run(
            {**OPTIONS, "methods": "none", "sequence": "recurring", "corruptions": "frost"},
            "out",
            extend=True,
            progress=False,
        )


@pytest.mark.parametrize(("sequence", "again"), [("fog/5:20,clean:30", False), ("fog/5:20,clean:31", True)])
def test_a_sequence_keeps_answers_unless_it_shows_images_again(here, capsys, sequence, again):
    store = run({**OPTIONS, "methods": "none", "sequence": sequence}, "out")
    assert store.run.shows_images_again == again
    assert ("so the answers to them are not kept" in capsys.readouterr().err) == again
    assert store.answers().empty == again
    if again:
        with pytest.raises(CovshiftError, match="since its sequence shows images more than once"):
            answers(Path("out"), "text")


def test_a_row_whose_errors_over_time_do_not_add_up_is_refused(here):
    a_run("out", sequence="continual", corruptions="fog", methods="none", limit=20)
    file = Path("out/rows.jsonl")
    file.write_text(file.read_text().replace('"over_time":[', '"over_time":[1,'))
    with pytest.raises(CovshiftError, match="errors over time"):
        Store(Path("out")).rows()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sequence": "continual", "skip_broken": True}, "cannot leave out broken pictures"),
        ({"sequence": "continual", "methods": "none,reverse"}, "method reverse is evaluated on clean images"),
        ({"model": "py:nets:plain", "methods": "none,tent", "corruptions": "fog"}, "holds no statistics"),
    ],
)
def test_says_what_cannot_be_run(changes, message, here):
    with pytest.raises(CovshiftError, match=message):
        a_run("out", **{"methods": "none", **changes})


def test_answers_of_a_model_without_statistics_are_corrected(here):
    rows = by_cell(
        a_run(
            "out", model="py:nets:plain", methods="none,lame,prior-correction", corruptions="fog", severities="1"
        ).folder
    )
    assert rows["fog/1/lame:n=64"]["n"] == 50
