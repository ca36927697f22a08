"""Publication files: figures as SVG, PDF and PNG, tables as CSV, Markdown and LaTeX, and the data behind charts."""

import json
import re
from collections.abc import Sequence
from pathlib import Path

from covshift.report.figure import Figure
from covshift.report.parts import Section
from covshift.support.files import replacing
from covshift.support.tables import Table
from covshift.support.writers import FILES

_LIST = ".files"  # what this report wrote: a folder may hold other files, which are left alone
_SCALE = 2  # pixels of a PNG for each px of the figure


def write_files(sections: Sequence[Section], out: Path) -> None:
    """Write figures and tables to folders of these names; delete files that only the previous report wrote there."""
    written: list[Path] = []
    for part in (part for section in sections for part in section.parts):
        if isinstance(part, Figure):
            written += _write_figure(part, out / "figures")
        elif isinstance(part, Table):
            for ending, write in FILES.items():
                written.append(_write(out / "tables" / f"{part.name}.{ending}", write(part).encode()))
    names = {f"{file.parent.name}/{file.name}" for file in written}
    listed = out / _LIST
    for name in set(listed.read_text().splitlines() if listed.exists() else ()) - names:
        if Path(name).parent.as_posix() in ("figures", "tables"):
            (out / name).unlink(missing_ok=True)
    _write(listed, "".join(f"{name}\n" for name in sorted(names)).encode())


def svg(figure: Figure) -> str:
    """Return the figure on white as SVG, the same bytes for the same rows."""
    import vl_convert

    # Names of clipping paths are counted up from figure to figure.
    drawn = vl_convert.vegalite_to_svg(json.dumps(figure.on_paper()))
    numbers: dict[str, str] = {}

    def name(match: re.Match[str]) -> str:
        return numbers.setdefault(match[0], f"{match[1]}{len(numbers)}")

    return re.sub(r"\b(clip|gradient)_?(\d+)", name, drawn)


def _write_figure(figure: Figure, folder: Path) -> list[Path]:
    import vl_convert

    drawn = svg(figure)
    return [
        _write(folder / f"{figure.name}.svg", drawn.encode()),
        _write(folder / f"{figure.name}.pdf", vl_convert.svg_to_pdf(drawn)),
        _write(folder / f"{figure.name}.png", vl_convert.svg_to_png(drawn, scale=_SCALE)),
        _write(folder / f"{figure.name}.csv", figure.as_csv().encode()),
    ]


def _write(file: Path, content: bytes) -> Path:
    with replacing(file) as part:
        part.write_bytes(content)
    return file
