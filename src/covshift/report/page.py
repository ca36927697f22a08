"""`index.html`: one file that holds everything that it shows."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from covshift import __version__
from covshift.report.bundle import vega
from covshift.report.figure import Figure
from covshift.report.gather import Result
from covshift.report.parts import Gap, Part, Section
from covshift.report.recommendation import recommendation
from covshift.report.sections.gallery import Galleries
from covshift.report.sections.overview import sentence
from covshift.report.sections.samples import Samples
from covshift.report.sections.shots import Shot
from covshift.support.tables import Table
from covshift.support.writers import FILES, as_html

_HERE = Path(__file__).parent
_LOW = 320  # px of a figure, beside which three images would stick out
_KINDS = {"csv": "text/csv", "md": "text/markdown", "tex": "text/x-tex"}


class Fact(NamedTuple):
    """One line of a run's settings."""

    name: str
    value: str


def page(
    title: str,
    results: Sequence[Result],
    sections: Sequence[Section],
    samples: Samples,
    galleries: Galleries,
    notes: Sequence[str],
) -> str:
    """Return the whole page as HTML."""
    import jinja2

    lead = _lead(results, sections)
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, undefined=jinja2.StrictUndefined)
    environment.filters |= {"kind": _kind, "table": as_html, "json": _json, "code": _code}
    environment.globals |= {"downloads": downloads}
    template = environment.from_string((_HERE / "page.html").read_text())
    return template.render(
        title=title,
        style=(_HERE / "page.css").read_text(),
        script=(_HERE / "page.js").read_text(),
        vega=vega(),
        sentences=[(result.name, sentence(result)) for result in results],
        advice=[(result.name, advice) for result in results if (advice := recommendation(result)) is not None],
        lead=lead,
        lead_is_low=lead is None or _height(lead) < _LOW,
        first=_first(galleries, named=len(results) > 1),
        sections=_drawn(sections, lead),
        missing=_missing(sections),
        samples=samples,
        galleries=galleries.galleries,
        notes=notes,
        runs=[(result.name, facts(result)) for result in results],
        version=__version__,
    )


def _lead(results: Sequence[Result], sections: Sequence[Section]) -> Figure | None:
    """Return the figure of the first screen: the errors by corruption of one model, or those of all models."""
    wanted = ("corruptions", "streams") if len(results) == 1 else ("overview", "streams")
    parts = [part for name in wanted for section in sections if section.name == name for part in section.parts]
    return next((part for part in parts if isinstance(part, Figure)), None)


def _height(figure: Figure) -> float:
    """Return the height of a figure in px; 0 where it depends on what is drawn."""
    height = figure.spec.get("height")
    return height if isinstance(height, int | float) else 0


def _first(galleries: Galleries, *, named: bool) -> list[tuple[str, Shot]]:
    """Return the images of the first screen, each with what it shows: of which model, too, where there are several."""
    for gallery in galleries.galleries:
        if shots := gallery.first():
            model = f"{gallery.name}, " if named else ""
            return [(f"{model}{kind}: {condition}", shot) for kind, condition, shot in shots]
    return []


def _drawn(sections: Sequence[Section], lead: Figure | None) -> list[Section]:
    """Return the sections that have something to show, without the figure of the first screen."""
    left = [
        section._replace(parts=tuple(p for p in section.parts if not isinstance(p, Gap) and p is not lead))
        for section in sections
    ]
    return [section for section in left if section.parts]


class Missing(NamedTuple):
    """What the page could also show, after a command."""

    titles: str
    reasons: str
    command: str


def _missing(sections: Sequence[Section]) -> list[Missing]:
    """Return what is missing, once for each command that fills it."""
    gaps = [part for section in sections for part in section.parts if isinstance(part, Gap)]
    by_command: dict[str, list[Gap]] = {}
    for gap in gaps:
        by_command.setdefault(gap.command, []).append(gap)
    return [
        Missing("; ".join(gap.title for gap in some), "; ".join(dict.fromkeys(gap.reason for gap in some)), command)
        for command, some in by_command.items()
    ]


def facts(result: Result) -> list[Fact]:
    """Return the settings and versions of a run, without settings that have their defaults."""
    run, folder = result.run, result.folder.resolve().name
    chosen = run.settings.model_dump(exclude_defaults=True)
    values = {
        "folder": folder,
        "command": run.settings.command(folder),
        "model digest": run.model_digest[:16],
        "parameters": f"{run.model_params:,}",
        "data": f"{run.settings.data}, {run.data_images:,} images, digest {run.data_digest}",
        **{name: _words(value) for name, value in chosen.items() if name != "data"},
        "preprocessing": _words(run.preprocess),
        "cells": f"{len(result.rows)} done, {result.left} left" if result.left else f"{len(result.rows)}, all done",
        "versions": ", ".join(f"{name} {number}" for name, number in run.versions.items()),
        "revision": run.revision or "",
    }
    return [Fact(name, value) for name, value in values.items() if value]


def _words(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_words(each)}" for key, each in value.items())
    if isinstance(value, list | tuple):
        return " ".join(map(str, value))
    return str(value)


class Download(NamedTuple):
    """A file that the page itself holds."""

    name: str
    kind: str
    href: str
    dataset: str = ""


def downloads(part: Table | Figure) -> list[Download]:
    """Return the files that a reader can save of a table or figure; the page's script reads a chart's own data."""
    if isinstance(part, Figure):
        name = f"{part.name}.csv"
        return [_download(name, part.as_csv()) if part.dataset is None else Download(name, "csv", "", part.dataset)]
    return [_download(f"{part.name}.{ending}", write(part)) for ending, write in FILES.items()]


def _download(name: str, text: str) -> Download:
    ending = name.rpartition(".")[2]
    return Download(name, ending, f"data:{_KINDS[ending]};charset=utf-8,{quote(text)}")


def _kind(part: Part) -> str:
    return "figure" if isinstance(part, Figure) else "table"


def _code(text: str) -> str:
    """Return a note as HTML, with what stands between backticks as code."""
    import markupsafe

    words = [str(markupsafe.escape(part)) for part in re.split(r"`([^`]+)`", text)]
    words[1::2] = [f"<code>{word}</code>" for word in words[1::2]]
    return markupsafe.Markup("".join(words))  # noqa: S704


def _json(value: Any) -> str:
    import markupsafe

    # A page whose scripts cannot read a number draws no chart at all: better no page.
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return markupsafe.Markup(text.replace("<", "\\u003c"))  # noqa: S704
