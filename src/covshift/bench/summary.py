"""What a run folder, or a folder of runs, holds: its table, its rows, how far it is, and a run as a baseline."""

from pathlib import Path

from covshift.bench.engines.where import Shard
from covshift.bench.results.merge import shards_in
from covshift.bench.results.metrics import Baseline, baseline_of
from covshift.bench.results.store import Store, holds_a_run
from covshift.bench.results.table import overview, tables, write
from covshift.bench.suite import open_runs, run_folders
from covshift.support.errors import plural


def table(folder: Path, form: str, baseline: Path | None = None) -> str:
    """Return the table of a run folder or, with a line for each run, of a folder of runs.

    Args:
        folder: the run folder, or a folder of these.
        form: how the table is written, e.g. `text` or `markdown`.
        baseline: the folder of a run to measure mCE against, in AlexNet's place.
    """
    runs, yardstick = open_runs(folder), read_baseline(baseline) if baseline else None
    if len(runs) > 1:
        return write([overview({name: (store.rows(), store.run) for name, store in runs.items()}, yardstick)], form)
    (store,) = runs.values()
    return write(tables(store.rows(), store.run, yardstick), form)


def rows(folder: Path) -> str:
    """Return the rows of a run folder, or of all runs in a folder, as JSON lines."""
    return "\n".join(row.model_dump_json() for store in open_runs(folder).values() for row in store.rows())


def status(folder: Path) -> str:
    """Return how far a run is, or each run in a folder, or each of its shards as long as they are not merged."""
    folders = [] if holds_a_run(folder) else shards_in(folder)
    return "\n\n".join(map(status_of_run, folders or run_folders(folder)))


def status_of_run(folder: Path) -> str:
    """Return how far the one run in this folder is, or the one shard."""
    store, shard = Store(folder), Shard.named(folder)
    plan = store.run.settings.plan
    names = plan.names_of(shard.part(plan.conditions) if shard else plan.conditions)
    done = store.done()
    left = [name for name in names if name not in done]
    seconds = sum(row.seconds for row in store.rows())
    lines = [
        f"{folder}: {store.run.settings.model} on {store.run.settings.data}",
        f"{len(names) - len(left)} of {plural(len(names), 'cell')} done in {seconds / 60:.1f} min of work",
    ]
    return "\n".join([*lines, *([f"next: {left[0]}"] if left else [])])


def read_baseline(folder: Path) -> Baseline:
    """Return the run that others are measured against."""
    return baseline_of(Store(folder).rows(), folder.resolve().name)
