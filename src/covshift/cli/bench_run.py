"""`covshift bench run`: an option for every setting of a run, and for where it is computed."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from covshift.cli import options, settings
from covshift.support.errors import CovshiftError

if TYPE_CHECKING:
    from covshift.bench.engines.where import Where


def command(
    context: typer.Context,
    model: settings.Model = None,
    data: settings.Data = None,
    out: settings.Out = None,
    config: settings.Config = None,
    builtin: settings.Builtin = False,
    methods: settings.Methods = None,
    grid: settings.Grid = None,
    prior: settings.Prior = None,
    source: settings.Source = None,
    source_limit: settings.SourceLimit = None,
    plugins: settings.Plugins = None,
    extend: settings.Extend = False,
    answers: settings.Answers = None,
    baseline: settings.Baseline = None,
    corruptions: settings.Corruptions = None,
    severities: settings.Severities = None,
    clean: settings.Clean = None,
    mixed: settings.Mixed = None,
    limit: settings.Limit = None,
    order: settings.Order = None,
    sequence: settings.Sequence = None,
    seed: settings.Seed = None,
    frost: settings.Frost = None,
    jpeg: settings.Jpeg = None,
    skip_broken: settings.SkipBroken = None,
    mean: settings.Mean = None,
    std: settings.Std = None,
    size: settings.Size = None,
    resize: settings.Resize = None,
    interpolation: settings.Interpolation = None,
    batch_size: settings.BatchSize = None,
    device: settings.Device = None,
    memory: settings.Memory = None,
    threads: options.Threads = None,
    engine: options.Engine = "local",
    address: options.Address = None,
    workers: options.Workers = None,
    worker_cpus: options.WorkerCpus = 1,
    worker_gpus: options.WorkerGpus = None,
    shard: options.Shard = None,
) -> None:
    """Measure what a model loses under corruptions, and what adapting gives back.

    Examples:
    covshift bench run --builtin

    covshift bench run --model torchvision:resnet18 --data folder:val --out runs/r18

    covshift bench run --config bench.yaml --out runs --engine ray --address auto
    """
    values = given(context.params)
    if builtin:
        config, out = choose_builtin(values, config, out)
    where = options.place(engine, address, workers, worker_cpus, worker_gpus, shard)
    if text := run(values, config, out, where, extend=extend, baseline=baseline):
        options.write_text(text)


def given(params: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that were given on the command line; the others are left to the YAML file or the defaults."""
    from covshift.bench.settings import Settings

    values = {name: params[name] for name in Settings.model_fields if params[name] not in (None, [], ())}
    for name in ("mean", "std"):
        if name in values:
            values[name] = tuple(options.numbers(values[name], f"--{name}"))
    return values


def choose_builtin(values: dict[str, Any], config: Path | None, out: Path | None) -> tuple[Path, Path]:
    """Return the settings of the built-in benchmark and the folder for its results."""
    from covshift.bench.suite import BUILTIN_SUITE

    for name, value in {"model": values.get("model"), "data": values.get("data"), "config": config}.items():
        if value is not None:
            raise CovshiftError(f"--builtin brings its own networks and images; leave out --{name}, or --builtin")
    limit = values.get("limit")
    return BUILTIN_SUITE, out or Path(f"runs/builtin-{limit}" if limit else "runs/builtin")


def run(
    values: dict[str, Any],
    config: Path | None,
    out: Path | None,
    where: "Where",
    *,
    extend: bool,
    baseline: Path | None,
) -> str:
    """Run the cells that are left, and return the table; with a shard, only its progress."""
    from covshift.bench import summary
    from covshift.bench.engines.together import together
    from covshift.bench.engines.torchrun import is_first
    from covshift.bench.run import from_held, run
    from covshift.bench.suite import code_named_in, read_runs

    missing = [f"--{name}" for name in ("model", "data") if name not in values]
    if missing and not config and not extend:
        raise CovshiftError(f"expected {' and '.join(missing)}, e.g. --model torchvision:resnet18 --data folder:val")
    if config and (modules := code_named_in(config)):
        options.write_error(f"{config} imports Python code and runs it: {', '.join(modules)}")
    runs = read_runs(from_held(out) | values if extend and out and not config else values, config)
    if out is None:
        raise CovshiftError("expected a folder for the results, e.g. --out runs/r18")
    if baseline is not None:
        summary.read_baseline(baseline)  # better now than after hours
    with together(where, out):
        for name, each in runs.items():
            run(each, out / name, extend=extend, where=where)
        if not is_first():
            return ""  # one of the ranks shows the table
    if where.shard:
        return "\n\n".join(str(summary.progress_of_run(where.folder(out / name))) for name in runs)
    return summary.table(out, "text", baseline)
