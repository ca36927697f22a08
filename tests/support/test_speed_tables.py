"""The common form of the speed figures, which `make speed` prints."""

import importlib.util
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "subjects.py"


@pytest.fixture
def subjects(monkeypatch):
    spec = importlib.util.spec_from_file_location("subjects", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "subjects", module)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("value", "goal", "higher", "short"),
    [
        (1.2, 1.15, False, True),
        (1.1, 1.15, False, False),
        (3.0, 4, True, True),
        (4.0, 4, True, False),
        (9.0, None, False, False),
    ],
)
def test_a_figure_falls_short_on_the_wrong_side_of_its_goal(subjects, value, goal, higher, short):
    figure = subjects.Figure("a", value, goal, higher)
    assert figure.is_short == short
    assert figure.row(5).endswith("short") == short


def test_what_several_scripts_report_is_listed_at_the_end(subjects, tmp_path, monkeypatch, capsys):
    path = tmp_path / "figures.jsonl"
    monkeypatch.setenv(subjects.FILE, str(path))
    for name, value in (("One", 2.0), ("Two", 1.0)):
        subject = subjects.Subject(name)
        subject.add("ratio", value, 1.5)
        subjects.report(subject)
    assert "at most 1.5 x  short" in capsys.readouterr().out
    assert subjects.shortfalls(subjects.collected(path)) == "1 of 2 goals missed:\n- One: ratio 2 x, goal 1.5 x"
