"""A run on Ray that a scheduler ends by SIGTERM: one line, as after Ctrl-C, and the same command resumes."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from runs import by_cell, workplace

pytest.importorskip("ray", reason="the engine on Ray needs Ray: pip install 'covshift[ray]'")

COMMAND = [
    *(sys.executable, "-m", "covshift", "bench", "run", "--model", "py:nets:net", "--data", "npz:set.npz"),
    *("--size", "16", "--severities", "1,5", "--threads", "1", "--methods", "none,full", "--out", "out"),
    *("--engine", "ray", "--workers", "1", "--worker-cpus", "0.5"),
]


def test_sigterm_stops_a_run_on_ray_in_order(tmp_path):
    rows = workplace(tmp_path, images=2000) / "out" / "rows.jsonl"
    process = subprocess.Popen(COMMAND, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    patience = time.monotonic() + 90
    while not (rows.exists() and rows.stat().st_size) and process.poll() is None and time.monotonic() < patience:
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    _, shown = process.communicate(timeout=60)
    assert process.returncode == 130
    assert shown.splitlines()[-1] == "stopped; what is done is in out, and the same command resumes from there"
    assert "SIGTERM" not in shown
    assert "Traceback" not in shown
    assert not Path(f"/proc/{process.pid}").exists()
    assert by_cell(tmp_path / "out")
