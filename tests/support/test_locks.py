"""Locks between processes: exclusive, let go of by the dead, and there without fcntl, as on Windows."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HIDE = "import sys; sys.modules['fcntl'] = None\n"
WRITE = """
from pathlib import Path
from runs import a_row, a_run
from covshift.bench.results.store import Store
store = Store.create(Path(sys.argv[1]), a_run())
with store.claim(0) as mine:
    assert mine
    store.append([a_row(sys.argv[2])])
    print("holding", flush=True)
    if len(sys.argv) > 3:
        sys.stdin.read()
"""
FETCH = """
import sys
from pathlib import Path
from covshift.support.cache import locked
with locked(Path(sys.argv[1])):
    print("holding", flush=True)
    if len(sys.argv) > 2:
        sys.stdin.read()
"""


def start(code: str, *arguments: str) -> subprocess.Popen[str]:
    path = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", code, *arguments],
        text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


@pytest.mark.parametrize("what", ["covshift", "covshift.cli", "covshift.bench", "covshift.report", "covshift.doctor"])
def test_imports_without_fcntl(what):
    code, _, err = finish(start(f"{HIDE}import {what}"))
    assert code == 0, err


def test_one_writer_without_fcntl(tmp_path):
    first = start(HIDE + WRITE, str(tmp_path), "fog/1/none", "wait")
    assert first.stdout
    assert first.stdout.readline() == "holding\n", finish(first)[2]
    code, _, err = finish(start(HIDE + WRITE, str(tmp_path), "fog/2/none"))
    assert code != 0
    assert "expected one process at a time" in err
    first.kill()
    first.communicate(timeout=60)
    code, _, err = finish(start(HIDE + WRITE, str(tmp_path), "fog/2/none"))
    assert code == 0, err  # the dead one let go
    rows = (tmp_path / "rows.jsonl").read_text().splitlines()
    assert [row.split('"')[3] for row in rows] == ["fog/1/none", "fog/2/none"]


@pytest.mark.parametrize("hide", ["", HIDE])
def test_who_fetches_waits_for_the_other_and_not_for_the_dead(tmp_path, hide):
    first = start(hide + FETCH, str(tmp_path), "wait")
    assert first.stdout
    assert first.stdout.readline() == "holding\n"
    second = start(hide + FETCH, str(tmp_path))
    with pytest.raises(subprocess.TimeoutExpired):
        second.wait(timeout=4)
    first.kill()
    first.communicate(timeout=60)
    assert finish(second)[:2] == (0, "holding\n")
