"""`report`: from run folders to a page, files for publication and a README."""

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from covshift.bench.measure import Shift, measure_shift, read_shift
from covshift.bench.summary import read_baseline
from covshift.report.bundle import check_installed
from covshift.report.criterion import criterion
from covshift.report.gather import Gathered, Result, gather
from covshift.report.page import page
from covshift.report.parts import Section
from covshift.report.publication import write_files
from covshift.report.readme import as_readme
from covshift.report.sections import (
    architectures,
    batches,
    bounds,
    by_class,
    by_corruption,
    comparison,
    distances,
    natural,
    overview,
    streams,
)
from covshift.report.sections.gallery import NONE_SHOWN, Galleries, galleries
from covshift.report.sections.samples import Samples, samples
from covshift.support.checks import check_flags, check_function, check_list, check_number, check_path
from covshift.support.errors import CovshiftError, plural
from covshift.support.files import replacing
from covshift.support.plugins import load_plugins


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
    plugins: Sequence[str] = (),
    progress: bool = True,
    notify: Callable[[str], None] = lambda note: None,
) -> Path:
    """Write a report on run folders.

    Args:
        runs: run folders, or folders that hold some.
        out: the folder to write to.
        baseline: a run to measure mCE against, in AlexNet's place.
        compare: whether to begin with a comparison of the runs, of which there must be two.
        images: whether to show images of the conditions, where the data can be opened.
        files: whether to write every figure as SVG, PDF and PNG, and every table as CSV, Markdown and LaTeX, too.
        readme: a Markdown file to write the summary and the tables to.
        measure_images: the number of images on which to measure first how far the conditions of each run are from the
            source; the measurements are kept in its folder. By default those that are kept there are shown.
        plugins: Python modules that register the user's own corruptions, which images are shown in.
        progress: whether to show progress while measuring.
        notify: called with each note on what was left out, and why; the page has these notes, too.

    Returns:
        The path of the page.
    """
    check_installed()
    check_flags(compare=compare, images=images, files=files, progress=progress)
    check_function(notify, "notify")
    folders = [check_path(run, "each run") for run in check_list(runs, "runs", "run folders")]
    if not folders:
        raise CovshiftError("expected one run folder or more, got none")
    target, summary = check_path(out, "out"), None if readme is None else check_path(readme, "readme")
    load_plugins(check_list(plugins, "plugins", "Python modules"))
    gathered = gather(folders, None if baseline is None else read_baseline(check_path(baseline, "baseline")))
    shifts = _shifts(gathered.results, measure_images, progress=progress)
    shots = galleries(gathered.results) if images else NONE_SHOWN
    notes = (*gathered.notes, *shifts.notes, *shots.notes)
    options = {"--out": out, "--baseline": baseline, "--readme": readme, "--plugin": ",".join(plugins) or None}
    command = _measuring_command(runs, options, compare)
    content = [*(_compared(gathered) if compare else ())]
    content += sections(gathered.results, shifts.measured, command, shots)
    for note in notes:
        notify(note)
    if summary is not None:
        _write(summary, as_readme(_title(gathered), gathered.results, content))
    if files:
        write_files(content, target)
    pictures = samples(gathered.results) if images else Samples((), "they were not requested")
    index = target / "index.html"
    text = page(_title(gathered), gathered.results, content, pictures, shots, notes)
    _write(index, text)
    return index


def written_readme(runs: Sequence[str | os.PathLike[str]]) -> str:
    """Return the Markdown that `report` writes to `readme`."""
    gathered = gather([Path(run) for run in runs])
    measured = _shifts(gathered.results).measured
    return as_readme(_title(gathered), gathered.results, sections(gathered.results, measured))


class Shifts(NamedTuple):
    """The measurements by the name of the result, and notes on those that failed."""

    measured: dict[str, Shift]
    notes: tuple[str, ...]


def _shifts(results: Sequence[Result], images: int | None = None, *, progress: bool = True) -> Shifts:
    if images is not None:
        check_number(images, "measure_images", 1, whole=True)
    measured: dict[str, Shift] = {}
    notes = []
    for result in results:
        if images is not None and not result.run.settings.sequence:
            shift = measure_shift(result, images, progress=progress)
            if shift is None:
                notes.append(f"{result.name} has no layer with statistics, so there is no distance to measure")
        else:
            try:
                shift = read_shift(result)
            except CovshiftError as error:
                notes.append(f"left out: {error}")
                continue
        if shift is not None:
            measured[result.name] = shift
    return Shifts(measured, tuple(notes))


def _compared(gathered: Gathered) -> list[Section]:
    if len(gathered.results) != 2:
        names = ", ".join(result.name for result in gathered.results)
        reasons = "".join(f"; {note}" for note in gathered.notes)
        raise CovshiftError(f"expected two runs to compare, got {len(gathered.results)} ({names}){reasons}")
    return [comparison.section(*gathered.results)]


def _measuring_command(
    runs: Sequence[str | os.PathLike[str]], options: Mapping[str, str | os.PathLike[str] | None], compare: bool
) -> str:
    """Return the command of this report with --measure; a report on fewer runs would take the place of this one."""
    given = [word for name, value in options.items() if value is not None for word in (name, os.fspath(value))]
    words = ["covshift", "report", *(os.fspath(run) for run in runs), *given, *(["--compare"] if compare else [])]
    return shlex.join([*words, "--measure", "1000"])


def _write(file: Path, text: str) -> None:
    with replacing(file) as part:
        part.write_text(text, encoding="utf-8")


def sections(
    results: Sequence[Result],
    shifts: Mapping[str, Shift] | None = None,
    measuring: str = distances.MEASURE,
    shots: Galleries = NONE_SHOWN,
) -> list[Section]:
    """Return all sections on these results, in the order in which the page shows them.

    A section's module holds its tables and figures, so that a new one is added there and nowhere else.

    Args:
        results: what the sections are about.
        shifts: the measurements of those that were measured, by name.
        measuring: the command that measures the others.
        shots: the galleries that bars lead to.
    """
    through = streams.sections(results)
    results = [result for result in results if not result.run.settings.sequence]
    if not results:
        return through
    measured, by = shifts or {}, criterion(results)
    return [
        overview.section(results),
        by_corruption.section(results, shots),
        by_class.section(results),
        batches.section(results, by),
        *through,
        architectures.section(results, measured, by),
        natural.section(results),
        distances.section(results, measured, measuring),
        bounds.section(results, measured, by, measuring),
    ]


def _title(gathered: Gathered) -> str:
    runs = [result.name for result in gathered.results]
    if len(runs) <= 3:
        return f"Covariate shift: {', '.join(runs)}"
    models = len({result.run.model_digest for result in gathered.results})
    return f"Covariate shift: {plural(models, 'model')}" + ("" if models == len(runs) else f" in {len(runs)} runs")
