"""What `covshift data` shows and checks."""

import json
import sys

from rich.console import Console
from rich.table import Table

from covshift.data.catalog import CATALOG, Source
from covshift.data.check import check
from covshift.support.errors import CovshiftError


def run(words: list[str], *, as_json: bool, decode: bool) -> bool:
    """Do what the words say; give whether all is well.

    Args:
        words: none, for the list, or "check" and a data set.
        as_json: for programs.
        decode: when checking, decode every picture.
    """
    if not words:
        _list(as_json)
        return True
    if len(words) != 2 or words[0] != "check":
        raise CovshiftError(
            f"expected nothing, or check and a data set such as imagenet-c:DIR, got {' '.join(words)!r}"
        )
    report = check(words[1], decode=decode)
    _write(json.dumps(vars(report), indent=2) if as_json else report.as_text())
    return not report.problems


def _list(as_json: bool) -> None:
    if as_json:
        rows = [source._asdict() | {"archives": [a._asdict() for a in source.archives]} for source in CATALOG]
        _write(json.dumps(rows, indent=2))
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in ("data", "images", "download", "licence", "how to get it"):
        table.add_column(title, justify="right" if title in ("images", "download") else "left", overflow="fold")
    for source in CATALOG:
        images = f"{source.images:,}" if source.images else "?"
        how = "\n".join([source.how, *(archive.url for archive in source.archives)])
        table.add_row(source.uri, images, _size(source), source.licence, how)
    Console(width=None if sys.stdout.isatty() else 200).print(table)


def _size(source: Source) -> str:
    return f"{source.size / 1e9:.1f} GB" if source.size else "?"


def _write(text: str) -> None:
    sys.stdout.write(text + "\n")
