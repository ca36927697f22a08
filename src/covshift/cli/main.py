"""The `covshift` command."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from covshift import __version__
from covshift.support.errors import CovshiftError, Stopped

# Where a run is computed, the same for all commands that run the benchmark.
Engine = Annotated[str, typer.Option(help="What computes: local, this process, or ray.")]
Address = Annotated[str | None, typer.Option(help="Of a Ray cluster, e.g. auto.", show_default="Ray is started here")]
Workers = Annotated[int | None, typer.Option(help="Of Ray.", show_default="as many as there is room for")]
WorkerCpus = Annotated[float, typer.Option(help="That each Ray worker takes.")]
WorkerGpus = Annotated[float | None, typer.Option(help="Likewise, e.g. 0.5.", show_default="1 if there are any")]
ShardOf = Annotated[
    str | None, typer.Option(metavar="I/K", help="Only every K-th condition, from the I-th on, for array jobs.")
]

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Measure, predict and repair covariate shift in image classifiers.",
)


FOUND = 3
"""The exit code of a command that worked and found what a script has to know of; 2 is a mistyped command's."""


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"covshift {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show it.")] = False,
) -> None:
    """Measure, predict and repair covariate shift in image classifiers."""


@contextmanager
def _errors() -> Iterator[None]:
    """Show an error that the user can mend as one line, not as a traceback."""
    try:
        yield
    except Stopped as stopped:
        typer.echo(str(stopped), err=True)
        raise typer.Exit(130) from None
    except CovshiftError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from None


