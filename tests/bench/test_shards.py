"""Parts of a run, computed by several jobs that share only a folder, and merged."""

import math
import subprocess
import sys
from pathlib import Path

import pytest
from runs import OPTIONS, a_row, a_run, by_cell, workplace
from typer.testing import CliRunner

from covshift.bench.engines.where import Shard, Where
from covshift.bench.results.merge import merge_runs
from covshift.bench.results.store import Store, watch
from covshift.bench.run import run
from covshift.bench.settings import Settings
from covshift.bench.summary import status, table
from covshift.cli import app
from covshift.support.errors import CovshiftError

CHANGES = {"corruptions": "fog,spatter,snow,saturate", "severities": "1,5"}


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(workplace(tmp_path))
    return tmp_path


def sharded(shard: str, out: str = "out") -> None:
    run({**OPTIONS, **CHANGES}, out, progress=False, where=Where(shard=Shard.parse(shard)))


def test_three_shards_make_the_same_run(here):
    run({**OPTIONS, **CHANGES}, "whole", progress=False)
    for shard in ("0/3", "1/3", "2/3"):
        sharded(shard)
    # The first two could not choose N yet: the last one had part of the holdout corruptions.
    merge_runs([Path("out")])
    assert set(by_cell("out")) < set(by_cell("whole"))
    for shard in ("0/3", "1/3"):
        sharded(shard)
    assert merge_runs([Path("out")]) == [Path("out")]
    assert by_cell("out") == by_cell("whole")
    # And where a shard never came back, the plain command goes on with what is there.
    merge_runs([Path("out/shard-0-of-3"), Path("out/shard-1-of-3")], Path("two"))
    run({**OPTIONS, **CHANGES}, "two", progress=False)
    assert by_cell("two") == by_cell("whole")


def test_no_cell_is_run_twice(here):
    for shard in ("0/2", "1/2", "0/2"):
        sharded(shard)
    names = [row.cell for i in range(2) for row in Store(Path(f"out/shard-{i}-of-2")).rows()]
    assert sorted(names) == sorted(Settings.read({**OPTIONS, **CHANGES}).plan.all_names())


def test_array_jobs_side_by_side(here):
    """As a scheduler starts them: all at once, no one first."""
    command = [*(sys.executable, "-m", "covshift", "bench", "run", "--model", "py:nets:net", "--data", "npz:set.npz")]
    command += ["--size", "16", "--corruptions", "fog,spatter", "--severities", "5", "--threads", "1", "--out", "out"]
    for _ in range(2):  # the second time only what waited for the slower one is left
        jobs = [subprocess.Popen([*command, "--shard", f"{i}/2"], stdout=subprocess.PIPE, text=True) for i in range(2)]
        told = [job.communicate()[0] for job in jobs]
        assert [job.returncode for job in jobs] == [0, 0]
    assert "cells done" in told[0]
    done = subprocess.run([*command[:4], "merge", "out"], stdout=subprocess.PIPE, text=True, check=True)
    assert "20 of 20 cells done" in done.stdout
    run({**OPTIONS, "corruptions": "fog,spatter", "severities": "5"}, "whole", progress=False)
    assert by_cell("out") == by_cell("whole")


def stored(folder: Path, *rows, **changes) -> Path:
    Store.create(folder, a_run(**changes)).append(rows)
    return folder


def test_what_cannot_be_merged(tmp_path):
    one = stored(tmp_path / "one", a_row("fog/3/none", wrong=7))
    with pytest.raises(CovshiftError, match=r"another result for fog/3/none.* top1_errors is 8, not 7"):
        merge_runs([one, stored(tmp_path / "two", a_row("fog/3/none", wrong=8))], tmp_path / "out")
    with pytest.raises(CovshiftError, match=r"not a part of the same run.* seed is 0 there and 1 here"):
        merge_runs([one, stored(tmp_path / "three", seed=1)], tmp_path / "out")
    with pytest.raises(CovshiftError, match="there is no run in"):
        merge_runs([one, tmp_path / "nothing"], tmp_path / "out")
    with pytest.raises(CovshiftError, match="folder with `out=DIR`"):
        merge_runs([one])
    with pytest.raises(CovshiftError, match="expected one folder to merge or more"):
        merge_runs([])
    early = a_row("fog/3/partial").model_copy(update={"prior": 8.0})
    late = a_row("snow/3/partial").model_copy(update={"prior": 16.0})
    with pytest.raises(CovshiftError, match="N = 8 and 16"):
        merge_runs([stored(tmp_path / "a", early), stored(tmp_path / "b", late)], tmp_path / "c")


