"""`covshift models`: what can be opened, and how much of it is normalisation."""

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from covshift.cli import options

if TYPE_CHECKING:
    from covshift.models.listing import ListedModel

_HINT = "timm's: covshift models 'timm:resnet*'; checkpoints: file:PATH?arch=…; your own code: py:module:function"


def command(
    pattern: Annotated[
        str | None, typer.Argument(help="Part of a name, or a pattern such as 'timm:resnet*'.", show_default="all")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """List the models that can be opened, with the parameters of their normalisation layers.

    Examples:
    covshift models

    covshift models 'resnet*' --json

    covshift models 'timm:convnext*'
    """
    from covshift.models.listing import find_models

    rows = find_models(pattern)
    if as_json:
        typer.echo(json.dumps([row.as_dict() for row in rows], indent=2))
    else:
        _print_table(rows)


def _print_table(rows: "Sequence[ListedModel]") -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("model", no_wrap=True)
    for title in ("parameters", "of BN", "share"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("weights", overflow="fold")  # last, so that the numbers are whole on a narrow screen
    for row in rows:
        share = f"{row.bn_params / row.params:.2%}"
        table.add_row(row.uri, f"{row.params:,}", f"{row.bn_params:,}", share, ", ".join(row.weights))
    # In a pipe there is no edge to break lines at.
    Console(width=None if sys.stdout.isatty() else 200).print(table)
    Console(stderr=True).print(_HINT, style="dim", highlight=False, markup=False)
