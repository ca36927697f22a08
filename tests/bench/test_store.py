"""Rows on disk: nothing lost, nothing doubled, no half row, whatever happens."""

import json
import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

import pytest
from runs import a_row, a_run

from covshift.bench.results.store import Store
from covshift.support.errors import CovshiftError


def test_rows_come_back(tmp_path):
    store = Store.create(tmp_path / "run", a_run())
    store.append([a_row(), a_row("fog/3/full")])
    assert Store(tmp_path / "run").rows() == [a_row(), a_row("fog/3/full")]


def test_infinite_priors_survive_json(tmp_path):
    store = Store.create(tmp_path, a_run())
    store.append([a_row().model_copy(update={"prior": float("inf")})])
    assert Store(tmp_path).rows()[0].prior == float("inf")
    assert json.loads((tmp_path / "rows.jsonl").read_text())["prior"] == "Infinity"


def test_a_cell_is_stored_once(tmp_path):
    one, two = Store.create(tmp_path, a_run()), Store(tmp_path)
    one.append([a_row()])
    two.append([a_row(wrong=9)])
    assert Store(tmp_path).rows() == [a_row()]


def test_half_a_line_is_cut_off(tmp_path):
    Store.create(tmp_path, a_run()).append([a_row()])
    with (tmp_path / "rows.jsonl").open("a") as file:
        file.write('{"cell": "fog/4/no')
    assert Store(tmp_path).rows() == [a_row()]
    Store(tmp_path).append([a_row("fog/5/none")])
    assert [row.cell for row in Store(tmp_path).rows()] == ["fog/3/none", "fog/5/none"]


def test_a_full_disk_loses_nothing(tmp_path):
    store = Store.create(tmp_path, a_run())
    store.append([a_row()])
    before = (tmp_path / "rows.jsonl").read_bytes()
    # A child may not write files beyond half of a second row: the system stops it in the middle, as a full disk does.
    code = (
        "import resource, signal, sys; from pathlib import Path; from runs import a_row;"
        "from covshift.bench.results.store import Store;"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); room = int(sys.argv[2]); store = Store(Path(sys.argv[1]));"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (room, room)); store.append([a_row('fog/4/none')])"
    )
    command = [sys.executable, "-c", code, str(tmp_path), str(len(before) * 3 // 2)]
    path = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path})
    assert "CovshiftError: cannot write" in done.stderr
    assert (tmp_path / "rows.jsonl").read_bytes() == before
    store.append([a_row("fog/4/none")])
    assert len(Store(tmp_path).rows()) == 2


def _append_many(folder: Path, cells: list[str]) -> None:
    store = Store(folder)
    for cell in cells:
        store.append([a_row(cell)])


def test_many_processes_on_one_folder(tmp_path):
    Store.create(tmp_path, a_run())
    cells = [f"fog/{number}/none" for number in range(60)]
    context = multiprocessing.get_context("spawn")
    workers = [
        context.Process(target=_append_many, args=(tmp_path, cells[start:] + cells[:start])) for start in (0, 20)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sorted(row.cell for row in Store(tmp_path).rows()) == sorted(cells)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"seed": 1}, "seed is 0 there and 1 here"),
        ({"limit": 5}, "limit is None there and 5 here"),
        ({"model": "m:y"}, "model is m:x there"),
        ({"corruptions": "fog"}, "extend=True"),
        ({"methods": "none"}, "extend=True"),
    ],
)
def test_other_settings_are_refused(tmp_path, changes, words):
    Store.create(tmp_path, a_run()).append([a_row()])
    with pytest.raises(CovshiftError) as caught:
        Store.create(tmp_path, a_run(**changes))
    assert words in str(caught.value)


def test_without_rows_settings_may_change(tmp_path):
    Store.create(tmp_path, a_run(seed=1))
    assert Store.create(tmp_path, a_run(seed=2)).run.settings.seed == 2


