"""A whole corrupted data set on disk: `corruption/severity/class/file.JPEG`, as ImageNet-C was published."""

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from covshift.corruptions.apply import check_severity, corrupt
from covshift.corruptions.registry import category
from covshift.corruptions.textures import frost_source
from covshift.support.device import cores
from covshift.support.errors import CovshiftError
from covshift.support.files import LONGEST, remove_parts, replacing
from covshift.support.images import SUFFIXES, check_quality, quality_for, read_image, write_image
from covshift.support.walk import walk

SETTINGS = "covshift-corrupt.json"
"""Name of the file in a tree that records how its pictures were made."""

BLOCK = 64
"""Number of pictures queued at a time: an error stops the run soon, and a large data set needs no large queue."""


class TreeSettings(NamedTuple):
    """The settings of a corrupted tree: everything but its source and its target."""

    corruptions: tuple[str, ...]
    severities: tuple[int, ...] = (1, 2, 3, 4, 5)
    crop: bool = True
    quality: int | None = 85
    seed: int = 0
    frost: str = "procedural"

    @property
    def cells(self) -> list[tuple[str, int]]:
        """Every corruption at every severity."""
        return list(product(self.corruptions, self.severities))

    def path(self, name: str, severity: int, file: Path) -> Path:
        """Return the path, below the target, of a picture's corrupted version."""
        return Path(name) / str(severity) / file.with_suffix(".png" if self.quality is None else ".JPEG")


class TreeResult(NamedTuple):
    """The number of pictures that a run wrote, the number that existed already, and those that it could not read."""

    written: int
    found: int
    broken: tuple[Path, ...]


def pictures(source: Path) -> list[Path]:
    """Return all pictures under a folder, sorted, relative to it."""
    if not source.is_dir():
        raise CovshiftError(f"expected a folder of pictures, got {source}")
    # Linked folders count, as they do for torchvision, but once.
    found = walk(source).files
    files = sorted(file.relative_to(source) for file in found if file.suffix.lower() in SUFFIXES and file.is_file())
    if not files:
        raise CovshiftError(f"expected pictures ({', '.join(sorted(SUFFIXES))}) under {source}, found none")
    return files


