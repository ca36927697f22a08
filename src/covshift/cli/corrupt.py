"""`covshift corrupt`: corrupted pictures on disk, as ImageNet-C was published."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from covshift.cli import options
from covshift.support.errors import CovshiftError, plural, printable

if TYPE_CHECKING:
    from covshift.corruptions.tree import TreeSettings


def command(
    source: Annotated[Path, typer.Argument(help="Folder of class folders with pictures, or one picture.")],
    target: Annotated[Path | None, typer.Argument(help="Folder, or picture, to write; --out names it as well.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder, or picture, to write.", show_default="TARGET")] = None,
    corruptions: Annotated[
        list[str] | None,
        typer.Option(metavar="NAMES", help="Corruptions by name, or test, holdout, all.", show_default=False),
    ] = None,
    severities: options.Severities = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Write all 19 corruptions: the whole ImageNet-C tree.")
    ] = False,
    sheet: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the contact sheet of one picture instead.")
    ] = None,
    limit: Annotated[
        int | None, options.like(options.LIMIT, help="Number of pictures, spread evenly over the folder.")
    ] = None,
    crop: Annotated[bool, typer.Option(help="Resize to 256 px and cut out 224 x 224 px first.")] = True,
    jpeg: Annotated[int, typer.Option(help="JPEG quality of the files; ImageNet-C has 85.")] = 85,
    png: Annotated[bool, typer.Option("--png", help="Write lossless PNG files instead of JPEG.")] = False,
    seed: Annotated[int, typer.Option(help="Seed of the noise.")] = 0,
    frost: options.Frost = "procedural",
    plugins: options.Plugin = None,
    skip_broken: options.SkipBroken = False,
    threads: options.Threads = None,
    shard: options.Shard = None,
) -> None:
    """Corrupt pictures as ImageNet-C does; the same command resumes after an interruption.

    Examples:
    covshift corrupt val/ imagenet-c/ --all

    covshift corrupt val/ some/ --corruptions fog,snow --severities 1,3

    covshift corrupt cat.jpg foggy.png --corruptions fog --severities 3

    covshift corrupt cat.jpg --sheet sheet.png
    """
    from covshift.corruptions.sheet import write_sheet
    from covshift.corruptions.tree import write_picture
    from covshift.support.plugins import load_plugins

    load_plugins(options.split(plugins))
    if sheet is not None:
        write_sheet(source, sheet, crop=crop, seed=seed, frost=frost)
        typer.echo(printable(f"contact sheet written to {sheet}"))
        return
    if target and out:
        raise CovshiftError(f"expected one target, got {target} and --out {out}")
    written = target or out
    if written is None:
        raise CovshiftError("expected a source and a target, e.g. covshift corrupt val/ imagenet-c/ --all")
    cells = choose(options.split(corruptions), options.split(severities), everything=everything)
    settings = cells._replace(crop=crop, quality=None if png else jpeg, seed=seed, frost=frost)
    if source.is_file():
        write_picture(source, written, settings)
        typer.echo(printable(f"1 picture written to {written}"))
    else:
        typer.echo(printable(_write_tree(source, written, settings, limit, shard, skip_broken, threads)))


def choose(corruptions: list[str], severities: list[str], *, everything: bool) -> "TreeSettings":
    """Return some corruptions or all of them, at some severities or all of them.

    >>> choose(["fog", "snow"], ["5"], everything=False).cells
    [('fog', 5), ('snow', 5)]
    """
    from covshift.corruptions.registry import CorruptionGroup, names
    from covshift.corruptions.tree import TreeSettings

    if everything == bool(corruptions):
        raise CovshiftError("expected either --all or at least one of --corruptions, e.g. --corruptions fog")
    wanted: dict[str, None] = {}
    for word in ["all"] if everything else corruptions:
        wanted |= dict.fromkeys(names(word) if word in get_args(CorruptionGroup) else [word])  # type: ignore[arg-type]
    for word in severities:
        if not word.isdecimal():
            raise CovshiftError(f"expected severities from 1 to 5, e.g. --severities 1,3, got {word!r}")
    return TreeSettings(tuple(wanted), tuple(dict.fromkeys(map(int, severities))) or (1, 2, 3, 4, 5))


def _write_tree(
    source: Path,
    target: Path,
    settings: "TreeSettings",
    limit: int | None,
    shard: str | None,
    skip_broken: bool,
    threads: int | None,
) -> str:
    from covshift.corruptions.tree import pictures, places, write_tree
    from covshift.support.progress import progress_bar

    part = (0, 1)
    if shard:
        from covshift.bench.engines.where import Shard

        part = Shard.parse(shard)
    total = len(places(len(pictures(source)), limit, part)) * len(settings.cells)
    with progress_bar("corrupting", total) as advance:
        report = write_tree(
            source,
            target,
            settings,
            limit=limit,
            shard=part,
            skip_broken=skip_broken,
            threads=threads,
            advance=advance,
        )
    line = f"{plural(report.written, 'picture')} written to {target}, {report.found} were there"
    if report.broken:
        line += f", {len(report.broken)} could not be read: {', '.join(map(str, report.broken))}"
    return line
