"""`covshift reproduce`: the paper's tables and figures again, beside its numbers."""

from pathlib import Path
from typing import Annotated, Any

import typer

from covshift.cli import options

_SETS = ("imagenet", "imagenet-c", "imagenet-a", "imagenet-r", "imagenet-v2", "objectnet")


def _folder(text: str, default: str | bool = True) -> Any:
    return typer.Option(metavar="DIR", help=text, show_default=default, rich_help_panel="Data and weights")


_What = Annotated[
    str | None, typer.Argument(metavar="NAME", help="Table or figure, e.g. table1, or all.", show_default="list")
]
_Row = Annotated[
    list[str] | None,
    typer.Option(metavar="TEXTS", help="Part of the labels of the rows to run.", show_default="all rows"),
]
_Builtin = Annotated[bool, typer.Option("--builtin", help="Run in miniature, on the built-in networks.")]
_Limit = Annotated[int | None, options.like(options.LIMIT, show_default="all; 512 with --builtin")]
_Out = Annotated[Path, typer.Option(help="Folder for the runs; the same command resumes there.")]
_List = Annotated[bool, typer.Option("--list", help="List what can be reproduced.")]
_Dry = Annotated[bool, typer.Option("--dry-run", help="Only print what would run, and how long it takes.")]
_Imagenet = Annotated[Path | None, _folder("Folder of ImageNet's validation images.")]
_ImagenetC = Annotated[Path | None, _folder("Folder of ImageNet-C.", "made on the fly from --imagenet")]
_ImagenetA = Annotated[Path | None, _folder("Folder of ImageNet-A.")]
_ImagenetR = Annotated[Path | None, _folder("Folder of ImageNet-R.")]
_ImagenetV2 = Annotated[Path | None, _folder("Folder with the three variants of ImageNet-V2.")]
_Objectnet = Annotated[Path | None, _folder("Folder of ObjectNet.")]
_Weights = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=FILE",
        help="File with the weights of a model.",
        show_default="as published, fetched once",
        rich_help_panel="Data and weights",
    ),
]


def command(
    context: typer.Context,
    what: _What = None,
    row: _Row = None,
    builtin: _Builtin = False,
    limit: _Limit = None,
    out: _Out = Path("runs/reproduce"),
    show: _List = False,
    dry: _Dry = False,
    csv: options.Csv = False,
    json: options.Json = False,
    markdown: options.Markdown = False,
    latex: options.Latex = False,
    imagenet: _Imagenet = None,
    imagenet_c: _ImagenetC = None,
    imagenet_a: _ImagenetA = None,
    imagenet_r: _ImagenetR = None,
    imagenet_v2: _ImagenetV2 = None,
    objectnet: _Objectnet = None,
    weights: _Weights = None,
    device: options.Device = "auto",
    engine: options.Engine = "local",
    address: options.Address = None,
    workers: options.Workers = None,
    worker_cpus: options.WorkerCpus = 1,
    worker_gpus: options.WorkerGpus = None,
    shard: options.Shard = None,
) -> None:
    """Run a table or figure of the paper again, and print our numbers beside its own.

    Examples:
    covshift reproduce --list

    covshift reproduce all --builtin

    covshift reproduce table1 --imagenet-c DIR --row AugMix

    covshift reproduce table1 --imagenet-c DIR --engine ray --address auto
    """
    from covshift.reproduce import list_targets

    form = options.choose_form(csv=csv, json=json, markdown=markdown, latex=latex)
    if show or what is None:
        typer.echo(list_targets(builtin, as_json=json))
    else:
        _run(what, context.params, form)


def _run(what: str, params: dict[str, Any], form: str) -> None:
    from covshift.reproduce import Locations, choose_targets, parse_weights, reproduce
    from covshift.reproduce.miniature import IMAGES

    folders = {name: Path(folder) for name in _SETS if (folder := params[name.replace("-", "_")]) is not None}
    images = IMAGES if params["builtin"] and params["limit"] is None else params["limit"]
    locations = Locations(folders, parse_weights(options.split_pairs(params["weights"])), images, params["device"])
    locations.check()
    names = ("engine", "address", "workers", "worker_cpus", "worker_gpus", "shard")
    where = options.place(*(params[name] for name in names))
    targets = choose_targets(what, options.split(params["row"]), builtin=params["builtin"])
    out, dry = Path(params["out"]), params["dry"]
    text, failed = reproduce(targets, locations, out, options.write_error, dry=dry, form=form, where=where)
    if text:
        typer.echo(text)
    if failed:
        raise typer.Exit(1)
