"""What `covshift reproduce` does with its arguments."""

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from covshift.bench.engines.where import HERE, Where
from covshift.bench.results.store import Store, check_settings, holds_a_run
from covshift.bench.settings import Settings
from covshift.reproduce.beside import compare, write
from covshift.reproduce.figures import FIGURES
from covshift.reproduce.miniature import IMAGES, miniature
from covshift.reproduce.resources import Places
from covshift.reproduce.tables import TABLES
from covshift.reproduce.target import Target, join
from covshift.support.errors import CovshiftError, Stopped, plural, unknown

ELSEWHERE = {
    "table6": "covshift.data.objectnet.mapping(): ObjectNet's ambiguous classes",
    "table7": "covshift models 'torchvision:*': parameters and BN parameters",
    "table11": "covshift shift, covshift.shift.Predictor: errors predicted from distances",
    "figure4": "covshift.shift.wasserstein, covshift shift: distances and errors",
    "figure6": "covshift theory --grid",
    "figure7": "covshift.shift.wasserstein: distances by layer",
    "figure8": "covshift.shift.wasserstein: distances by layer",
    "figure9": "figure3 with covshift models 'zoo:*'",
    "figure11": "covshift.shift.embed: the map of statistics",
    "figure12": "table12, which it shows",
    "figure13": "table12, which it shows",
    "figure14": "covshift theory",
}
"""What needs no run of the benchmark."""

Say = Callable[[str], None]


class Outcome(NamedTuple):
    """The tables, and which runs failed, each with the reason."""

    text: str
    failed: dict[str, str]


def targets(builtin: bool) -> dict[str, Target]:
    """All that can be run, by name."""
    if builtin:
        from covshift.models.builtin import names

        return {target.name: target for target in miniature(names())}
    return {target.name: target for target in (*TABLES, *FIGURES)}


def listed(builtin: bool, *, as_json: bool) -> str:
    """What can be reproduced."""
    known = targets(builtin)
    if as_json:
        rows = [{"name": t.name, "title": t.title, "runs": [job.name for job in t.jobs]} for t in known.values()]
        return json.dumps(rows, indent=1)
    wide = max(map(len, [*known, *ELSEWHERE]), default=0)
    lines = [
        f"{name:{wide}}  {target.title} ({plural(len(join(target.jobs)), 'run')})" for name, target in known.items()
    ]
    return "\n".join([*lines, "", "By other means:", *(f"{name:{wide}}  {how}" for name, how in ELSEWHERE.items())])


def choose(name: str, rows: Sequence[str], *, builtin: bool) -> list[Target]:
    """The targets of this name, or all."""
    known = targets(builtin)
    if builtin and not known:
        raise CovshiftError("expected built-in networks, found none; train one with covshift train resnet20")
    if name in ELSEWHERE:
        raise CovshiftError(f"{name} needs no benchmark: {ELSEWHERE[name]}")
    if name != "all" and name not in known:
        raise unknown("table or figure", name, ["all", *known])
    chosen = list(known.values()) if name == "all" else [known[name]]
    found = [target for each in chosen if (target := each.only(rows)).numbers]
    if not found:
        labels = dict.fromkeys(number.row for target in chosen for number in target.numbers)
        raise CovshiftError(f"no row of {name} fits {', '.join(rows)}; there are {', '.join(labels)}")
    return found


def plan(found: Sequence[Target], places: Places) -> tuple[dict[str, Settings], dict[str, str]]:
    """The runs that can be made, and why others cannot."""
    runs, missing = {}, {}
    for name, job in join([job for target in found for job in target.jobs]).items():
        try:
            runs[name] = Settings.read(places.settings(job))
        except CovshiftError as error:
            missing[name] = str(error)
    if not runs:
        raise CovshiftError("; ".join(dict.fromkeys(missing.values())))
    return runs, missing