@app.command()
def corrupt(
    source: Annotated[Path, typer.Argument(help="A folder of class folders with pictures, or one picture.")],
    target: Annotated[Path | None, typer.Argument(help="The folder, or the picture, to write.")] = None,
    corruption: Annotated[list[str] | None, typer.Option(help="Which one; may be repeated.")] = None,
    severity: Annotated[list[int] | None, typer.Option(help="1 to 5; may be repeated.", show_default="all")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All 19 corruptions: the whole ImageNet-C tree.")] = False,
    sheet: Annotated[Path | None, typer.Option(help="Draw the contact sheet of one picture here instead.")] = None,
    crop: Annotated[bool, typer.Option(help="Resize to 256 px and cut out 224 x 224 px first.")] = True,
    quality: Annotated[int, typer.Option(help="JPEG quality, 4:2:0, optimised; 85 as published.")] = 85,
    png: Annotated[bool, typer.Option("--png", help="Write lossless PNG files instead.")] = False,
    seed: Annotated[int, typer.Option(help="Another seed draws other noise.")] = 0,
    frost: Annotated[str, typer.Option(help="Ice: procedural, published, or a folder of textures.")] = "procedural",
    shard: Annotated[str, typer.Option(metavar="I/N", help="Take every N-th picture, from the I-th on.")] = "0/1",
    skip_broken: Annotated[bool, typer.Option("--skip-broken", help="Go on without unreadable pictures.")] = False,
    threads: Annotated[int | None, typer.Option(min=1, help="Pictures at a time.", show_default="one a core")] = None,
) -> None:
    """Corrupt pictures as ImageNet-C does; a run that was killed goes on where it was.

    covshift corrupt val/ imagenet-c/ --all

    covshift corrupt cat.jpg foggy.png --corruption fog --severity 3

    covshift corrupt cat.jpg --sheet sheet.png
    """
    from covshift.cli import corrupt as command

    with _errors():
        if sheet is not None:
            command.draw_sheet(source, sheet, crop=crop, seed=seed, frost=frost)
            return
        if target is None:
            raise CovshiftError("expected a source and a target, e.g. covshift corrupt val/ imagenet-c/ --all")
        cells = command.choose(corruption or [], severity or [], everything=everything)
        recipe = cells._replace(crop=crop, quality=None if png else quality, seed=seed, frost=frost)
        typer.echo(command.run(source, target, recipe, command.parse_shard(shard), skip_broken, threads))


@app.command()
def models(
    pattern: Annotated[str | None, typer.Argument(help="Part of a name, or a pattern such as 'timm:resnet*'.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="A list of objects, for programs.")] = False,
) -> None:
    """List the models that can be opened, with their parameters and those of their normalisation layers.

    covshift models

    covshift models 'resnet*' --json

    covshift models 'timm:convnext*'
    """
    from covshift.models import listing as command

    with _errors():
        command.show(pattern, as_json=as_json)


@app.command()
def data(
    what: Annotated[
        list[str] | None, typer.Argument(metavar="[check DATA]", help="Nothing for the list; or which to check.")
    ] = None,
    decode: Annotated[bool, typer.Option("--decode", help="Decode every picture: thorough and slow.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """List the paper's data sets, with size, licence and how to get them; or check one that you have.

    covshift data

    covshift data check imagenet-c:DIR
    """
    from covshift.cli import data as command

    with _errors():
        if not command.run(what or [], as_json=as_json, decode=decode):
            raise typer.Exit(FOUND)


@app.command()
def bench(
    folders: Annotated[
        list[Path] | None, typer.Argument(metavar="[RUN]...", help="With --merge: what to merge.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="Which model, e.g. torchvision:resnet18.")] = None,
    data: Annotated[str | None, typer.Option(help="Which images, e.g. folder:val or imagenet-c:DIR.")] = None,
    out: Annotated[Path | None, typer.Option(help="The run folder; the same command again goes on there.")] = None,
    config: Annotated[
        Path | None, typer.Option(help="A YAML file with any of these settings, or with those of several runs.")
    ] = None,
    builtin: Annotated[bool, typer.Option("--builtin", help="The built-in networks on CIFAR-10.")] = False,
    corruptions: Annotated[
        list[str] | None, typer.Option(help="Names, or test, holdout, all, none.", show_default="all 19")
    ] = None,
    severities: Annotated[list[str] | None, typer.Option(help="Such as 1,3,5.", show_default="1,2,3,4,5")] = None,
    methods: Annotated[
        list[str] | None,
        typer.Option(
            help="none, partial, full, reverse, batch:n=8,N=16, stream:n=1,N=16.", show_default="none,partial,full"
        ),
    ] = None,
    grid: Annotated[bool | None, typer.Option("--grid", help="Also n = 1…512 by N = 1…256.")] = None,
    prior: Annotated[
        str | None,
        typer.Option(
            help="N of partial; auto lets each layer choose.", show_default="the best on the holdout corruptions"
        ),
    ] = None,
    plugins: Annotated[
        list[str] | None, typer.Option(help="Python modules that register your own corruptions and methods.")
    ] = None,
    clean: Annotated[bool | None, typer.Option("--clean/--no-clean", help="Also the clean images.")] = None,
    mixed: Annotated[bool | None, typer.Option("--mixed", help="Also all corruptions in one, the control.")] = None,
    limit: Annotated[int | None, typer.Option(help="A random subset of so many images, balanced.")] = None,
    order: Annotated[str | None, typer.Option(help="shuffled, label or source.", show_default="shuffled")] = None,
    seed: Annotated[int | None, typer.Option(help="Of subset, order and corruptions.", show_default="0")] = None,
    mean: Annotated[str | None, typer.Option(help="Such as 0.485,0.456,0.406, in place of the model's.")] = None,
    std: Annotated[str | None, typer.Option(help="Likewise.")] = None,
    size: Annotated[int | None, typer.Option(help="Side of the crop, in place of the model's.")] = None,
    resize: Annotated[int | None, typer.Option(help="Shorter side before the crop, likewise.")] = None,
    interpolation: Annotated[str | None, typer.Option(help="bilinear, bicubic …, likewise.")] = None,
    frost: Annotated[str | None, typer.Option(help="Ice: procedural, published, or a folder of textures.")] = None,
    jpeg: Annotated[int | None, typer.Option(help="Save corrupted images as JPEG first; 85 as published.")] = None,
    skip_broken: Annotated[bool | None, typer.Option("--skip-broken", help="Go on without unreadable ones.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Images that the model gets at once.")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda or mps.", show_default="auto")] = None,
    memory: Annotated[str | None, typer.Option(help="For images and waiting batches, such as '4 GiB'.")] = None,
    threads: Annotated[int | None, typer.Option(help="That torch may use.")] = None,
    extend: Annotated[bool, typer.Option("--extend", help="Add conditions and methods to the run in --out.")] = False,
    baseline: Annotated[Path | None, typer.Option(help="A run to measure mCE against, in AlexNet's place.")] = None,
    engine: Engine = "local",
    address: Address = None,
    workers: Workers = None,
    worker_cpus: WorkerCpus = 1,
    worker_gpus: WorkerGpus = None,
    shard: ShardOf = None,
    merge: Annotated[
        bool, typer.Option("--merge", help="Put shards together, or with --out any parts of a run.")
    ] = False,
    status: Annotated[Path | None, typer.Option(metavar="RUN", help="Say how far a run is.")] = None,
    table: Annotated[Path | None, typer.Option(metavar="RUN", help="Print the table of a run.")] = None,
    rows: Annotated[Path | None, typer.Option(metavar="RUN", help="Print the rows of a run as JSON lines.")] = None,
    csv: Annotated[bool, typer.Option("--csv", help="The table as CSV.")] = False,
    json: Annotated[bool, typer.Option("--json", help="The table as JSON.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="The table as Markdown.")] = False,
) -> None:
    """What a model loses under corruptions, and what adapting gives back: none, partial and full.

    covshift bench --model torchvision:resnet18 --data folder:val --out runs/r18

    covshift bench --table runs/r18 --markdown

    covshift bench --builtin --limit 10000

    covshift bench --config bench.yaml --out runs --engine ray --address auto
    """
    from covshift.cli import bench as command

    with _errors():
        command.only_one([status, table, rows])
        if merge:
            typer.echo(command.merge(folders or [], out))
            return
        if folders:
            raise CovshiftError(f"expected an option, got {folders[0]}; run folders are named with --merge only")
        if status is not None:
            typer.echo(command.status(status))
        elif rows is not None:
            typer.echo(command.rows(rows))
        elif table is not None:
            typer.echo(command.table(table, command.kind(csv=csv, json=json, markdown=markdown), baseline))
        else:
            values = command.given(
                model=model,
                data=data,
                corruptions=corruptions,
                severities=severities,
                methods=methods,
                grid=grid,
                clean=clean,
                mixed=mixed,
                prior=prior,
                plugins=plugins,
                limit=limit,
                order=order,
                seed=seed,
                mean=command.numbers(mean, "mean"),
                std=command.numbers(std, "std"),
                size=size,
                resize=resize,
                interpolation=interpolation,
                frost=frost,
                jpeg=jpeg,
                skip_broken=skip_broken,
                batch_size=batch_size,
                device=device,
                memory=memory,
                threads=threads,
            )
            if builtin:
                config, out = command.builtin(values, config, out)
            where = command.where(engine, address, workers, worker_cpus, worker_gpus, shard)
            if found := command.bench(values, config, out, where, extend=extend, baseline=baseline):
                typer.echo(found)


@app.command()
def reproduce(
    what: Annotated[
        str | None, typer.Argument(metavar="TABLE|FIGURE|all", help="E.g. table1; without one, the list.")
    ] = None,
    imagenet: Annotated[Path | None, typer.Option(help="ImageNet's validation images.")] = None,
    imagenet_c: Annotated[
        Path | None, typer.Option(help="ImageNet-C.", show_default="made on the fly of --imagenet")
    ] = None,
    imagenet_a: Annotated[Path | None, typer.Option(help="ImageNet-A.")] = None,
    imagenet_r: Annotated[Path | None, typer.Option(help="ImageNet-R.")] = None,
    imagenet_v2: Annotated[Path | None, typer.Option(help="The folder with the three variants of ImageNet-V2.")] = None,
    objectnet: Annotated[Path | None, typer.Option(help="ObjectNet.")] = None,
    weights: Annotated[list[str] | None, typer.Option(metavar="NAME=FILE", help="Of a model; may be repeated.")] = None,
    row: Annotated[list[str] | None, typer.Option(help="Only rows with this in their label; may be repeated.")] = None,
    builtin: Annotated[bool, typer.Option("--builtin", help="In miniature, on the built-in networks.")] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="A subset of so many images, balanced.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    out: Annotated[Path, typer.Option(help="For the runs; the same command goes on there.")] = Path("runs/reproduce"),
    engine: Engine = "local",
    address: Address = None,
    workers: Workers = None,
    worker_cpus: WorkerCpus = 1,
    worker_gpus: WorkerGpus = None,
    shard: ShardOf = None,
    show: Annotated[bool, typer.Option("--list", help="List what can be reproduced.")] = False,
    dry: Annotated[bool, typer.Option("--dry-run", help="Only say what would run, and how long.")] = False,
    json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="For a page.")] = False,
) -> None:
    """Run a table or figure of the paper again, and print ours beside its numbers.

    covshift reproduce --list

    covshift reproduce table1 --imagenet-c DIR --row AugMix

    covshift reproduce all --builtin

    covshift reproduce table1 --imagenet-c DIR --engine ray --address auto
    """
    from covshift.cli.bench import where
    from covshift.reproduce import Locations, choose_targets, list_targets, parse_weights
    from covshift.reproduce import reproduce as rerun
    from covshift.reproduce.miniature import IMAGES

    if show or what is None:
        typer.echo(list_targets(builtin, as_json=json))
        return

    with _errors():
        named = {
            "imagenet": imagenet,
            "imagenet-c": imagenet_c,
            "imagenet-a": imagenet_a,
            "imagenet-r": imagenet_r,
            "imagenet-v2": imagenet_v2,
            "objectnet": objectnet,
        }
        folders = {name: folder for name, folder in named.items() if folder is not None}
        default = IMAGES if builtin else None
        locations = Locations(folders, parse_weights(weights or []), default if limit is None else limit, device)
        locations.check()
        kind = "json" if json else "markdown" if markdown else "text"
        place = where(engine, address, workers, worker_cpus, worker_gpus, shard)
        targets = choose_targets(what, row or [], builtin=builtin)
        outcome = rerun(targets, locations, out, partial(typer.echo, err=True), dry=dry, form=kind, where=place)
        if outcome.text:
            typer.echo(outcome.text)
        if outcome.failed:
            raise typer.Exit(1)


@app.command()
def train(
    name: Annotated[str, typer.Argument(help="A recipe, e.g. resnet20 or resnet20-augmix.")],
    folder: Annotated[
        Path | None, typer.Option(help="For checkpoint, weights and card.", show_default="runs/NAME")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="A folder with CIFAR-10 or ImageNet.", show_default="CIFAR-10, fetched once")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Another seed gives another network.")] = 0,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Passes over the data.", show_default="the recipe's")
    ] = None,
    rate: Annotated[float | None, typer.Option(help="Highest learning rate.", show_default="the recipe's")] = None,
    device: Annotated[str, typer.Option(help="Where to compute, e.g. cuda.")] = "cpu",
    threads: Annotated[int | None, typer.Option(min=1, help="For torch.", show_default="one a core")] = None,
) -> None:
    """Train a network by a recipe; a run that was stopped or killed goes on where it was.

    covshift train resnet20

    covshift train resnet20-augmix --seed 1 --folder runs/augmix-1

    covshift train resnet50-fixup --data imagenet/ --device cuda
    """
    from covshift.cli import train as command

    def say(line: str) -> None:
        typer.echo(line, err=True)

    with _errors():
        recipe = command.choose(name, epochs, rate)
        typer.echo(
            command.run(
                recipe, folder or Path("runs") / name, data=data, seed=seed, device=device, threads=threads, say=say
            )
        )


@app.command()
def theory(
    n: Annotated[float, typer.Option("--n", "-n", help="Images in a batch.")] = 8,
    shift: Annotated[float, typer.Option(help="(μt - μs)/σs: how far the mean has moved.")] = 1.0,
    ratio: Annotated[float, typer.Option(help="σt/σs: how much wider the target is.")] = 1.0,
    prior: Annotated[list[float] | None, typer.Option(help="N; may be repeated.", show_default="0 to 256")] = None,
    alpha: Annotated[float, typer.Option(help="1 - the confidence level of the upper bound.")] = 0.05,
    grid: Annotated[bool, typer.Option("--grid", help="The best N over many shifts and batch sizes instead.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Bound the expected distance to the target, E[W²], when n images are mixed with a prior of N (Proposition 1).

    covshift theory -n 8 --shift 1 --ratio 1.5

    covshift theory --grid
    """
    from covshift.cli import theory as command

    with _errors():
        if grid:
            typer.echo(command.grid(alpha, as_json=as_json))
            return
        if not ratio >= 0:
            raise CovshiftError(f"expected --ratio from 0, got {ratio:g}")
        typer.echo(command.theory(n, shift, ratio, prior or [], alpha, as_json=as_json))


@app.command()
def doctor(
    what: Annotated[list[str], typer.Argument(metavar="RUN | MODEL DATA", help="A run folder, or a model and data.")],
    limit: Annotated[
        int | None, typer.Option(min=1, help="How many images to look at.", show_default="512, or 128 above 64 px")
    ] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda or mps.", show_default="auto")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Find mistakes that spoil a benchmark: wrong normalisation, labels, channels, sizes; exit code 3 if there are any.

    covshift doctor torchvision:resnet18 folder:val

    covshift doctor runs/r18
    """
    from covshift.cli import doctor as command

    with _errors():
        report = command.look(what, limit, device)
        typer.echo(command.as_json(report) if as_json else command.as_text(report))
        raise typer.Exit(FOUND if report.problems else 0)


@app.command()
def shift(
    model: Annotated[str, typer.Option(help="A model's URI, e.g. torchvision:resnet50.")],
    target: Annotated[str, typer.Option(help="Images that have moved, e.g. folder:night; they need no labels.")],
    source: Annotated[str | None, typer.Option(help="Clean labelled images to learn from, e.g. folder:val.")] = None,
    condition: Annotated[str, typer.Option(help="Corrupt the target first, e.g. fog/3.")] = "clean/0",
    images: Annotated[int, typer.Option(min=2, help="How many images to take of each, spread evenly.")] = 1000,
    predictor: Annotated[Path | None, typer.Option(help="Keep what was learned here, and use it next time.")] = None,
    alarm: Annotated[
        float | None, typer.Option(min=0, max=1, help="Exit with 3 if the predicted error is above, e.g. 0.4.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Tell how far images have moved, what that costs, and what adapting would buy, without their labels.

    covshift shift --model torchvision:resnet50 --target folder:night

    covshift shift --model torchvision:resnet50 --source folder:val --target folder:night --alarm 0.4
    """
    from covshift.shift.forecast import verdict as telling

    with _errors():
        if alarm is not None and source is None and predictor is None:
            raise CovshiftError("expected --source or --predictor with --alarm: there is no predicted error without")
        told = telling.tell(model, target, source, condition, images, predictor, device)
        typer.echo(told.as_json() if as_json else told.as_text())
        if told.above(alarm):
            raise typer.Exit(FOUND)


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders, or folders of run folders.")],
    out: Annotated[Path, typer.Option(help="The folder to write to.")] = Path("report"),
    baseline: Annotated[Path | None, typer.Option(help="A run to measure mCE against, in AlexNet's place.")] = None,
    compare: Annotated[bool, typer.Option("--compare", help="Two runs side by side.")] = False,
    measure: Annotated[
        int | None, typer.Option(min=2, help="First measure the distances of conditions, on so many images.")
    ] = None,
    readme: Annotated[Path | None, typer.Option(help="Also write summary and tables to this Markdown file.")] = None,
    images: Annotated[bool, typer.Option(help="Show images of the conditions.")] = True,
    files: Annotated[bool, typer.Option(help="Write SVG, PDF, PNG, CSV, Markdown and LaTeX files, too.")] = True,
) -> None:
    """Write a page with tables and charts of runs, which opens offline, and files for a paper.

    covshift report runs/r18 --out report

    covshift report --compare runs/r18 runs/r50

    covshift report results/ --readme results/README.md

    covshift report runs/r18 --measure 1000
    """
    from covshift.report import build as command

    with _errors():
        page = command.report(
            runs,
            out,
            baseline=baseline,
            compare=compare,
            measure_images=measure,
            readme=readme,
            images=images,
            files=files,
            notify=lambda note: typer.echo(f"note: {note}", err=True),
        )
        typer.echo(page)
