"""`covshift models`: what can be opened, how much of it is normalisation, and where it is adapted."""

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from covshift.cli import options
from covshift.support.errors import CovshiftError, plural

if TYPE_CHECKING:
    from rich.table import Table

    from covshift.models.listing import ListedModel, ListedPlace

_HINT = "timm's: covshift models 'timm:resnet*'; checkpoints: file:PATH?arch=…; your own code: py:module:function"


def command(
    pattern: Annotated[
        str | None, typer.Argument(help="Part of a name, or a pattern such as 'timm:resnet*'.", show_default="all")
    ] = None,
    places: Annotated[
        bool,
        typer.Option("--places", help="List the places of one model, named by its URI, where a source is measured."),
    ] = False,
    as_json: options.Json = False,
) -> None:
    """List the models that can be opened, with the parameters of their normalisation layers.

    Examples:
    covshift models

    covshift models 'resnet*' --json

    covshift models 'timm:convnext*'

    covshift models torchvision:vit_b_16 --places
    """
    from covshift.models.listing import find_model_places, find_models

    if places:
        if pattern is None:
            raise CovshiftError("expected the URI of a model with --places, e.g. torchvision:vit_b_16")
        found = find_model_places(pattern)
        if as_json:
            typer.echo(json.dumps([place._asdict() for place in found], indent=2))
        else:
            _print_places(found)
        return
    rows = find_models(pattern)
    if as_json:
        typer.echo(json.dumps([row.as_dict() for row in rows], indent=2))
    else:
        _print_table(rows)


def _print_table(rows: "Sequence[ListedModel]") -> None:
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("model", no_wrap=True)
    for title in ("parameters", "of BN", "share"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("weights", overflow="fold")  # last, so that the numbers are whole on a narrow screen
    for row in rows:
        share = f"{row.bn_params / row.params:.2%}"
        table.add_row(row.uri, f"{row.params:,}", f"{row.bn_params:,}", share, ", ".join(row.weights))
    _print(table, _HINT)


def _print_places(places: "Sequence[ListedPlace]") -> None:
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in ("place", "layer", "side"):
        table.add_column(title, no_wrap=True)
    table.add_column("channels", justify="right", no_wrap=True)
    for place in places:
        table.add_row(place.path, place.layer, place.side, f"{place.channels:,}")
    channels = sum(place.channels for place in places)
    _print(
        table, f"{plural(len(places), 'place')}, {channels:,} channels; Source.measure(model, loader) measures there"
    )


def _print(table: "Table", hint: str) -> None:
    from rich.console import Console

    # In a pipe there is no edge to break lines at.
    Console(width=None if sys.stdout.isatty() else 200).print(table)
    Console(stderr=True).print(hint, style="dim", highlight=False, markup=False)
