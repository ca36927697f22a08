"""Check that a data set is complete: images of each class, missing conditions, files that end too early."""

from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from covshift.corruptions import names
from covshift.corruptions.tree import pictures
from covshift.data.base import Data, FileData
from covshift.data.catalog import CatalogEntry, find_catalog_entry
from covshift.data.condition import CLEAN, SEVERITIES, Condition
from covshift.data.folder import Folder, Pictures, is_imagenet, wnids
from covshift.data.imagenet import Numbered
from covshift.data.imagenet_c import find_conditions
from covshift.data.objectnet import ObjectNet, unambiguous
from covshift.data.open import open_data
from covshift.support.device import cores
from covshift.support.errors import CovshiftError, plural, printable
from covshift.support.images import check_header, open_rgb
from covshift.support.progress import progress_bar
from covshift.support.uri import parse
from covshift.support.walk import walk

_ENDS = {b"\xff\xd8": b"\xff\xd9", b"\x89P": b"IEND\xaeB`\x82"}
"""The first bytes of JPEG and PNG files, and the last ones."""

_TAIL = 64
_BLOCK = 4096
_SHOWN = 5


@dataclass
class CheckResult:
    """The result of checking a data set.

    Attributes:
        uri: the URI of the data set.
        facts: statements on what the data set has.
        problems: statements on what is missing or wrong.
        counts: the number of images of each class, by the name of its folder or, where there is none, by its index.
    """

    uri: str
    facts: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    def as_text(self) -> str:
        """Return the result as text, for people."""
        verdict = plural(len(self.problems), "problem") if self.problems else "nothing is missing"
        lines = [self.uri, *self.facts, *(f"problem: {each}" for each in self.problems), verdict]
        return "\n".join(map(printable, lines))


def check(uri: str, *, decode: bool = False) -> CheckResult:
    """Check all files of a data set.

    Args:
        uri: a URI as for `open_data`.
        decode: whether to decode every picture, instead of checking only that its file ends as it should.
    """
    result = CheckResult(uri)
    parsed = parse(uri, "data set", "imagenet-c:DIR")
    if parsed.source == "imagenet-c":
        _check_conditions(Path(parsed.name).expanduser(), result, decode)
        return result
    try:
        data = open_data(uri)
    except CovshiftError as error:
        result.problems.append(str(error))
        return result
    entry = find_catalog_entry(parsed.source)
    if data.labelled:
        _count(result, (path.parts[0] for path in data.paths) if isinstance(data, Folder) else map(str, data.labels))
    else:
        result.facts.append(f"{plural(len(data), 'image')} without labels")
    result.facts += [data.remark] if data.remark else []
    if entry is not None:
        _compare(result, "images", len(data), entry.images)
        _compare_classes(result, entry, _folders(data))
    if isinstance(data, Folder | Pictures) and (again := walk(data.root).repeated):
        links = plural(len(again), "link")
        result.facts.append(f"{links} to folders that are counted already: {_some(map(str, again))}")
    if isinstance(data, FileData):
        broken = find_broken([data.file(CLEAN, index) for index in range(len(data))], decode=decode)
        _report_broken(result, broken)
    _check_sums(data, result)
    return result


def _compare(result: CheckResult, what: str, found: int, expected: int) -> None:
    if expected and found != expected:
        result.problems.append(f"expected {expected} {what}, got {found}")


def _folders(data: Data) -> set[str]:
    """Return the folders that a whole copy has, where their names are known."""
    if isinstance(data, ObjectNet):
        return set(unambiguous())
    if isinstance(data, Numbered):
        return {str(index) for index in wnids().values()}
    among = None if data.among is None else set(data.among)
    return {name for name, index in wnids().items() if among is None or index in among}


def _compare_classes(result: CheckResult, entry: CatalogEntry, folders: set[str]) -> None:
    """Report classes that are missing or, where all should have equally many images, have another number."""
    found = result.counts
    _compare(result, "classes", len(found), entry.classes)
    if found.keys() <= folders and (gone := _ordered(folders - found.keys())):
        result.problems.append(f"no images of {_some(gone)}")
    each, rest = divmod(entry.images, entry.classes)
    odd = [f"{name} ({number})" for name, number in found.items() if number != each]
    if not rest and len(found) == entry.classes == len(wnids()) and odd:
        result.problems.append(f"expected {each} images of each class, got others of {_some(odd)}")


def _count(result: CheckResult, classes: Iterable[str], where: str = "") -> None:
    """Count the images of each class."""
    found = Counter(classes)
    result.counts = {name: found[name] for name in _ordered(found)}
    each = result.counts.values()
    result.facts.append(f"{sum(each)} images of {len(each)} classes, {min(each)} to {max(each)} of each{where}")


