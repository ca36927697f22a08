"""Settings of one run or several from YAML, and folders of runs."""

import pytest
from runs import a_row, a_run
from typer.testing import CliRunner

from covshift.bench.results.store import Store
from covshift.bench.settings import Settings
from covshift.bench.suite import BUILTIN_SUITE, open_runs, read_runs
from covshift.cli import app
from covshift.cli.bench_run import choose_builtin
from covshift.corruptions import names
from covshift.support.errors import CovshiftError

GIVEN = {"model": "m:x", "data": "d:x"}


def written(tmp_path, text):
    file = tmp_path / "bench.yaml"
    file.write_text(text)
    return file


def test_the_command_line_comes_before_yaml(tmp_path):
    file = written(
        tmp_path,
        "model: m:y\nlimit: 5\nskip-broken: true\nseverities: [1, 5]\nmethods: [none, 'batch:n=8,N=4']\n",
    )
    settings = read_runs({"data": "d:x", "limit": 7}, file)[""]
    assert (settings.model, settings.limit, settings.skip_broken) == ("m:y", 7, True)
    assert settings.severities == (1, 5)
    assert settings.methods == ("none", "batch:n=8,N=4")


def test_what_runs_share_gives_way_to_their_own(tmp_path):
    file = written(
        tmp_path, "data: d:x\nlimit: 5\nruns:\n  a: {model: m:a}\n  b: {model: m:b, limit: 9, batch-size: 4}\n"
    )
    runs = read_runs({"seed": 3}, file)
    assert {name: (r.model, r.data, r.limit, r.seed, r.batch_size) for name, r in runs.items()} == {
        "a": ("m:a", "d:x", 5, 3, None),
        "b": ("m:b", "d:x", 9, 3, 4),
    }
    assert {r.limit for r in read_runs({"limit": 2}, file).values()} == {2}


def test_the_built_in_benchmark_is_the_papers():
    for settings in read_runs({}, BUILTIN_SUITE).values():
        assert len(settings.plan.conditions) == 96
        assert settings.methods == ("none", "partial", "full")


def test_the_built_in_benchmark_on_more_images_has_a_folder_of_its_own():
    assert [choose_builtin({"limit": limit}, None, None)[1].name for limit in (None, 10000)] == [
        "builtin",
        "builtin-10000",
    ]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("- a\n", "expected settings"),
        ("a: [", "not valid YAML"),
        (None, "cannot read"),
        ("runs: [a]\n", "expected runs in"),
        ("runs: {}\n", "expected runs in"),
        ("runs: {a: 5}\n", "expected settings of the run 'a'"),
        ("runs: {../a: {limit: 5}}\n", "a name for a folder"),
        ("runs: {7: {limit: 5}}\n", "a name for a folder"),
        ("runs: {a: {limt: 5}}\n", "run 'a' in .*did you mean 'limit'"),
    ],
)
def test_bad_yaml(tmp_path, content, words):
    file = tmp_path / "bench.yaml" if content is None else written(tmp_path, content)
    with pytest.raises(CovshiftError, match=words):
        read_runs(GIVEN, file)


@pytest.fixture
def runs(tmp_path):
    """A folder of two runs, one of them complete."""
    for name, number in (("a", 40), ("b", 30)):
        store = Store.create(tmp_path / name, a_run(corruptions="test", severities="3", methods="none,full"))
        cells = [("clean/0", 10), *((f"{corruption}/3", number) for corruption in names("test"))]
        store.append([a_row(f"{cell}/none", wrong) for cell, wrong in cells])
        if name == "a":
            store.append([a_row(f"{cell}/full", wrong - 5) for cell, wrong in cells])
    (tmp_path / "notes").mkdir()
    return tmp_path


def test_a_folder_of_runs_is_a_table_with_a_line_for_each(runs):
    assert list(open_runs(runs)) == ["a", "b"]
    result = CliRunner().invoke(app, ["bench", "table", str(runs), "--markdown"])
    assert "| a: 15 corruptions at severity 3, 100 images | 10.0 | 40.0 | 35.0 | -5.0 |" in result.stdout
    assert "| b: 15 corruptions at severity 3, 100 images | 10.0 | 30.0 |  |  |" in result.stdout
    both = CliRunner().invoke(app, ["bench", "table", str(runs), "--csv", "--json"])
    assert "expected one form of output, got --csv and --json" in both.stderr
    assert len(CliRunner().invoke(app, ["bench", "rows", str(runs)]).stdout.splitlines()) == 48
    assert "32 of 32 cells done" in CliRunner().invoke(app, ["bench", "status", str(runs)]).stdout
    assert "m:x on d:x: error" in CliRunner().invoke(app, ["bench", "table", str(runs / "a")]).stdout


def test_no_runs_at_all(tmp_path):
    with pytest.raises(CovshiftError, match="there is no run in"):
        open_runs(tmp_path)
    with pytest.raises(CovshiftError, match="there is no run in"):
        open_runs(tmp_path / "nowhere")


@pytest.mark.parametrize("more", [["--model", "m:x"], ["--data", "d:x"], ["--config", "x.yaml"]])
def test_builtin_brings_its_own(more):
    result = CliRunner().invoke(app, ["bench", "run", "--builtin", *more])
    assert result.exit_code == 1
    assert f"leave out {more[0]}" in result.stderr


@pytest.mark.parametrize(
    "text", ["a: " + "[" * 5000, "model: 2026-99-99", "a: !!python/object/apply:os.system [id]", "\x00"]
)
def test_a_configuration_that_no_parser_can_read_is_refused_by_name(tmp_path, text):
    with pytest.raises(CovshiftError, match=r"bench\.yaml is not valid YAML"):
        read_runs({}, written(tmp_path, text))


def test_a_name_that_utf_8_cannot_hold_is_refused_before_anything_runs():
    with pytest.raises(CovshiftError, match="expected data to be text that UTF-8 can hold"):
        Settings(model="m:x", data="npz:K\udce4se.npz")
