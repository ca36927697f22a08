"""The tables of the page on forecasts are made of the stored rows."""

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "explanation" / "forecasts.md").read_text()
STORED = sorted((ROOT / "results" / "shift").glob("forecasts-*.jsonl"))


@pytest.fixture
def benchmark(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return pytest.importorskip("forecasts")


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.stem)
def test_tables_are_of_the_stored_rows(benchmark, capsys, path):
    benchmark.report([json.loads(line) for line in path.read_text().splitlines()])
    printed = capsys.readouterr().out
    assert printed == path.with_suffix(".md").read_text()
    table = "".join(line + "\n" for line in printed.splitlines() if line.startswith("|"))
    assert table in PAGE


@pytest.mark.parametrize("path", sorted((ROOT / "results" / "shift").glob("natural-*.md")), ids=lambda path: path.stem)
def test_made_up_shifts_are_on_the_page(path):
    lines = [line for line in path.read_text().splitlines() if line.startswith("|")]
    assert "\n".join(lines) in PAGE


def test_what_counting_allows_is_on_the_page():
    assert (ROOT / "results" / "shift" / "counting.md").read_text() in PAGE
