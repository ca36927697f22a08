"""What `covshift bench` does with its arguments."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from covshift.bench.engines.where import Shard, Where
from covshift.bench.results.merge import shards_in
from covshift.bench.results.metrics import Baseline, baseline_of
from covshift.bench.results.store import Store, holds_a_run
from covshift.bench.results.table import overview, tables, write
from covshift.bench.suite import BUILTIN, open_runs, read_runs, run_folders
from covshift.support.errors import CovshiftError, Stopped, plural


def given(**values: Any) -> dict[str, Any]:
    """The settings that were given on the command line; the others are left to the YAML file or the defaults."""
    return {name: value for name, value in values.items() if value is not None and value != []}


def numbers(text: str | None, name: str) -> tuple[float, ...] | None:
    """Three numbers, as in `--mean 0.485,0.456,0.406`."""
    if text is None:
        return None
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise CovshiftError(f"expected --{name} as three numbers such as 0.5,0.5,0.5, got {text!r}") from None


def builtin(values: dict[str, Any], config: Path | None, out: Path | None) -> tuple[Path, Path]:
    """The settings of the built-in benchmark and the folder for its results."""
    for name, value in {"model": values.get("model"), "data": values.get("data"), "config": config}.items():
        if value is not None:
            raise CovshiftError(f"--builtin brings its own networks and images; leave out --{name}, or --builtin")
    limit = values.get("limit")
    return BUILTIN, out or Path(f"runs/builtin-{limit}" if limit else "runs/builtin")


def where(
    engine: str, address: str | None, workers: int | None, cpus: float, gpus: float | None, shard: str | None
) -> Where:
    """Where to compute, from the command line."""
    return Where(engine, address, workers, cpus, gpus, Shard.parse(shard) if shard else None)  # type: ignore[arg-type]


def bench(
    values: dict[str, Any],
    config: Path | None,
    out: Path | None,
    where: Where,
    *,
    extend: bool,
    baseline: Path | None,
) -> str:
    """Run what is left to run, and give the table; with a shard, only say how far it is."""
    from covshift.bench.engines.torchrun import is_first
    from covshift.bench.run import from_held, run

    runs = read_runs(from_held(out) | values if extend and out and not config else values, config)
    if out is None:
        raise CovshiftError("expected a folder for the results, e.g. --out runs/r18")
    if baseline is not None:
        read_baseline(baseline)  # better now than after hours
    with together(where, out):
        for name, settings in runs.items():
            run(settings, out / name, extend=extend, where=where)
        if not is_first():
            return ""  # one of the ranks shows the table
    if where.shard:
        return "\n\n".join(_status(where.folder(out / name)) for name in runs)
    return table(out, "text", baseline)


@contextmanager
def together(where: Where, out: Path) -> Iterator[None]:
    """A block of runs in `out`, which share the ranks of torchrun or one connection to Ray."""
    from covshift.bench.engines.torchrun import joined
    from covshift.support.allocator import keep_freed_memory

    keep_freed_memory()
    try:
        with ExitStack() as stack:
            stack.enter_context(joined())
            if where.engine == "ray":
                from covshift.bench.engines.ray import cluster

                stack.enter_context(cluster(where))
            yield
    except KeyboardInterrupt:
        raise Stopped(f"stopped; what is done is in {out}, and the same command goes on from there") from None


def merge(folders: Sequence[Path], out: Path | None) -> str:
    """Put the parts of runs together, and say how far each run is then."""
    from covshift.bench.results.merge import merge

    return "\n\n".join(map(status, merge(folders, out)))


def table(folder: Path, form: str, baseline: Path | None = None) -> str:
    """The table of a run folder, or of a folder of runs: a line for each."""
    runs, yardstick = open_runs(folder), read_baseline(baseline) if baseline else None
    if len(runs) > 1:
        return write([overview({name: (store.rows(), store.run) for name, store in runs.items()}, yardstick)], form)
    (store,) = runs.values()
    return write(tables(store.rows(), store.run, yardstick), form)


def rows(folder: Path) -> str:
    """The rows of a run folder, or of all in a folder, as JSON lines."""
    return "\n".join(row.model_dump_json() for store in open_runs(folder).values() for row in store.rows())


def status(folder: Path) -> str:
    """How far a run is, or each in a folder, or each of its shards as long as they are not merged."""
    folders = [] if holds_a_run(folder) else shards_in(folder)
    return "\n\n".join(map(_status, folders or run_folders(folder)))


def _status(folder: Path) -> str:
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


def only_one(folders: Sequence[Path | None]) -> None:
    """Raise a `CovshiftError` where several things were asked for at once."""
    if sum(folder is not None for folder in folders) > 1:
        raise CovshiftError("expected one of --status, --table and --rows at a time")


def kind(**wanted: bool) -> str:
    """The one kind of table that was asked for; else text."""
    names = [name for name, is_wanted in wanted.items() if is_wanted]
    if len(names) > 1:
        raise CovshiftError(f"expected one kind of table, got {' and '.join(f'--{name}' for name in names)}")
    return names[0] if names else "text"


def read_baseline(folder: Path) -> Baseline:
    """The run that others are measured against."""
    return baseline_of(Store(folder).rows(), folder.resolve().name)
