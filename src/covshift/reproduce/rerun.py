"""`reproduce`: run what tables and figures of the paper need, and put ours beside its numbers."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from covshift.bench.engines.where import HERE, Where
from covshift.bench.results.store import Store, check_settings, holds_a_run
from covshift.bench.settings import Settings
from covshift.reproduce.locations import Locations
from covshift.reproduce.side_by_side import format_comparison, numbers_table
from covshift.reproduce.target import Target, join
from covshift.support.errors import CovshiftError, Stopped, plural

Notify = Callable[[str], None]
"""A function that is called with each line that informs a user."""


class NeededRuns(NamedTuple):
    """The runs that can be made, by name, and the reasons why others cannot."""

    runs: dict[str, Settings]
    missing: dict[str, str]


class Outcome(NamedTuple):
    """The tables as text, and the runs that failed, each with the reason."""

    text: str
    failed: dict[str, str]


def needed_runs(targets: Sequence[Target], locations: Locations) -> NeededRuns:
    """Return the runs that these tables and figures need.

    Raises:
        CovshiftError: if data or weights are missing for all of them.
    """
    runs, missing = {}, {}
    for name, job in join([job for target in targets for job in target.jobs]).items():
        try:
            runs[name] = Settings.read(locations.settings(job))
        except CovshiftError as error:
            missing[name] = str(error)
    if not runs:
        raise CovshiftError("; ".join(dict.fromkeys(missing.values())))
    return NeededRuns(runs, missing)


def reproduce(
    targets: Sequence[Target],
    locations: Locations,
    out: Path,
    notify: Notify = lambda line: None,
    *,
    dry: bool = False,
    form: str = "text",
    progress: bool = True,
    where: Where = HERE,
) -> Outcome:
    """Estimate how long the runs take, make those that are not done yet, and compare with the paper.

    Args:
        targets: the tables and figures, as `choose_targets` returns them.
        locations: the user's data and weights.
        out: a folder for the runs, each in a folder of its own; runs that are there are resumed.
        notify: called with each line on what is about to run, and what cannot.
        dry: whether to stop after the estimate.
        form: the form of the tables: text, markdown, csv, latex or json.
        progress: whether to show the progress of each run.
        where: the engine that computes; with a shard, the outcome is the progress of its runs.
    """
    from covshift.bench.engines.together import together
    from covshift.bench.engines.torchrun import from_first, is_first
    from covshift.bench.summary import status

    runs, missing = needed_runs(targets, locations)
    if dry:
        _announce(runs, missing, out, where, notify)
        return Outcome("", {})
    with together(where, out):
        unfinished = from_first(_announce(runs, missing, out, where, notify) if is_first() else None)
        failed = _run(unfinished, out, where, progress=progress)
        if not is_first():
            return Outcome("", failed)  # one of the ranks shows the tables
    for name, reason in failed.items():
        notify(f"failed: {name}: {reason}")
    if len(failed) == len(runs):
        raise CovshiftError("no run succeeded")
    if where.shard:
        return Outcome("\n\n".join(status(where.folder(out / name)) for name in runs if name not in failed), failed)
    # What a run that failed has left there may be of other weights or data.
    rows = {name: Store(out / name).rows() for name in runs if name not in failed}
    return Outcome(format_comparison([numbers_table(target, rows) for target in targets], form), failed)


def _announce(
    runs: dict[str, Settings], missing: dict[str, str], out: Path, where: Where, notify: Notify
) -> dict[str, Settings]:
    """Report which runs cannot be made, and how long the others take; return the runs that are not done yet."""
    from covshift.reproduce.hours import hours

    for name, reason in missing.items():
        notify(f"left out: {name}: {reason}")
    folders = {name: where.folder(out / name) for name in runs}
    cells = {name: _cells_left(folders[name], settings, where) for name, settings in runs.items()}
    unfinished = {name: runs[name] for name in runs if cells[name] or not holds_a_run(folders[name])}
    if unfinished:
        estimates = hours(unfinished, cells)
        for name, estimate in estimates.items():
            notify(f"{name}: {plural(cells[name], 'cell')}, about {_time(estimate)}")
        total = _time(sum(estimates.values()))
        notify(f"{plural(len(estimates), 'run')}, about {total} of forward passes on this device")
    return unfinished


def _run(runs: dict[str, Settings], out: Path, where: Where, *, progress: bool) -> dict[str, str]:
    """Make runs one after the other; return the reasons of those that fail."""
    from covshift.bench.run import run

    failed = {}
    for name, settings in runs.items():
        try:
            extend = holds_a_run(where.folder(out / name))
            run(settings, out / name, extend=extend, progress=progress, where=where)
        except Stopped:
            raise
        except CovshiftError as error:
            failed[name] = str(error)  # the others may still work, and take hours
    return failed


def _cells_left(folder: Path, settings: Settings, where: Where) -> int:
    """Return the number of cells that are not done; rows of other data, weights or images are not of this run."""
    wanted = set(settings.plan.names_of(where.part(settings.plan.conditions)))
    if holds_a_run(folder) and (done := Store(folder).done()):
        check_settings(folder, Store(folder).run.settings, settings, extend=True)
        wanted -= done
    return len(wanted)


def _time(hours: float) -> str:
    return f"{hours:.1f} h" if hours >= 1 else f"{hours * 60:.0f} min"