def places(total: int, limit: int | None = None, shard: tuple[int, int] = (0, 1)) -> Sequence[int]:
    """Return the places, in the sorted list of all pictures, of those that a shard corrupts.

    >>> places(10, limit=4), places(10, limit=4, shard=(1, 2)), list(places(3))
    ([0, 2, 5, 7], [2, 7], [0, 1, 2])
    """
    spread = range(total) if limit is None or limit >= total else [i * total // limit for i in range(limit)]
    return spread[shard[0] :: shard[1]]


def write_tree(
    source: Path,
    target: Path,
    settings: TreeSettings,
    *,
    limit: int | None = None,
    shard: tuple[int, int] = (0, 1),
    skip_broken: bool = False,
    threads: int | None = None,
    advance: Callable[[int], None] = lambda steps: None,
) -> TreeResult:
    """Corrupt all pictures under a folder; existing results are kept, so a killed run resumes where it stopped.

    A picture's index, and with it its noise, is its place in the sorted list of all pictures under `source`. So a run
    that was killed, or split into shards, ends with the same bytes as one that was not.

    Args:
        source: A folder of class folders with pictures.
        target: The folder to write `corruption/severity/class/file.JPEG` to.
        settings: The corruptions, and how they are made.
        limit: The number of pictures to corrupt, spread evenly over the source; by default all.
        shard: (i, n) takes every n-th picture, from the i-th on.
        skip_broken: Leave out pictures that cannot be read.
        threads: The number of pictures to work on at a time; by default one per core.
        advance: Called with the number of corrupted pictures that were added.
    """
    files = pictures(source)
    _check(settings, files)
    if target.resolve().is_relative_to(source.resolve()):
        raise CovshiftError(f"expected a target outside the source, got {target}: its pictures would become sources")
    _agree(target / SETTINGS, _settings(settings, files))
    mine = places(len(files), limit, shard)
    _tidy(target, settings, [files[index] for index in mine])

    def work(index: int) -> int | None:
        missing = [cell for cell in settings.cells if not (target / settings.path(*cell, files[index])).exists()]
        advance(len(settings.cells) - len(missing))
        if not missing:
            return 0
        try:
            image = read_image(source / files[index], crop=settings.crop)
        except CovshiftError as error:
            if not skip_broken:
                raise CovshiftError(f"{error}; repair or remove it, or leave it out with `skip_broken=True`") from error
            advance(len(missing))
            return None
        for name, severity in missing:
            result = corrupt(image, name, severity, seed=settings.seed, indices=index, frost=settings.frost, threads=1)
            write_image(result, target / settings.path(name, severity, files[index]), settings.quality)
            advance(1)
        return len(missing)

    made: list[int | None] = []
    with ThreadPoolExecutor(threads or cores()) as pool:
        for start in range(0, len(mine), BLOCK):
            made += pool.map(work, mine[start : start + BLOCK])
    broken = tuple(source / files[i] for i, count in zip(mine, made, strict=True) if count is None)
    written = sum(count for count in made if count is not None)
    return TreeResult(written, len(settings.cells) * (len(mine) - len(broken)) - written, broken)


def _tidy(target: Path, settings: TreeSettings, files: Sequence[Path]) -> None:
    """Remove what a killed process has left of these pictures, half written."""
    names: dict[Path, set[str]] = {}
    for file in files:
        names.setdefault(file.parent, set()).add(settings.path("", 0, file).name)
    for (name, severity), inside in product(settings.cells, names):
        remove_parts(target / name / str(severity) / inside, names[inside])


def write_picture(source: Path, target: Path, settings: TreeSettings) -> None:
    """Corrupt one picture at its own size; the settings must have one corruption at one severity."""
    if len(settings.cells) != 1:
        raise CovshiftError(
            f"expected one corruption at one severity for one picture, got {len(settings.cells)} combinations of them"
        )
    name, severity = settings.cells[0]
    quality = quality_for(target, settings.quality)
    image = corrupt(read_image(source, crop=False), name, severity, seed=settings.seed, frost=settings.frost)
    write_image(image, target, quality)


def _check(settings: TreeSettings, files: Sequence[Path]) -> None:
    """Raise a `CovshiftError` now for what would fail after hours."""
    for name, severity in settings.cells:
        category(name)
        check_severity(severity)
    if settings.quality is not None:
        check_quality(settings.quality)
    seen: dict[Path, Path] = {}
    for file in files:
        if (length := len(os.fsencode(settings.path("", 0, file).name))) > LONGEST:
            raise CovshiftError(
                f"expected names of up to {LONGEST} bytes, got {length} for what {file} would be written to; shorten it"
            )
        other = seen.setdefault(file.with_suffix(""), file)
        if other != file:
            raise CovshiftError(f"{other} and {file} would be written to the same name; rename one of them")


def _settings(settings: TreeSettings, files: Sequence[Path]) -> dict[str, Any]:
    names = b"\n".join(os.fsencode(file) for file in files)
    ice = {"frost": frost_source(settings.frost)} if "frost" in settings.corruptions else {}
    return {
        "seed": settings.seed,
        "crop": settings.crop,
        "quality": settings.quality,
        "source pictures": f"{len(files)} sha256:{hashlib.sha256(names).hexdigest()[:12]}",
        **ice,
    }


def _agree(path: Path, settings: dict[str, Any]) -> None:
    """Refuse to mix pictures made in different ways in one tree; record how they are made."""
    try:
        before = json.loads(path.read_text()) if path.exists() else {}
    except ValueError as error:
        raise CovshiftError(
            f"{path} is damaged ({error}); delete it if you know how the pictures beside it were made"
        ) from error
    for key, value in settings.items():
        if before.get(key, value) != value:
            raise CovshiftError(
                f"{path.parent} was begun with {key} {before[key]!r}, this run has {value!r}; "
                "repeat the first run's settings, or write to another folder"
            )
    with replacing(path) as part:
        part.write_text(json.dumps(before | settings, indent=1) + "\n")