def merge_command(folder):
    return CliRunner().invoke(app, ["bench", "merge", str(folder)]).stdout.rstrip("\n")


def test_shards_of_several_runs(tmp_path):
    for name in ("r18", "r50"):
        for index in range(2):
            stored(tmp_path / name / f"shard-{index}-of-2", a_row(f"fog/{index + 1}/none"))
    assert merge_runs([tmp_path]) == [tmp_path / "r18", tmp_path / "r50"]
    assert "2 of 508 cells done" in merge_command(tmp_path)


def test_how_far_shards_are(tmp_path):
    changes = {"corruptions": "fog,snow", "severities": "1", "methods": "none"}
    done = stored(tmp_path / "shard-0-of-2", a_row("clean/0/none"), a_row("fog/1/none"), **changes)
    stored(tmp_path / "shard-1-of-2", **changes)
    first, second = status(tmp_path).split("\n\n")
    assert first == f"{done}: m:x on d:x\n2 of 2 cells done in 0.0 min of work" == status(done)
    assert "0 of 1 cell done" in second
    assert second.endswith("next: snow/1/none")
    with pytest.raises(CovshiftError, match="got its shards; merge them first"):
        table(tmp_path, "text")
    assert merge_command(tmp_path) == status(tmp_path)
    assert "2 of 3 cells done" in status(tmp_path)


def test_shards_that_were_extended_are_merged_again(tmp_path):
    for methods in ("none", "none,full"):
        for index in range(2):
            Store.create(tmp_path / f"shard-{index}-of-2", a_run(methods=methods), extend=True)
        Store(tmp_path / "shard-0-of-2").append([a_row(f"fog/3/{name}") for name in methods.split(",")])
        merge_runs([tmp_path])
        assert list(by_cell(tmp_path)) == [f"fog/3/{name}" for name in methods.split(",")]


def test_rows_of_others_are_read_once(tmp_path, monkeypatch):
    others = watch([tmp_path / "a", tmp_path / "b"])
    assert others() == []
    stored(tmp_path / "a", a_row("fog/1/none"))
    assert [row.cell for row in others()] == ["fog/1/none"]
    opened = []
    monkeypatch.setattr("covshift.bench.results.store.Store", lambda folder: opened.append(folder) or Store(folder))
    Store(tmp_path / "a").append([a_row("fog/2/none")])
    stored(tmp_path / "b", a_row("fog/3/none"))
    assert [row.cell for row in others()] == ["fog/1/none", "fog/2/none", "fog/3/none"]
    assert opened == [tmp_path / "b"]


@pytest.mark.parametrize("text", ["3/3", "-1/3", "1", "a/b", "1/0"])
def test_no_shard(text):
    with pytest.raises(CovshiftError, match=r"expected a shard as I/K"):
        Shard.parse(text)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"engine": "rey"}, "did you mean 'ray'"),
        ({"address": "auto"}, "choose `engine=ray`"),
        ({"engine": "ray", "workers": 0}, "number of workers from 1"),
        ({"engine": "ray", "cpus": 0}, "CPUs above 0"),
        ({"engine": "ray", "cpus": math.inf}, "CPUs above 0"),
        ({"engine": "ray", "gpus": -1}, "a whole number, got 1 and -1"),
        ({"engine": "ray", "gpus": 1.5}, r"a whole number, got 1 and 1\.5"),
    ],
)
def test_nowhere(options, words):
    with pytest.raises(CovshiftError, match=words):
        Where(**options)
