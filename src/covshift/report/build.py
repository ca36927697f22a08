"""What `covshift report` does with its arguments."""

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from covshift.bench.measure import Shift, measure, read_shift
from covshift.bench.summary import read_baseline
from covshift.report.bundle import check_installed
from covshift.report.gather import Gathered, Result, gather
from covshift.report.metric import metric
from covshift.report.page import page
from covshift.report.parts import Section
from covshift.report.publication import write_files
from covshift.report.readme import as_readme
from covshift.report.sections import architectures, batches, comparison, distances, natural, overview
from covshift.report.sections import bounds as theory
from covshift.report.sections import by_corruption as corruptions
from covshift.report.sections.samples import Samples, samples
from covshift.support.errors import CovshiftError, plural
from covshift.support.files import replacing


def report(
    runs: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str] = "report",
    *,
    baseline: str | os.PathLike[str] | None = None,
    compare: bool = False,
    images: bool = True,
    files: bool = True,
    readme: str | os.PathLike[str] | None = None,
    measure_images: int | None = None,
    say: Callable[[str], None] = lambda note: None,
) -> Path:
    """Write a report on run folders.

    Args:
        runs: the folders, or folders that hold some.
        out: the folder to write to.
        baseline: a run to measure mCE against, in AlexNet's place.
        compare: begin with a comparison; there must be two runs.
        images: whether to show images of the conditions, where the data can be opened.
        files: whether to write every figure as SVG, PDF and PNG, and every table as CSV, Markdown and LaTeX, too.
        readme: a Markdown file to write summary and tables to.
        measure_images: first measure on so many images how far the conditions of each run are from the source, and
            keep that in its folder; by default what is kept there is shown.
        say: is told what was left out, and why; the page says it, too.

    Returns:
        The page.
    """
    check_installed()
    if not runs:
        raise CovshiftError("expected run folders, e.g. covshift report runs/r18 --out report")
    found = gather([Path(run) for run in runs], read_baseline(Path(baseline)) if baseline else None)
    shifts = _shifts(found.results, measure_images)
    notes = (*found.notes, *shifts.notes)
    options = {"--out": out, "--baseline": baseline, "--readme": readme}
    measuring = _measuring(runs, options, compare)
    made = [*(_compared(found) if compare else ()), *sections(found.results, shifts.found, measuring)]
    for note in notes:
        say(note)
    if readme is not None:
        _write(Path(readme), as_readme(_title(found), found.results, made))
    if files:
        write_files(made, Path(out))
    shown = samples(found.results) if images else Samples((), "they were not asked for")
    index = Path(out) / "index.html"
    _write(index, page(_title(found), found.results, made, shown, notes))
    return index


def written_readme(runs: Sequence[str | os.PathLike[str]]) -> str:
    """The Markdown that `report` writes with `readme`, to compare."""
    found = gather([Path(run) for run in runs])
    return as_readme(_title(found), found.results, sections(found.results, _shifts(found.results).found))


class Shifts(NamedTuple):
    """What was measured, by the name of the result, and what could not be."""

    found: dict[str, Shift]
    notes: tuple[str, ...]


def _shifts(results: Sequence[Result], images: int | None = None) -> Shifts:
    found: dict[str, Shift] = {}
    notes = []
    for result in results:
        if images is not None:
            shift = measure(result, images)
            if shift is None:
                notes.append(f"{result.name} has no layer with statistics, there is no distance to measure")
        else:
            try:
                shift = read_shift(result)
            except CovshiftError as error:
                notes.append(f"left out: {error}")
                continue
        if shift is not None:
            found[result.name] = shift
    return Shifts(found, tuple(notes))


def _compared(found: Gathered) -> list[Section]:
    if len(found.results) != 2:
        got = ", ".join(result.name for result in found.results)
        why = "".join(f"; {note}" for note in found.notes)
        raise CovshiftError(f"expected two runs to compare, got {len(found.results)} ({got}){why}")
    return [comparison.section(*found.results)]


def _measuring(
    runs: Sequence[str | os.PathLike[str]], options: Mapping[str, str | os.PathLike[str] | None], compare: bool
) -> str:
    """The command of this report with --measure: one about fewer runs would take its place."""
    given = [word for name, value in options.items() if value is not None for word in (name, os.fspath(value))]
    words = ["covshift", "report", *(os.fspath(run) for run in runs), *given, *(["--compare"] if compare else [])]
    return shlex.join([*words, "--measure", "1000"])


def _write(file: Path, text: str) -> None:
    with replacing(file) as part:
        part.write_text(text, encoding="utf-8")


def sections(
    results: Sequence[Result], shifts: Mapping[str, Shift] | None = None, measuring: str = distances.MEASURE
) -> list[Section]:
    """All that is shown of the results; `measuring` is the command for what was not measured yet."""
    measured, found = shifts or {}, metric(results)
    return [
        overview.section(results),
        corruptions.section(results),
        batches.section(results, found),
        architectures.section(results, measured, found),
        natural.section(results),
        distances.section(results, measured, measuring),
        theory.section(results, measured, found, measuring),
    ]


def _title(found: Gathered) -> str:
    runs = [result.name for result in found.results]
    if len(runs) <= 3:
        return f"Covariate shift: {', '.join(runs)}"
    models = len({result.run.model_digest for result in found.results})
    return f"Covariate shift: {plural(models, 'model')}" + ("" if models == len(runs) else f" in {len(runs)} runs")