def _check_conditions(root: Path, result: CheckResult, decode: bool) -> None:
    try:
        places = find_conditions(root)
    except CovshiftError as error:
        result.problems.append(str(error))
        return
    missing = [c for name in names("test") for s in SEVERITIES if (c := Condition(name, s)) not in places]
    holdout = [c for name in names("holdout") for s in SEVERITIES if (c := Condition(name, s)) not in places]
    result.facts.append(f"{len(places)} of 95 conditions")
    if missing:
        result.problems.append(f"{plural(len(missing), 'test condition')} missing: {_some(map(str, missing))}")
    if holdout:
        result.facts.append(f"{plural(len(holdout), 'holdout condition')} missing: {_some(map(str, holdout))}")
    listed: dict[Condition, list[Path]] = {}
    with progress_bar("listing conditions", len(places)) as advance:
        for condition, place in places.items():
            try:
                listed[condition] = pictures(place)
            except CovshiftError as error:
                result.problems.append(str(error))
            advance(1)
    if not listed:
        return
    every = set().union(*listed.values())
    if stray := next((path for path in sorted(every) if len(path.parts) < 2), None):
        result.problems.append(f"expected a folder for each class in each condition, but {stray} is in none")
        return
    _count(result, (path.parts[0] for path in every), " in a condition")
    for condition, paths in listed.items():
        gone = sorted(every - set(paths))
        if gone:
            classes = Counter(path.parts[0] for path in gone)
            result.problems.append(
                f"{condition} lacks {plural(len(gone), 'picture')} that other conditions have, of "
                f"{_some(f'{name} ({number})' for name, number in classes.items())}"
            )
    entry = find_catalog_entry("imagenet-c")
    if entry is not None and is_imagenet(result.counts):
        _compare(result, "pictures in a condition", len(every), entry.images)
        _compare_classes(result, entry, set(wnids()))
    files = [places[condition] / path for condition, paths in listed.items() for path in paths]
    _report_broken(result, find_broken(files, decode=decode))


def find_broken(files: Sequence[Path], *, decode: bool = False) -> list[Path]:
    """Return the pictures that cannot be decoded; files that end as they should are trusted unless `decode`."""

    def broken(file: Path) -> bool:
        try:
            if decode or not _ends_well(file):
                open_rgb(file)
            else:
                check_header(file)
        except (CovshiftError, OSError):
            return True
        return False

    found: list[Path] = []
    with progress_bar("checking pictures", len(files)) as advance, ThreadPoolExecutor(cores()) as pool:
        for start in range(0, len(files), _BLOCK):
            block = files[start : start + _BLOCK]
            found += [file for file, bad in zip(block, pool.map(broken, block), strict=True) if bad]
            advance(len(block))
    return found


def _ends_well(file: Path) -> bool:
    with file.open("rb") as opened:
        end = _ENDS.get(opened.read(2))
        opened.seek(max(0, file.stat().st_size - _TAIL))
        return end is not None and end in opened.read()


def _report_broken(result: CheckResult, broken: list[Path]) -> None:
    if broken:
        result.problems.append(f"{plural(len(broken), 'file')} damaged: {_some(map(str, broken))}")


def _check_sums(data: Data, result: CheckResult) -> None:
    """Compare CIFAR-10, as it is in the cache, and the files of CIFAR-10-C with the published checksums."""
    from covshift.data.arrays import Cifar10C, CleanArray
    from covshift.data.cifar10 import DIGESTS, CifarImages, as_published
    from covshift.data.cifar10_c_sums import MD5
    from covshift.support.cache import checksum, home

    if isinstance(data, CleanArray) and data.uri.startswith("builtin:"):
        found = CifarImages(data.array(CLEAN), data.labels)
        if not as_published(found, "test"):
            expected = f"the published test images of CIFAR-10 (SHA-256 {DIGESTS['test'][:12]})"
            result.problems.append(f"expected {expected}, got others; delete the folder {home() / 'cifar10'}")
    if isinstance(data, Cifar10C):
        files = {name: data.root / f"{name}.npy" for name in MD5}
        gone = [name for name, file in files.items() if not file.exists()]
        other = [name for name, file in files.items() if file.exists() and checksum(file, "MD5") != MD5[name]]
        if gone:
            result.problems.append(f"{plural(len(gone), 'file')} missing: {_some(gone)}")
        if other:
            result.problems.append(f"{plural(len(other), 'file')} not as published (MD5): {_some(other)}")


def _ordered(names: Iterable[str]) -> list[str]:
    """Return the names in order, numbers as numbers."""
    return sorted(names, key=lambda name: (int(name) if name.isdecimal() else 0, name))


def _some(words: Iterable[str]) -> str:
    found = list(words)
    return ", ".join(found[:_SHOWN]) + (f" … {len(found) - _SHOWN} more" if len(found) > _SHOWN else "")