def test_other_weights_are_refused(tmp_path):
    Store.create(tmp_path, a_run()).append([a_row()])
    with pytest.raises(CovshiftError, match="model_digest"):
        Store.create(tmp_path, a_run().model_copy(update={"model_digest": "other"}))


def test_how_cells_are_computed_may_change(tmp_path):
    Store.create(tmp_path, a_run()).append([a_row()])
    Store.create(tmp_path, a_run(batch_size=3, device="cpu", methods="full,none,partial"))


def test_a_run_is_extended(tmp_path):
    Store.create(tmp_path, a_run(corruptions="fog", methods="none")).append([a_row()])
    store = Store.create(tmp_path, a_run(corruptions="snow", methods="none,full"), extend=True)
    assert store.run.settings.corruptions == ("snow", "fog")
    assert store.run.settings.methods == ("none", "full")
    with pytest.raises(CovshiftError, match="seed"):
        Store.create(tmp_path, a_run(seed=3), extend=True)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "there is no run"),
        ("", "not a valid run of schema"),
        ('{"settings": {}}', "not a valid run of schema"),
        (a_run().model_copy(update={"schema_version": 9}).model_dump_json(), "has schema 9"),
    ],
)
def test_what_is_no_run(tmp_path, content, words):
    if content is not None:
        (tmp_path / "run.json").write_text(content)
    with pytest.raises(CovshiftError, match=words):
        Store(tmp_path)


def test_a_damaged_line_is_named(tmp_path):
    Store.create(tmp_path, a_run()).append([a_row()])
    with (tmp_path / "rows.jsonl").open("a") as file:
        file.write("what?\n")
    with pytest.raises(CovshiftError, match="line 2 of"):
        Store(tmp_path).rows()


def test_rows_without_a_run_are_not_overwritten(tmp_path):
    (tmp_path / "rows.jsonl").write_text("")
    with pytest.raises(CovshiftError, match=r"rows but no run\.json"):
        Store.create(tmp_path, a_run())


def test_extending_never_changes_the_choice_of_n(tmp_path):
    Store.create(tmp_path, a_run(corruptions="fog,saturate")).append([a_row("fog/3/partial")])
    with pytest.raises(CovshiftError, match="whose N was chosen"):
        Store.create(tmp_path, a_run(corruptions="spatter"), extend=True)
    assert Store(tmp_path).run.settings.corruptions == ("fog", "saturate")


def test_extending_by_the_first_holdout_corruption_keeps_n(tmp_path):
    Store.create(tmp_path, a_run(corruptions="fog")).append([a_row("fog/3/partial")])
    settings = Store.create(tmp_path, a_run(corruptions="saturate"), extend=True).run.settings
    assert (settings.corruptions, settings.prior) == (("fog", "saturate"), 16)
    assert not settings.plan.chosen


def _create(folder: Path, seed: int, together) -> None:
    together.wait()
    try:
        Store.create(folder, a_run(seed=seed))
    except CovshiftError:
        sys.exit(3)
    finally:
        together.wait()  # nobody is gone before all have tried


def test_of_two_that_begin_together_one_is_refused(tmp_path):
    context = multiprocessing.get_context("spawn")
    together = context.Barrier(2)
    processes = [context.Process(target=_create, args=(tmp_path, seed, together)) for seed in (1, 2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert sorted(process.exitcode for process in processes) == [0, 3]


def test_garbage_is_no_run(tmp_path):
    (tmp_path / "run.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(CovshiftError, match="cannot read"):
        Store(tmp_path)


def test_a_claim_is_one_process_only(tmp_path):
    store = Store.create(tmp_path, a_run())
    with store.claim(3) as mine:
        assert mine
        context = multiprocessing.get_context("spawn")
        with context.Pool(1) as pool:
            assert pool.apply(_claim, (tmp_path, 3)) is False
            assert pool.apply(_claim, (tmp_path, 4)) is True


def _claim(folder: Path, place: int) -> bool:
    with Store(folder).claim(place) as mine:
        return mine
