"""The results in the repository: what is written about them is what their rows say."""

from pathlib import Path

import pytest

from covshift.bench.methods import SCENARIOS
from covshift.report.command import written_readme
from covshift.report.results import gather

RESULTS = Path(__file__).parents[2] / "results"
NETWORKS = {"ResNet-20": "resnet20", "ResNet-20, AugMix": "resnet20-augmix"}


@pytest.mark.skipif(not (RESULTS / "README.md").exists(), reason="there are no results yet")
@pytest.mark.parametrize("page", [RESULTS / "README.md", RESULTS.parent / "docs" / "results.md"])
def test_what_is_written_is_what_the_rows_say(page):
    assert page.read_text() == written_readme([RESULTS]), "make results writes it again"


@pytest.mark.skipif(not (RESULTS / "resnet20-augmix").exists(), reason="there are no results yet")
def test_the_first_table_is_what_the_rows_say():
    lines = [line.replace("*", "") for line in (RESULTS.parent / "README.md").read_text().splitlines()]
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if " % |" in line]
    for label, *cells in table:
        name, _, what = label.rpartition(", ") if label.endswith("clean") else ("", "", label.rpartition(": ")[2])
        if name:
            result = gather([RESULTS / NETWORKS[name]]).results[0]
        for cell, method in zip(cells, SCENARIOS, strict=True):
            rate = result.rate(method) if name else result.mean(method) if "mean" in what else result.over(method, what)
            assert cell == f"{100 * rate.value:.1f} %", (label, method)
    assert len(table) == 9
