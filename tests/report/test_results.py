"""The results in the repository: what is written about them is what their rows say."""

from pathlib import Path

import pytest

from covshift.report.command import written_readme

RESULTS = Path(__file__).parents[2] / "results"


@pytest.mark.skipif(not (RESULTS / "README.md").exists(), reason="there are no results yet")
@pytest.mark.parametrize("page", [RESULTS / "README.md", RESULTS.parent / "docs" / "results.md"])
def test_what_is_written_is_what_the_rows_say(page):
    assert page.read_text() == written_readme([RESULTS]), "make results writes it again"
