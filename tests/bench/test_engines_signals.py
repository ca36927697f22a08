"""A run on Ray that a signal ends: one line, as after Ctrl-C, nothing left behind, and the same command resumes."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest
from runs import by_cell, workplace

pytest.importorskip("ray", reason="the engine on Ray needs Ray: pip install 'covshift[ray]'")

COMMAND = [
    *(sys.executable, "-m", "covshift", "bench", "run", "--model", "py:nets:net", "--data", "npz:set.npz"),
    *("--size", "16", "--severities", "1,5", "--threads", "1", "--methods", "none,full", "--out", "out"),
    *("--engine", "ray", "--workers", "1", "--worker-cpus", "0.5"),
]


MARK = "COVSHIFT_TEST"


def left(mark: str) -> list[str]:
    """Return the commands of live processes with a mark in their environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={mark}".encode() in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_text())
        except OSError:  # it has ended, or is another user's
            continue
    return found


class Process(NamedTuple):
    """A live process; its number and the moment of its start belong to no other."""

    number: int
    start: str
    parent: int
    command: str


def processes() -> list[Process]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            state, parent, *fields = (process / "stat").read_text().rpartition(")")[2].split()
            if state != "Z":
                command = (process / "cmdline").read_text()
                found.append(Process(int(process.name), fields[17], int(parent), command))
    return found


def descendants(number: int) -> list[Process]:
    """Return all that a process has started, directly or not, whatever it keeps in its environment."""
    known, found = {number}, []
    while new := [each for each in processes() if each.parent in known and each.number not in known]:
        found += new
        known |= {each.number for each in new}
    return found


def left_after(mark: str, seconds: float, known: Sequence[Process] = ()) -> list[str]:
    """Return the processes that are left, of those with the mark and the known ones; at once when there are none."""
    numbers = {each[:2] for each in known}

    def found() -> list[str]:
        return left(mark) + [each.command for each in processes() if each[:2] in numbers]

    patience = time.monotonic() + seconds
    while found() and time.monotonic() < patience:
        time.sleep(0.05)
    return found()


def begun(folder: Path) -> subprocess.Popen[str]:
    """Start a run on Ray, and return when its first row is there."""
    rows = workplace(folder, images=2000) / "out" / "rows.jsonl"
    environment = {**os.environ, MARK: folder.name}
    process = subprocess.Popen(
        COMMAND, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    patience = time.monotonic() + 300
    while not (rows.exists() and rows.stat().st_size) and process.poll() is None and time.monotonic() < patience:
        time.sleep(0.01)
    return process


def test_sigterm_stops_a_run_on_ray_in_order(tmp_path):
    process = begun(tmp_path)
    known = descendants(process.pid)
    assert len(known) > 3
    process.send_signal(signal.SIGTERM)
    _, shown = process.communicate(timeout=200)
    assert process.returncode == 130
    assert shown.splitlines()[-1] == "stopped; what is done is in out, and the same command resumes from there"
    assert "SIGTERM" not in shown
    assert "Traceback" not in shown
    assert not Path(f"/proc/{process.pid}").exists()
    assert not left_after(tmp_path.name, 30, known)
    assert by_cell(tmp_path / "out")


@pytest.mark.slow
@pytest.mark.parametrize("later", [0, 0.5, 2])
def test_nothing_of_ray_outlives_a_run_that_was_killed(tmp_path, later):
    process = begun(tmp_path)
    time.sleep(later)
    patience = time.monotonic() + 100
    while not any("agent" in each.command.lower() for each in descendants(process.pid)):  # those rename themselves
        assert time.monotonic() < patience
        assert process.poll() is None
        time.sleep(0.05)
    known = descendants(process.pid)
    process.kill()
    process.communicate(timeout=200)
    assert not left_after(tmp_path.name, 30, known)  # left alone, Ray takes a minute


STARTS = """
import subprocess, sys, time
from covshift.bench.engines.fate import sharing_fate
with sharing_fate():
    inner = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])"
    subprocess.run([sys.executable, "-c", inner])
    print("ready", flush=True)
    time.sleep(float(sys.argv[1]))
print("done", flush=True)
"""


@pytest.mark.skipif(not hasattr(signal, "pidfd_send_signal"), reason="left to Ray on systems other than Linux")
@pytest.mark.parametrize("killed", [True, False])
def test_what_a_process_has_started_shares_its_fate(tmp_path, killed):
    bystander = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)"], env={**os.environ, MARK: f"not {tmp_path.name}"}
    )
    process = subprocess.Popen(
        [sys.executable, "-c", STARTS, "600" if killed else "0"],
        env={**os.environ, MARK: tmp_path.name},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "ready\n"
    if killed:
        patience = time.monotonic() + 60
        while len(left(tmp_path.name)) < 3:  # with the one that watches, and the one whose parent has ended
            assert time.monotonic() < patience
            time.sleep(0.05)
        process.kill()
    assert process.communicate(timeout=120)[0] == ("" if killed else "done\n")
    assert not left_after(tmp_path.name, seconds=60)
    assert bystander.poll() is None
    bystander.kill()
    bystander.wait()
