"""What `covshift corrupt` does with its arguments."""

from collections.abc import Sequence
from pathlib import Path

from covshift.corruptions.apply import corrupt
from covshift.corruptions.registry import names
from covshift.corruptions.sheet import contact_sheet
from covshift.corruptions.tree import Recipe, pictures, write_tree
from covshift.support.errors import CovshiftError, plural
from covshift.support.images import check_lossless, check_quality, read, write
from covshift.support.progress import progress_bar


def choose(corruptions: Sequence[str], severities: Sequence[int], *, everything: bool) -> Recipe:
    """Some corruptions or all of them, at some severities or all of them.

    >>> choose(["fog", "snow"], [5], everything=False).cells
    [('fog', 5), ('snow', 5)]
    """
    if everything == bool(corruptions):
        raise CovshiftError("expected either --all or at least one --corruption, e.g. --corruption fog")
    chosen = names("all") if everything else tuple(dict.fromkeys(corruptions))
    return Recipe(chosen, tuple(dict.fromkeys(severities)) or (1, 2, 3, 4, 5))


def parse_shard(text: str) -> tuple[int, int]:
    """Which part of the pictures to take.

    >>> parse_shard("1/4")
    (1, 4)
    """
    first, slash, count = text.partition("/")
    if not (slash and first.isdigit() and count.isdigit() and int(first) < int(count)):
        raise CovshiftError(f"expected --shard I/N with I from 0 to N - 1, e.g. 0/4, got {text!r}")
    return int(first), int(count)


def run(source: Path, target: Path, how: Recipe, shard: tuple[int, int], skip_broken: bool, threads: int | None) -> str:
    """Corrupt a folder or one picture, and say in one line what was done."""
    if source.is_file():
        return _one(source, target, how)
    total = len(pictures(source)[shard[0] :: shard[1]]) * len(how.cells)
    with progress_bar("corrupting", total) as advance:
        report = write_tree(source, target, how, shard=shard, skip_broken=skip_broken, threads=threads, advance=advance)
    line = f"{plural(report.written, 'picture')} written to {target}, {report.found} were there"
    if report.broken:
        line += f", {len(report.broken)} could not be read: {', '.join(map(str, report.broken))}"
    return line


def _one(source: Path, target: Path, how: Recipe) -> str:
    if len(how.cells) != 1:
        raise CovshiftError(f"expected one --corruption and one --severity for one picture, got {len(how.cells)} cells")
    name, severity = how.cells[0]
    quality = _form(target, how.quality)
    image = corrupt(read(source, crop=False), name, severity, seed=how.seed, frost=how.frost)
    write(image, target, quality)
    return f"1 picture written to {target}"


def draw_sheet(source: Path, target: Path, *, crop: bool, seed: int, frost: str) -> None:
    """Draw the contact sheet of one picture."""
    quality = _form(target, 85)
    write(contact_sheet(read(source, crop=crop), seed=seed, frost=frost), target, quality)


def _form(target: Path, quality: int | None) -> int | None:
    """The quality of a JPEG that is to get this name, None for a lossless picture; an error before any work is done."""
    if target.suffix.lower() in {".jpg", ".jpeg"} and quality is not None:
        check_quality(quality)
        return quality
    check_lossless(target)
    return None
