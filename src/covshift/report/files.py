"""Publication files: figures as SVG, PDF and PNG, tables as CSV, Markdown and LaTeX, and the data behind charts."""

import json
import re
from collections.abc import Sequence
from pathlib import Path

from covshift.files import replacing
from covshift.report.figure import Figure
from covshift.report.parts import Section
from covshift.report.sheet import FORMATS, Sheet

_SCALE = 2  # pixels of a PNG for each px of the figure


def write_files(sections: Sequence[Section], out: Path) -> int:
    """Write them to the folders `figures` and `tables`; give how many there are."""
    written = 0
    for part in (part for section in sections for part in section.parts):
        if isinstance(part, Figure):
            written += _write_figure(part, out / "figures")
        elif isinstance(part, Sheet):
            for ending, write in FORMATS.items():
                _write(out / "tables" / f"{part.name}.{ending}", write(part).encode())
                written += 1
    return written


def svg(figure: Figure) -> str:
    """The figure on white, the same bytes for the same rows."""
    import vl_convert

    # Names of clipping paths are counted up from figure to figure.
    found = vl_convert.vegalite_to_svg(json.dumps(figure.on_paper()))
    numbers: dict[str, str] = {}

    def name(match: re.Match[str]) -> str:
        return numbers.setdefault(match[0], f"{match[1]}{len(numbers)}")

    return re.sub(r"\b(clip|gradient)_?(\d+)", name, found)


def _write_figure(figure: Figure, folder: Path) -> int:
    import vl_convert

    drawn = svg(figure)
    _write(folder / f"{figure.name}.svg", drawn.encode())
    _write(folder / f"{figure.name}.pdf", vl_convert.svg_to_pdf(drawn))
    _write(folder / f"{figure.name}.png", vl_convert.svg_to_png(drawn, scale=_SCALE))
    _write(folder / f"{figure.name}.csv", figure.as_csv().encode())
    return 4


def _write(file: Path, content: bytes) -> None:
    with replacing(file) as part:
        part.write_bytes(content)