def reproduce(
    found: Sequence[Target],
    places: Places,
    out: Path,
    say: Say,
    *,
    dry: bool = False,
    kind: str = "text",
    where: Where = HERE,
) -> Outcome:
    """Estimate, run what is left to run, and compare; with a shard, only say how far its runs are.

    Args:
        found: what to reproduce.
        places: where data and weights are.
        out: a folder for the runs, each in a folder of its own; the same command goes on there.
        say: told what is about to be done, and what cannot.
        dry: only estimate.
        kind: of the table: text, markdown or json.
        where: the engine that computes.
    """
    from covshift.bench.engines.together import together
    from covshift.bench.engines.torchrun import from_first, is_first
    from covshift.bench.summary import status

    runs, missing = plan(found, places)
    if dry:
        _announce(runs, missing, out, where, say)
        return Outcome("", {})
    with together(where, out):
        left = from_first(_announce(runs, missing, out, where, say) if is_first() else None)
        failed = _run(left, out, where)
        if not is_first():
            return Outcome("", failed)  # one of the ranks shows the tables
    for name, why in failed.items():
        say(f"failed: {name}: {why}")
    if len(failed) == len(runs):
        raise CovshiftError("no run succeeded")
    if where.shard:
        return Outcome("\n\n".join(status(where.folder(out / name)) for name in runs if name not in failed), failed)
    # What a run that failed has left there may be of other weights or data.
    rows = {name: Store(out / name).rows() for name in runs if name not in failed}
    return Outcome(write([(target, compare(target, rows)) for target in found], kind), failed)


def _announce(
    runs: dict[str, Settings], missing: dict[str, str], out: Path, where: Where, say: Say
) -> dict[str, Settings]:
    """Say what cannot be run, and how long the rest takes; give what is left to run."""
    from covshift.reproduce.hours import hours

    for name, why in missing.items():
        say(f"left out: {name}: {why}")
    folders = {name: where.folder(out / name) for name in runs}
    cells = {name: _cells_left(folders[name], settings, where) for name, settings in runs.items()}
    left = {name: runs[name] for name in runs if cells[name] or not holds_a_run(folders[name])}
    if left:
        times = hours(left, cells)
        for name, each in times.items():
            say(f"{name}: {plural(cells[name], 'cell')}, about {_time(each)}")
        say(f"{plural(len(times), 'run')}, about {_time(sum(times.values()))} of forward passes on this device")
    return left


def _run(runs: dict[str, Settings], out: Path, where: Where) -> dict[str, str]:
    from covshift.bench.run import run

    failed = {}
    for name, settings in runs.items():
        try:
            run(settings, out / name, extend=holds_a_run(where.folder(out / name)), where=where)
        except Stopped:
            raise
        except CovshiftError as error:
            failed[name] = str(error)  # the others may still work, and take hours
    return failed


def _cells_left(folder: Path, settings: Settings, where: Where) -> int:
    """How many cells are still to be run; rows of other data, weights or images are not those of this run."""
    wanted = set(settings.plan.names_of(where.part(settings.plan.conditions)))
    if holds_a_run(folder) and (done := Store(folder).done()):
        check_settings(folder, Store(folder).run.settings, settings, extend=True)
        wanted -= done
    return len(wanted)


def _time(hours: float) -> str:
    return f"{hours:.1f} h" if hours >= 1 else f"{hours * 60:.0f} min"


def run(
    name: str | None,
    places: Places,
    out: Path,
    rows: Sequence[str],
    say: Say,
    *,
    builtin: bool,
    show: bool,
    dry: bool,
    kind: str,
    where: Where = HERE,
) -> bool:
    """The command: list, estimate or run; give whether all went well."""
    if show or name is None:
        sys.stdout.write(listed(builtin, as_json=kind == "json") + "\n")
        return True
    places.check()
    if builtin and places.limit is None:
        places = replace(places, limit=IMAGES)
    text, failed = reproduce(choose(name, rows, builtin=builtin), places, out, say, dry=dry, kind=kind, where=where)
    if text:
        sys.stdout.write(text + "\n")
    return not failed
