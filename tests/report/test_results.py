"""The results in the repository: what is written about them is what their rows say."""

from pathlib import Path

import pytest

from covshift.report.command import written_readme

RESULTS = Path(__file__).parents[2] / "results"


@pytest.mark.skipif(not (RESULTS / "README.md").exists(), reason="there are no results yet")
def test_the_readme_is_that_of_the_rows():
    text = (RESULTS / "README.md").read_text()
    assert text == written_readme([RESULTS]), "make it again: covshift report results/ --readme results/README.md"
