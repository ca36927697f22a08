"""What `covshift report` does with its arguments."""

import os
from collections.abc import Sequence
from pathlib import Path

from covshift.bench.metrics import Baseline, baseline_of
from covshift.bench.store import Store
from covshift.errors import CovshiftError
from covshift.files import replacing
from covshift.report import corruptions, overview
from covshift.report.bundle import check_installed
from covshift.report.page import page
from covshift.report.parts import Section
from covshift.report.results import Gathered, Result, gather
from covshift.report.samples import Samples, samples


def report(
    runs: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str] = "report",
    *,
    baseline: str | os.PathLike[str] | None = None,
    images: bool = True,
) -> Path:
    """Write a report on run folders.

    Args:
        runs: the folders, or folders that hold some.
        out: the folder to write to.
        baseline: a run to measure mCE against, in AlexNet's place.
        images: whether to show images of the conditions, where the data can be opened.

    Returns:
        The page.
    """
    check_installed()
    if not runs:
        raise CovshiftError("expected run folders, e.g. covshift report runs/r18 --out report")
    found = gather([Path(run) for run in runs], _read_baseline(baseline))
    made = sections(found.results)
    shown = samples(found.results) if images else Samples((), "they were not asked for")
    text = page(_title(found), found.results, made, shown, found.notes)
    index = Path(out) / "index.html"
    with replacing(index) as part:
        part.write_text(text)
    return index


def sections(results: Sequence[Result]) -> list[Section]:
    """All that is shown of the results."""
    return [overview.section(results), corruptions.section(results)]


def _title(found: Gathered) -> str:
    models = [result.name for result in found.results]
    named = ", ".join(models) if len(models) <= 3 else f"{len(models)} models"
    return f"Covariate shift: {named}"


def _read_baseline(folder: str | os.PathLike[str] | None) -> Baseline | None:
    return None if folder is None else baseline_of(Store(Path(folder)).rows(), Path(folder).name)
