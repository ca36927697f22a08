"""The `covshift` command."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from covshift import __version__
from covshift.errors import CovshiftError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Measure, predict and repair covariate shift in image classifiers.",
)


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
    from covshift.corruptions import command

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
    from covshift.models import command

    with _errors():
        command.show(pattern, as_json=as_json)
