"""Rows that something else changes: a live process notices and stops, and a reader names the line."""

import json
import shutil
from pathlib import Path

import pytest
from runs import OPTIONS, a_row, a_run, by_cell, workplace

from covshift.bench.engines.local import LocalEngine
from covshift.bench.engines.together import together
from covshift.bench.engines.where import HERE
from covshift.bench.results.store import Store
from covshift.bench.run import run
from covshift.support.errors import CovshiftError, Stopped

ROOT = Path(__file__).parents[2]


def lines_of(file: Path) -> list[str]:
    return file.read_text().splitlines(keepends=True)


def replace(file: Path, text: str) -> None:
    """Put another file in the place of this one, as an editor does."""
    other = file.with_name("other")
    other.write_text(text)
    other.replace(file)


HARM = {
    "deleted": (lambda file: file.unlink(), r"was deleted, with 3 rows in it"),
    "emptied": (lambda file: file.write_text(""), r"was emptied; it had 3 rows"),
    "cut": (lambda file: file.write_text("".join(lines_of(file)[:2])), r"was cut off after line 2 of 3"),
    "cut in a line": (lambda file: file.write_text(file.read_text()[:-40]), r"was changed at line 3 of 3"),
    "replaced": (lambda file: replace(file, "".join(lines_of(file)[1:])), r"was changed at line 1 of 3"),
    "sorted": (lambda file: replace(file, "".join(reversed(lines_of(file)))), r"was changed at line 1 of 3"),
}


@pytest.mark.parametrize("harm", HARM)
@pytest.mark.parametrize("read", [True, False])
def test_a_live_store_notices_what_happens_to_its_rows(tmp_path, harm, read):
    store, file = Store.create(tmp_path, a_run()), tmp_path / "rows.jsonl"
    store.append([a_row(f"fog/{severity}/none", wrong=severity) for severity in (1, 2, 3)])
    if read:  # else it knows them because it wrote them
        store = Store.create(tmp_path, a_run())
        store.rows()
    do, words = HARM[harm]
    do(file)
    left = file.read_bytes() if file.exists() else None
    for use in (store.rows, store.done, lambda: store.append([a_row("fog/4/none")])):
        with pytest.raises(CovshiftError, match=words):
            use()
    assert (file.read_bytes() if file.exists() else None) == left  # nothing glued to it


def test_a_file_that_holds_the_same_may_be_another(tmp_path):
    """A folder that is synchronised between machines gets a new file each time."""
    store, file = Store.create(tmp_path, a_run()), tmp_path / "rows.jsonl"
    store.append([a_row("fog/1/none")])
    assert len(store.rows()) == 1
    replace(file, file.read_text() + a_row("fog/2/none").model_dump_json() + "\n")
    store.append([a_row("fog/3/none")])
    assert [row.severity for row in store.rows()] == [1, 2, 3]


@pytest.mark.parametrize("gone", [".lock", "."])
def test_a_live_store_notices_that_its_lock_or_its_folder_is_gone(tmp_path, gone):
    folder = tmp_path / "run"
    store = Store.create(folder, a_run())
    shutil.rmtree(folder) if gone == "." else (folder / gone).unlink()
    with pytest.raises(CovshiftError, match=r"\.lock, or its folder, was deleted or replaced"):
        store.append([a_row()])
    assert not (folder / "rows.jsonl").exists()


@pytest.mark.parametrize("harm", ["deleted", "emptied", "cut in a line", "replaced"])
def test_a_run_stops_when_its_rows_are_harmed(tmp_path, monkeypatch, harm):
    monkeypatch.chdir(workplace(tmp_path))
    options = {**OPTIONS, "corruptions": "fog,spatter,snow", "severities": "1,5", "methods": "none,full", "threads": 1}
    computed, file, add = [], Path("out/rows.jsonl"), LocalEngine._add

    def add_and_harm(engine, row):
        computed.append(row.cell)
        add(engine, row)
        if len(computed) == 3:
            HARM[harm][0](file)

    monkeypatch.setattr(LocalEngine, "_add", add_and_harm)
    with pytest.raises(CovshiftError, match=HARM[harm][1]):
        run(options, "out", progress=False)
    assert len(set(computed)) == len(computed) <= 4
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    run(options, "out", progress=False)  # the same command again
    run(options, "whole", progress=False)
    assert by_cell("out") == by_cell("whole")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "line 1 is a row of fog/3/none already"),
        ({"model": "m:y"}, "its model is m:y, and that of the run is m:x"),
        ({"data": "d:y"}, "its data is d:y"),
        ({"cell": "fog/4/none"}, "its cell is fog/4/none, and its fields are fog, 3 and none"),
        ({"cell": "fog/4/none", "severity": 4, "corruption": "snow"}, "its fields are snow, 4 and none"),
        ({"cell": "fog/3/full"}, "its fields are fog, 3 and none"),
        ({"top1_errors": 101}, "101 and 1 errors in 100 images"),
        ({"top1_errors": -1}, "-1 and 1 errors"),
        ({"top1_errors": 4, "top5_errors": 5}, "5 top-5 errors and only 4 top-1 errors"),
        ({"images": 0}, "in 0 images"),
        ({"broken": -1}, "-1 broken"),
        ({"seconds": -1.0}, "-1.0 seconds"),
        ({"cell": "fog/3/batch:n=8,N=2", "method": "batch:n=8,N=2", "n": 9, "prior": 2.0}, "its n is 9"),
        ({"cell": "fog/3/batch:n=8,N=2", "method": "batch:n=8,N=2", "n": 8, "prior": 4.0}, "its prior is 4"),
    ],
)
def test_a_row_that_does_not_fit_is_refused_with_its_line(tmp_path, changes, words):
    Store.create(tmp_path, a_run()).append([a_row()])
    with (tmp_path / "rows.jsonl").open("a") as file:
        file.write(json.dumps(a_row().model_dump() | changes) + "\n")
    with pytest.raises(CovshiftError, match=rf"line 2 of .*rows\.jsonl cannot be: .*{words}"):
        Store(tmp_path).rows()


def test_all_results_of_the_repository_are_read():
    stored = [Store(file.parent) for file in (ROOT / "results").rglob("rows.jsonl")]
    assert len(stored) >= 9
    for store in stored:
        assert len(store.rows()) == len((store.folder / "rows.jsonl").read_text().splitlines()) > 0


@pytest.mark.parametrize(
    ("inside", "words"), [("run", "what is done is in"), ("gone", "there is no run in .*the folder was deleted")]
)
def test_ctrl_c_calls_nothing_safe_that_is_gone(tmp_path, inside, words):
    with pytest.raises(Stopped, match=words), together(HERE, tmp_path):
        Store.create(tmp_path / "net" / "shard-0-of-2", a_run())
        if inside == "gone":
            shutil.rmtree(tmp_path)
        raise KeyboardInterrupt
