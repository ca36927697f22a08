"""What `covshift bench` does with its arguments."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from covshift.bench.engines.together import together
from covshift.bench.engines.where import Shard, Where
from covshift.bench.suite import BUILTIN, read_runs
from covshift.bench.summary import read_baseline, status_of_run
from covshift.bench.summary import rows as rows
from covshift.bench.summary import status as status
from covshift.bench.summary import table as table
from covshift.support.errors import CovshiftError


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
        return "\n\n".join(status_of_run(where.folder(out / name)) for name in runs)
    return table(out, "text", baseline)


def merge(folders: Sequence[Path], out: Path | None) -> str:
    """Put the parts of runs together, and say how far each run is then."""
    from covshift.bench.results.merge import merge

    return "\n\n".join(map(status, merge(folders, out)))


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
