"""The `covshift` command: one thin module for each subcommand, which parses, calls the library and prints."""

import warnings
from typing import Annotated, Any

import typer

from covshift.cli import (
    bench,
    corrupt,
    data,
    doctor,
    export,
    models,
    repair,
    report,
    reproduce,
    serve,
    shift,
    theory,
    train,
)
from covshift.cli.parser import Command, Group

__all__ = ["app"]


class _Covshift(Group):
    """The `covshift` command, which groups all others."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the commands in the order of a newcomer's journey."""
        first = ("models", "data", "corrupt", "bench", "report", "shift", "doctor", "repair", "export", "serve")
        journey = (*first, "theory", "reproduce", "train")
        return sorted(self.commands, key=journey.index)


app = typer.Typer(cls=_Covshift, no_args_is_help=True, add_completion=False, rich_markup_mode="rich")

_LOOK, _MEASURE, _WATCH = "Models and images", "Measure", "Watch and check"
_DEPLOY, _PAPER = "Repair and deploy", "The paper"
app.command("models", cls=Command, rich_help_panel=_LOOK)(models.command)
app.add_typer(data.app, name="data", rich_help_panel=_LOOK)
app.command("corrupt", cls=Command, rich_help_panel=_LOOK)(corrupt.command)
app.add_typer(bench.app, name="bench", rich_help_panel=_MEASURE)
app.command("report", cls=Command, rich_help_panel=_MEASURE)(report.command)
app.command("shift", cls=Command, rich_help_panel=_WATCH)(shift.command)
app.command("doctor", cls=Command, rich_help_panel=_WATCH)(doctor.command)
app.command("repair", cls=Command, rich_help_panel=_DEPLOY)(repair.command)
app.command("export", cls=Command, rich_help_panel=_DEPLOY)(export.command)
app.command("serve", cls=Command, rich_help_panel=_DEPLOY)(serve.command)
app.command("theory", cls=Command, rich_help_panel=_PAPER)(theory.command)
app.command("reproduce", cls=Command, rich_help_panel=_PAPER)(reproduce.command)
app.command("train", cls=Command, rich_help_panel=_PAPER)(train.command)


def _print_version(wanted: bool) -> None:
    if wanted:
        import covshift

        typer.echo(f"covshift {covshift.__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Measure, predict and repair covariate shift in image classifiers.

    Each command explains itself and shows examples: covshift bench run --help
    """
    # Of Pillow; a picture above our own limit is an error, which says the same in one line.
    warnings.filterwarnings("ignore", "Image size .* exceeds limit")
