"""Summaries of a run folder, or of a folder of runs: its table, its rows, its progress, and a run as a baseline."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from covshift.bench.engines.where import Shard
from covshift.bench.results.blocks import FILE
from covshift.bench.results.merge import shards_in
from covshift.bench.results.metrics import Baseline, baseline_of
from covshift.bench.results.paired import ImageErrors
from covshift.bench.results.store import Row, Store, holds_a_run
from covshift.bench.results.table import format_run_tables, overview, tables
from covshift.bench.suite import open_runs, run_folders
from covshift.support.errors import CovshiftError, plural

_NAMED = 4  # cells of a method that a note names, at most


def table(folder: Path, form: str, baseline: Path | None = None) -> str:
    """Return the table of a run folder or, with a line for each run, of a folder of runs.

    Args:
        folder: the run folder, or a folder of these.
        form: how the table is written, e.g. `text` or `markdown`.
        baseline: the folder of a run to measure mCE against, in AlexNet's place.
    """
    runs, yardstick = open_runs(folder), read_baseline(baseline) if baseline else None
    errors, notes = {}, []
    for name, store in runs.items():
        if problem := store.book.problem(store.rows()):
            notes.append(f"{f'{name}: ' if name else ''}answers are left out: {problem}")
        else:
            errors[name] = ImageErrors(store.book, store.rows())
    if len(runs) > 1:
        made = [overview({name: (store.rows(), store.run) for name, store in runs.items()}, yardstick, errors)]
    else:
        ((name, store),) = runs.items()
        made = tables(store.rows(), store.run, yardstick, errors.get(name))
    first, *others = made
    return format_run_tables([first._replace(notes=(*first.notes, *notes)), *others], form)


def rows(folder: Path) -> str:
    """Return the rows of a run folder, or of all runs in a folder, as JSON lines."""
    return "\n".join(row.model_dump_json() for store in open_runs(folder).values() for row in store.rows())


def answers(
    folder: Path,
    form: str,
    corruptions: Sequence[str] = (),
    severities: Sequence[int] = (),
    methods: Sequence[str] = (),
    notify: Callable[[str], None] = lambda note: None,
) -> str:
    """Return the answers of a run to each image, as `text`, `csv` or `json` lines; see `Store.answers`.

    `notify` is called with a note on cells without answers, where only some have them.
    """
    store = Store(folder)
    rows = store.rows_of(corruptions or None, severities or None, methods or None)
    frame = store.book.frame(rows)
    if frame.empty and store.run.shows_images_again:
        raise CovshiftError(
            f"{folder} keeps no answers, since its sequence shows images more than once; its rows have errors over time"
        )
    if frame.empty:
        raise CovshiftError(
            f"{folder} has no answers there: it was run without them, or its rows were copied without {FILE}; run it "
            "again in another folder"
        )
    if without := [row for row in rows if not store.book.has(row)]:
        notify(_without_answers(without, rows))
    frame["confidence"] = frame["confidence"].round(3)
    if form == "json":
        return frame.to_json(orient="records", lines=True).rstrip()
    return (frame.to_csv(index=False) if form == "csv" else frame.to_string(index=False)).rstrip()


def _without_answers(without: Sequence[Row], rows: Sequence[Row]) -> str:
    """Return a note on the cells whose answers were not kept, method by method."""
    parts = []
    for method in dict.fromkeys(row.method for row in without):
        cells = [f"{row.corruption}/{row.severity}" for row in without if row.method == method]
        if len(cells) == sum(row.method == method for row in rows):
            parts.append(f"{method} (all)")
        else:
            more = f" and {len(cells) - _NAMED} more" if len(cells) > _NAMED else ""
            parts.append(f"{method} ({', '.join(cells[:_NAMED])}{more})")
    return f"{len(without)} of {plural(len(rows), 'cell')} have no answers and are left out: {', '.join(parts)}"


class Progress(NamedTuple):
    """The progress of a run, or of one shard of it.

    Attributes:
        folder: the folder of the run.
        model, data: their names, as in the settings.
        done, cells: number of cells that are done, and of all.
        minutes: the time that the finished cells took, in minutes.
        next: the first cell that is left, None if all are done.
    """

    folder: Path
    model: str
    data: str
    done: int
    cells: int
    minutes: float
    next: str | None

    def __str__(self) -> str:
        lines = [
            f"{self.folder}: {self.model} on {self.data}",
            f"{self.done} of {plural(self.cells, 'cell')} done in {self.minutes:.1f} min of work",
        ]
        return "\n".join([*lines, *([f"next: {self.next}"] if self.next else [])])


def progress(folder: Path) -> list[Progress]:
    """Return the progress of a run, or of each run in a folder, or of each of its shards until they are merged."""
    folders = [] if holds_a_run(folder) else shards_in(folder)
    return [progress_of_run(each) for each in folders or run_folders(folder)]


def progress_of_run(folder: Path) -> Progress:
    """Return the progress of the one run, or the one shard, in this folder."""
    store, shard = Store(folder), Shard.named(folder)
    settings = store.run.settings
    names = settings.plan.names_of(shard.part(settings.plan.conditions) if shard else settings.plan.conditions)
    done = store.done()
    left = [name for name in names if name not in done]
    minutes = sum(row.seconds for row in store.rows()) / 60
    cells = len(names)
    return Progress(folder, settings.model, settings.data, cells - len(left), cells, minutes, next(iter(left), None))


def status(folder: Path) -> str:
    """Return `progress` as text for people."""
    return "\n\n".join(map(str, progress(folder)))


def read_baseline(folder: Path) -> Baseline:
    """Return the run that others are measured against."""
    return baseline_of(Store(folder).rows(), folder.resolve().name)
