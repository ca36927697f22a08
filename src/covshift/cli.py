"""The `covshift` command."""

from typing import Annotated

import typer

from covshift import __version__

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
