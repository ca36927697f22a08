"""What `covshift doctor` does with its arguments."""

import json
from dataclasses import asdict
from pathlib import Path

from covshift.doctor.examine import Report, examine, examine_run
from covshift.support.errors import CovshiftError, plural


def look(what: list[str], limit: int | None, device: str | None) -> Report:
    """Examine a run folder, or a model and data."""
    if len(what) == 1 and (Path(what[0]).exists() or ":" not in what[0]):
        return examine_run(Path(what[0]), limit=limit, device=device, progress=True)
    if len(what) != 2:
        raise CovshiftError(
            f"expected a run folder, or a model and data, e.g. torchvision:resnet18 folder:val, got {' '.join(what)!r}"
        )
    return examine(what[0], what[1], limit=limit, device=device or "auto", progress=True)


def as_text(report: Report) -> str:
    """Short lines for people."""
    width = max(len(name) for name in report.findings)
    lines = [f"{report.model} on {report.data}: {plural(report.images, 'image')} looked at, {report.condition}"]
    for name, finding in report.findings.items():
        lines.append(f"{finding.level:<8} {name:<{width}}  {finding.text}")
        if finding.remedy:
            lines.append(f"{'':<8} {'':<{width}}  → {finding.remedy}")
    return "\n".join(
        [*lines, f"{plural(len(report.problems), 'problem')} found" if report.problems else "no problem found"]
    )


def as_json(report: Report) -> str:
    """For programs."""
    findings = [{"check": name, **asdict(finding)} for name, finding in report.findings.items()]
    return json.dumps(report._asdict() | {"findings": findings, "problems": report.problems}, indent=1)
