"""`covshift doctor`: the mistakes that spoil a benchmark."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from covshift.cli import options
from covshift.cli.parser import FOUND, as_options
from covshift.support.errors import CovshiftError, plural, printable

if TYPE_CHECKING:
    from covshift.doctor.examine import Examination


def command(
    what: Annotated[list[str], typer.Argument(metavar="RUN | MODEL DATA", help="Run folder, or a model and its data.")],
    limit: Annotated[
        int | None,
        options.like(
            options.LIMIT,
            help="Number of images to examine: a sample shows mistakes.",
            show_default="512; 128 if larger than 64 px",
        ),
    ] = None,
    device: Annotated[str | None, options.like(options.DEVICE, show_default="auto; for a run, its own")] = None,
    as_json: options.Json = False,
) -> None:
    """Find mistakes that spoil a benchmark; exit code 3 if there are any.

    It tries other normalisation, labels, channels and sizes, and names the one that helps.

    Examples:
    covshift doctor torchvision:resnet18 folder:val

    covshift doctor runs/r18
    """
    report = look(what, limit, device)
    typer.echo(as_json_text(report) if as_json else printable(as_text(report), keep="\n"))
    if report.problems:
        raise typer.Exit(FOUND)


def look(what: list[str], limit: int | None, device: str | None) -> "Examination":
    """Examine a run folder, or a model and data."""
    from covshift.doctor.examine import examine, examine_run

    if len(what) == 1 and (Path(what[0]).exists() or ":" not in what[0]):
        return examine_run(Path(what[0]), limit=limit, device=device, progress=True)
    if len(what) != 2:
        raise CovshiftError(
            f"expected a run folder, or a model and data, e.g. torchvision:resnet18 folder:val, got {' '.join(what)!r}"
        )
    return examine(what[0], what[1], limit=limit, device=device or "auto", progress=True)


def as_text(report: "Examination") -> str:
    """Return the findings as short lines for people."""
    width = max(len(name) for name in report.findings)
    lines = [f"{report.model} on {report.data}: {plural(report.images, 'image')} examined, {report.condition}"]
    for name, finding in report.findings.items():
        lines.append(f"{finding.level:<8} {name:<{width}}  {finding.text}")
        if finding.remedy:
            lines.append(f"{'':<8} {'':<{width}}  → {as_options(finding.remedy)}")
    return "\n".join(
        [*lines, f"{plural(len(report.problems), 'problem')} found" if report.problems else "no problem found"]
    )


def as_json_text(report: "Examination") -> str:
    """Return all findings as JSON for programs."""
    findings = [
        {"check": name, **asdict(finding), "remedy": as_options(finding.remedy)}
        for name, finding in report.findings.items()
    ]
    return json.dumps(report._asdict() | {"findings": findings, "problems": report.problems}, indent=1)
