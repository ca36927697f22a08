"""`covshift data list` and `covshift data check`: the paper's data sets, and whether one is whole."""

import json
import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from covshift.cli import options
from covshift.cli.parser import FOUND, Command, Group

if TYPE_CHECKING:
    from covshift.data.catalog import CatalogEntry


class _Data(Group):
    """The group, which once was a command that listed."""

    def modern(self, words: Sequence[str]) -> str | None:
        """Return the command that does what these words once did.

        >>> _Data(name="data").modern(["--json"])
        'covshift data list --json'
        """
        if "check" in words or "--check" in words:
            return shlex.join(["covshift", "data", "check", *(word for word in words if word.strip("-") != "check")])
        return shlex.join(["covshift", "data", "list", *words]) if words[0].startswith("-") else None


app = typer.Typer(
    cls=_Data,
    no_args_is_help=True,
    help="""List data sets and where to get them, and check yours.

    Example:

    covshift data check imagenet-c:DIR
    """,
)


@app.command("list", cls=Command)
def list_sets(as_json: options.Json = False) -> None:
    """List the paper's data sets, with size, licence and how to get them.

    Examples:
    covshift data list

    covshift data list --json
    """
    from covshift.data.catalog import CATALOG

    if as_json:
        rows = [source._asdict() | {"archives": [a._asdict() for a in source.archives]} for source in CATALOG]
        typer.echo(json.dumps(rows, indent=2))
    else:
        _print_table(CATALOG)


@app.command(cls=Command)
def check(
    data: Annotated[str, typer.Argument(help="Data set, e.g. imagenet-c:DIR.")],
    decode: Annotated[bool, typer.Option("--decode", help="Decode every picture, which is thorough and slow.")] = False,
    as_json: options.Json = False,
) -> None:
    """Check that a data set is whole; exit code 3 if something is missing or broken.

    Examples:
    covshift data check imagenet-c:DIR

    covshift data check folder:val --decode
    """
    from covshift.data.check import check as examine

    report = examine(data, decode=decode)
    typer.echo(json.dumps(vars(report), indent=2) if as_json else report.as_text())
    if report.problems:
        raise typer.Exit(FOUND)


def _print_table(sources: "Sequence[CatalogEntry]") -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in ("data", "images", "download", "licence", "how to get it"):
        table.add_column(title, justify="right" if title in ("images", "download") else "left", overflow="fold")
    for source in sources:
        images = f"{source.images:,}" if source.images else "?"
        size = f"{source.size / 1e9:.1f} GB" if source.size else "?"
        how = "\n".join([source.how, *(archive.url for archive in source.archives)])
        table.add_row(source.uri, images, size, source.licence, how)
    Console(width=None if sys.stdout.isatty() else 200).print(table)
