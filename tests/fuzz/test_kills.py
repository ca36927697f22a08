"""A run that is killed again and again, at random moments: no row is ever lost, doubled or wrong."""

import random
import time
from pathlib import Path

import pytest
from runs import OPTIONS, by_cell, processes_to_kill, run_in, workplace

KILLED = {**OPTIONS, "corruptions": "fog,spatter,snow", "severities": "1,5", "threads": 1}


def kill_at(here: Path, kills: int, seed: int) -> None:
    """Kill a run again and again, and compare what each leaves with a run that nobody disturbs."""
    context = processes_to_kill()
    moments, rows, kept = random.Random(seed), Path("out/rows.jsonl"), {}
    run_in(here, KILLED, "whole")
    whole = by_cell("whole")
    for _ in range(kills):
        before = rows.stat().st_size if rows.exists() else 0
        process = context.Process(target=run_in, args=(here, KILLED, "out"))
        process.start()
        # Some die before they have added anything, most in the middle of the work.
        patience, more = time.monotonic() + moments.choice([0.3, 60, 60]), moments.randint(1, 900)
        while process.is_alive() and time.monotonic() < patience:
            if rows.exists() and rows.stat().st_size > before + more:
                break
            time.sleep(0.001)
        process.kill()
        process.join()
        found = by_cell("out") if rows.exists() else {}
        assert kept.items() <= found.items() <= whole.items()
        kept = found
    run_in(here, KILLED, "out")
    assert by_cell("out") == whole


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(workplace(tmp_path))
    return tmp_path


def test_kill_at_twenty_moments(here):
    kill_at(here, kills=20, seed=0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 6))
def test_kill_at_a_hundred_moments(here, seed):
    kill_at(here, kills=20, seed=seed)  # a run is done after about so many
