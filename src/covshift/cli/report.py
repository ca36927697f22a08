"""`covshift report`: a page about runs, and files for a paper."""

from pathlib import Path
from typing import Annotated

import typer

from covshift.cli import options
from covshift.support.errors import printable


def command(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Run folders, or folders of run folders.")],
    out: Annotated[Path, typer.Option(help="Folder to write the report to.")] = Path("report"),
    baseline: options.Baseline = None,
    compare: Annotated[bool, typer.Option("--compare", help="Begin with two runs side by side.")] = False,
    measure: Annotated[
        int | None,
        typer.Option(
            min=2,
            metavar="NUMBER",
            help="Number of images to measure the distances of conditions on, before the report.",
        ),
    ] = None,
    readme: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Markdown file to write summary and tables to as well.")
    ] = None,
    images: Annotated[bool, typer.Option(help="Show images of the conditions.")] = True,
    files: Annotated[
        bool, typer.Option(help="Write figures as SVG, PDF, PNG and tables as CSV, Markdown, LaTeX.")
    ] = True,
    plugins: options.Plugin = None,
) -> None:
    """Write a page with tables and charts of runs, which opens offline, and files for a paper.

    Examples:
    covshift report runs/r18 --out report

    covshift report --compare runs/r18 runs/r50

    covshift report runs/r18 --measure 1000

    covshift report results/ --readme results/tables.md
    """
    from covshift.report import build

    page = build.report(
        runs,
        out,
        baseline=baseline,
        compare=compare,
        measure_images=measure,
        readme=readme,
        images=images,
        files=files,
        plugins=options.split(plugins),
        notify=lambda note: options.write_error(f"note: {note}"),
    )
    typer.echo(printable(str(page)))
