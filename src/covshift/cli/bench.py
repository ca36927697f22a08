"""The commands of `covshift bench`: run a benchmark, and look at its results."""

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from covshift.cli import bench_run, options
from covshift.cli.parser import Command, Group
from covshift.support.errors import printable

_Folder = Annotated[Path, typer.Argument(metavar="RUN", help="Run folder, or a folder of run folders.")]


class _Bench(Group):
    """The group, which knows what its commands were called when they were options."""

    def modern(self, words: Sequence[str]) -> str | None:
        """Return the command that does what these words once did.

        >>> _Bench(name="bench").modern(["--table", "runs/r18", "--csv"])
        'covshift bench table runs/r18 --csv'
        """
        for name in ("table", "status", "rows", "answers", "merge"):
            if f"--{name}" in words:
                rest = [word for word in words if word != f"--{name}"]
                return shlex.join(["covshift", "bench", name, *rest])
        return shlex.join(["covshift", "bench", "run", *words]) if words[0].startswith("-") else None


app = typer.Typer(
    cls=_Bench,
    no_args_is_help=True,
    help="""Measure what a model loses under corruptions, and what adapting gives back.

    Example:

    covshift bench run --builtin
    """,
)
app.command("run", cls=Command)(bench_run.command)


@app.command(cls=Command)
def table(
    run: _Folder,
    baseline: options.Baseline = None,
    csv: options.Csv = False,
    json: options.Json = False,
    markdown: options.Markdown = False,
    latex: options.Latex = False,
) -> None:
    """Print the table of a run, or one line for each run in a folder.

    Examples:
    covshift bench table runs/r18

    covshift bench table runs --markdown
    """
    from covshift.bench import summary

    form = options.choose_form(csv=csv, json=json, markdown=markdown, latex=latex)
    text = summary.table(run, form, baseline)
    options.write_text(text) if form == "text" else typer.echo(text)


@app.command(cls=Command)
def status(run: _Folder, as_json: options.Json = False) -> None:
    """Print the progress of a run, or of each run or shard in a folder.

    Examples:
    covshift bench status runs/r18

    covshift bench status runs --json
    """
    from covshift.bench import summary

    if as_json:
        typer.echo(json.dumps([each._asdict() for each in summary.progress(run)], indent=2, default=str))
    else:
        typer.echo(printable(summary.status(run), keep="\n"))


@app.command(cls=Command)
def rows(run: _Folder) -> None:
    """Print the rows of a run, or of all runs in a folder, as JSON lines.

    Example:
    covshift bench rows runs/r18 > rows.jsonl
    """
    from covshift.bench import summary

    typer.echo(summary.rows(run))


class _OfCells(Command):
    """A command on cells of a run, of which one may be named in the singular."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the words of the command line into `ctx.params`."""
        several = {"--corruption": "--corruptions", "--severity": "--severities", "--method": "--methods"}
        return super().parse_args(ctx, [several.get(word, word) for word in args])


@app.command(cls=_OfCells)
def answers(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder.")],
    corruptions: Annotated[
        list[str] | None,
        typer.Option(metavar="NAMES", help="Corruptions by name, or clean.", show_default="all 19; and clean"),
    ] = None,
    severities: Annotated[
        list[str] | None,
        typer.Option(metavar="NUMBERS", help="Severities from 1 to 5.", show_default="1,2,3,4,5; and clean"),
    ] = None,
    methods: Annotated[
        list[str] | None, typer.Option(metavar="METHODS", help="Methods of the run.", show_default="all")
    ] = None,
    csv: options.Csv = False,
    json: options.Json = False,
) -> None:
    """Print the answer to every image: the class, whether it is right, and the confidence.

    Examples:
    covshift bench answers runs/r18 --corruptions fog --severities 3 --methods full

    covshift bench answers runs/r18 --csv > answers.csv
    """
    from covshift.bench import summary
    from covshift.bench.methods.registry import split_methods
    from covshift.data.condition import SEVERITIES
    from covshift.support.errors import CovshiftError

    form = options.choose_form(csv=csv, json=json)
    levels = options.numbers(severities, "--severities")
    if odd := [level for level in levels if level not in (0, *SEVERITIES)]:
        raise CovshiftError(f"expected --severities from 1 to 5, or 0 for clean images, got {odd[0]:g}")
    names = [name for text in methods or () for name in split_methods(text)]
    text = summary.answers(
        run,
        form,
        options.split(corruptions),
        [int(level) for level in levels],
        names,
        notify=lambda note: options.write_error(f"note: {note}"),
    )
    typer.echo(printable(text, keep="\n"))


@app.command(cls=Command)
def merge(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN", help="Folder of a run that holds its shards, or parts of one run.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="Folder for the merged run.", show_default="the folder that holds the shards")
    ] = None,
) -> None:
    """Put the shards of array jobs, or any parts of one run, together in one run folder.

    Examples:
    covshift bench merge runs/r18

    covshift bench merge part-a part-b --out runs/r18
    """
    from covshift.bench import summary
    from covshift.bench.results.merge import merge_runs

    typer.echo(printable("\n\n".join(map(summary.status, merge_runs(runs, out))), keep="\n"))
