"""Options that several commands share, so that each has one name, one help text and one default everywhere."""

import re
from collections.abc import Sequence
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from covshift.cli.parser import as_options
from covshift.support.errors import CovshiftError, printable

if TYPE_CHECKING:
    from covshift.bench.engines.where import Where

COMPUTING = "Computing"
JOBS = "Ray and array jobs"

PLUGIN = typer.Option(
    "--plugin", metavar="MODULES", help="Python modules that register your own corruptions and methods."
)
BASELINE = typer.Option(metavar="RUN", help="Run to measure mCE against.", show_default="AlexNet's published errors")
SKIP_BROKEN = typer.Option("--skip-broken", help="Leave out pictures that cannot be read.")
LIMIT = typer.Option(
    min=1, metavar="NUMBER", help="Number of images: a random subset, balanced over the classes.", show_default="all"
)
SEVERITIES = typer.Option(metavar="NUMBERS", help="Severities from 1 to 5.", show_default="1,2,3,4,5")
FROST = typer.Option(help="Ice of frost: procedural, published, or a folder of textures.", show_default="procedural")
DEVICE = typer.Option(
    help="Device to compute on: auto, cpu, cuda, cuda:1 or mps.", show_default="auto", rich_help_panel=COMPUTING
)

THREADS = typer.Option(
    min=1,
    metavar="NUMBER",
    help="Number of CPU threads.",
    show_default="one for each core",
    rich_help_panel=COMPUTING,
)
ENGINE = typer.Option(metavar="local|ray", help="Compute in this process (local) or on Ray.", rich_help_panel=JOBS)
ADDRESS = typer.Option(
    help="Address of a running Ray cluster, e.g. auto.",
    show_default="Ray is started on this machine",
    rich_help_panel=JOBS,
)

Plugin = Annotated[list[str] | None, PLUGIN]
Baseline = Annotated[Path | None, BASELINE]
SkipBroken = Annotated[bool, SKIP_BROKEN]
Severities = Annotated[list[str] | None, SEVERITIES]
Frost = Annotated[str, FROST]
Device = Annotated[str, DEVICE]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Markdown = Annotated[bool, typer.Option("--markdown", help="Print Markdown tables instead of text.")]
Latex = Annotated[bool, typer.Option("--latex", help="Print LaTeX tables instead of text.")]
Csv = Annotated[bool, typer.Option("--csv", help="Print CSV instead of text.")]
Threads = Annotated[int | None, THREADS]
Engine = Annotated[str, ENGINE]
Address = Annotated[str | None, ADDRESS]
Workers = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="NUMBER",
        help="Number of Ray workers.",
        show_default="as many as the cluster has room for",
        rich_help_panel=JOBS,
    ),
]
WorkerCpus = Annotated[float, typer.Option(help="Number of CPUs for each Ray worker.", rich_help_panel=JOBS)]
WorkerGpus = Annotated[
    float | None,
    typer.Option(
        help="Number of GPUs for each Ray worker, e.g. 0.5.", show_default="1 where there are any", rich_help_panel=JOBS
    ),
]
Shard = Annotated[
    str | None,
    typer.Option(
        metavar="I/K",
        help="Compute only part I of K, counted from 0; one part for each array job.",
        rich_help_panel=JOBS,
    ),
]


def like(option: Any, **changes: Any) -> Any:
    """Return an option with something else about it, such as the panel of its help.

    >>> like(LIMIT, show_default="1000").help == LIMIT.help
    True
    """
    other = copy(option)
    vars(other).update(changes)
    return other


def split(values: Sequence[str] | None) -> list[str]:
    """Return the values of an option that is repeated, has commas between several values, or both.

    >>> split(["fog,snow", "frost"])
    ['fog', 'snow', 'frost']
    """
    return [word.strip() for value in values or () for word in value.split(",") if word.strip()]


def split_pairs(values: Sequence[str] | None) -> list[str]:
    """Return the NAME=VALUE pairs of such an option; a comma inside of a value separates nothing.

    >>> split_pairs(["a=x,y.pth,b=z.pth", "c=d"])
    ['a=x,y.pth', 'b=z.pth', 'c=d']
    """
    return [pair for value in values or () for pair in re.split(r",(?=[^,=]+=)", value)]


def numbers(values: Sequence[str] | None, option: str) -> list[float]:
    """Return the numbers of an option such as `--prior 8,16`.

    >>> numbers(["8,16"], "--prior")
    [8.0, 16.0]
    """
    try:
        return [float(word) for word in split(values)]
    except ValueError:
        got = ",".join(values or ())
        raise CovshiftError(f"expected numbers with commas between them for {option}, got {got!r}") from None


def choose_form(**wanted: bool) -> str:
    """Return the one form of output that was asked for, else text.

    >>> choose_form(csv=True, json=False)
    'csv'
    """
    names = [name for name, is_wanted in wanted.items() if is_wanted]
    if len(names) > 1:
        raise CovshiftError(f"expected one form of output, got {' and '.join(f'--{name}' for name in names)}")
    return names[0] if names else "text"


def place(
    engine: str, address: str | None, workers: int | None, cpus: float, gpus: float | None, shard: str | None
) -> "Where":
    """Return the engine and its resources, as the options choose them."""
    from covshift.bench.engines import where

    part = where.Shard.parse(shard) if shard else None
    return where.Where(engine, address, workers, cpus, gpus, part)  # type: ignore[arg-type]


def write_text(text: str) -> None:
    """Print what was asked for, to stdout, with arguments of the library as options of the command line."""
    typer.echo(printable(as_options(text), keep="\n"))


def write_error(line: str) -> None:
    """Print a line on progress or problems to stderr."""
    typer.echo(printable(as_options(line)), err=True)
