"""`covshift reproduce`: the paper's tables and figures again, beside its numbers."""

from pathlib import Path
from typing import Annotated

import typer

from covshift.cli import options

_DATA = "Data and weights"
_Folder = Path | None


def command(
    what: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Table or figure, e.g. table1, or all.", show_default="list")
    ] = None,
    row: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXTS", help="Part of the labels of the rows to run.", show_default="all rows"),
    ] = None,
    builtin: Annotated[bool, typer.Option("--builtin", help="Run in miniature, on the built-in networks.")] = False,
    limit: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="NUMBER",
            help="Number of images: a random subset, balanced over the classes.",
            show_default="all; 512 with --builtin",
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the runs; the same command resumes there.")] = Path(
        "runs/reproduce"
    ),
    show: Annotated[bool, typer.Option("--list", help="List what can be reproduced.")] = False,
    dry: Annotated[bool, typer.Option("--dry-run", help="Only print what would run, and how long it takes.")] = False,
    csv: options.Csv = False,
    json: options.Json = False,
    markdown: options.Markdown = False,
    latex: options.Latex = False,
    imagenet: Annotated[
        _Folder, typer.Option(metavar="DIR", help="Folder of ImageNet's validation images.", rich_help_panel=_DATA)
    ] = None,
    imagenet_c: Annotated[
        _Folder,
        typer.Option(
            metavar="DIR",
            help="Folder of ImageNet-C.",
            show_default="made on the fly from --imagenet",
            rich_help_panel=_DATA,
        ),
    ] = None,
    imagenet_a: Annotated[
        _Folder, typer.Option(metavar="DIR", help="Folder of ImageNet-A.", rich_help_panel=_DATA)
    ] = None,
    imagenet_r: Annotated[
        _Folder, typer.Option(metavar="DIR", help="Folder of ImageNet-R.", rich_help_panel=_DATA)
    ] = None,
    imagenet_v2: Annotated[
        _Folder,
        typer.Option(metavar="DIR", help="Folder with the three variants of ImageNet-V2.", rich_help_panel=_DATA),
    ] = None,
    objectnet: Annotated[
        _Folder, typer.Option(metavar="DIR", help="Folder of ObjectNet.", rich_help_panel=_DATA)
    ] = None,
    weights: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=FILE",
            help="File with the weights of a model.",
            show_default="as published, fetched once",
            rich_help_panel=_DATA,
        ),
    ] = None,
    device: options.Device = "auto",
    engine: options.Engine = "local",
    address: options.Address = None,
    workers: options.Workers = None,
    worker_cpus: options.WorkerCpus = 1,
    worker_gpus: options.WorkerGpus = None,
    shard: options.Shard = None,
) -> None:
    """Run a table or figure of the paper again, and print ours beside its numbers.

    Examples:
    covshift reproduce --list

    covshift reproduce all --builtin

    covshift reproduce table1 --imagenet-c DIR --row AugMix

    covshift reproduce table1 --imagenet-c DIR --engine ray --address auto
    """
    from covshift.reproduce import Locations, choose, listed, parse_weights, reproduce
    from covshift.reproduce.miniature import IMAGES

    form = options.choose_form(csv=csv, json=json, markdown=markdown, latex=latex)
    if show or what is None:
        typer.echo(listed(builtin, as_json=json))
        return
    named = {
        "imagenet": imagenet,
        "imagenet-c": imagenet_c,
        "imagenet-a": imagenet_a,
        "imagenet-r": imagenet_r,
        "imagenet-v2": imagenet_v2,
        "objectnet": objectnet,
    }
    folders = {name: folder for name, folder in named.items() if folder is not None}
    images = IMAGES if builtin and limit is None else limit
    locations = Locations(folders, parse_weights(options.split_pairs(weights)), images, device)
    locations.check()
    where = options.place(engine, address, workers, worker_cpus, worker_gpus, shard)
    targets = choose(what, options.split(row), builtin=builtin)
    text, failed = reproduce(targets, locations, out, options.write_error, dry=dry, form=form, where=where)
    if text:
        typer.echo(text)
    if failed:
        raise typer.Exit(1)
