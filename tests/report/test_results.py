"""The results in the repository: what is written about them is what their rows say."""

import re
from pathlib import Path
from runpy import run_path

import pytest

from covshift.bench.methods import SCENARIOS
from covshift.bench.suite import run_folders
from covshift.bench.summary import table
from covshift.report.build import written_readme
from covshift.report.gather import gather

RESULTS = Path(__file__).parents[2] / "results"
NETWORKS = {"ResNet-20": "resnet20", "ResNet-20, AugMix": "resnet20-augmix"}


@pytest.mark.skipif(not (RESULTS / "README.md").exists(), reason="there are no results yet")
@pytest.mark.parametrize("page", [RESULTS / "README.md", RESULTS.parent / "docs" / "results" / "all.md"])
def test_what_is_written_is_what_the_rows_say(page):
    assert page.read_text() == written_readme([RESULTS]), "make results writes it again"


def test_the_page_on_claims_is_what_the_rows_say():
    page = RESULTS.parent / "docs" / "claims.md"
    assert page.read_text() == run_path(str(page.with_suffix(".py")))["written"](), "make results writes it again"


@pytest.mark.skipif(not (RESULTS / "resnet20-augmix").exists(), reason="there are no results yet")
def test_the_first_table_is_what_the_rows_say():
    lines = [line.replace("*", "") for line in (RESULTS.parent / "README.md").read_text().splitlines()]
    cells_by_line = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if " % |" in line]
    for label, *cells in cells_by_line:
        name, _, what = label.rpartition(", ") if label.endswith("clean") else ("", "", label.rpartition(": ")[2])
        if name:
            result = gather([RESULTS / NETWORKS[name]]).results[0]
        for cell, method in zip(cells, SCENARIOS, strict=True):
            rate = result.rate(method) if name else result.mean(method) if "mean" in what else result.over(method, what)
            assert cell == f"{100 * rate.value:.1f} %", (label, method)
    assert len(cells_by_line) == 9


def test_the_page_on_the_built_in_networks_says_what_the_rows_say():
    told = "".join(table(folder, "text") for place in (RESULTS, RESULTS / "seeds") for folder in run_folders(place))
    written = re.findall(r"([\d.]+) ± ([\d.]+) %", (RESULTS.parent / "docs" / "results" / "builtin.md").read_text())
    assert len(written) > 20
    assert not [pair for pair in written if " ±".join(pair) not in told]
