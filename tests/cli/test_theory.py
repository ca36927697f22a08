"""`covshift theory` on the command line."""

import json

import pytest
from typer.testing import CliRunner

from covshift.cli import app
from covshift.shift import bounds


def run(*arguments):
    return CliRunner().invoke(app, ["theory", *arguments])


def test_table():
    lines = run("-n", "8", "--shift", "0.5", "--ratio", "1.2", "--prior", "16").stdout.splitlines()
    lower, upper = bounds(8, 16, 0, 1, 0.5, 1.44)
    N, L, _, U = lines[2].split()
    assert (N, float(L), float(U)) == ("16", round(lower, 4), round(upper, 4))
    assert lines[-1].startswith("best N: 4.99 by L")


def test_json():
    got = json.loads(run("--n", "1", "--shift", "0", "--json").stdout)
    assert got["best"]["lower"] == {"prior": "inf", "value": 0.0}
    assert got["rows"][0]["N"] == 1
    assert all(row["lower"] == row["upper"] for row in got["rows"])
    grid = json.loads(run("--grid", "--json").stdout)
    assert len(grid["best"]) == len(grid["shifts"])
    assert grid["best"][0][2][0] == "inf"


def test_all_images():
    assert "best N: 0 by L, 0 by U, 0 by E[W²]" in run("--n", "inf").stdout


def test_grid():
    assert "(0.5, 2)" in run("--grid").stdout


@pytest.mark.parametrize("bad", [["--n", "0"], ["--n", "1", "--prior", "0"], ["--ratio", "-1"], ["--alpha", "2"]])
def test_bad_input(bad):
    result = run(*bad)
    assert result.exit_code == 1
    assert result.stderr.startswith("error: ")
