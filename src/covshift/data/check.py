"""Is a data set whole? Images for each class, conditions that are missing, files that end too early."""

from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from covshift.corruptions import names
from covshift.corruptions.apply import cores
from covshift.corruptions.pictures import open_rgb
from covshift.corruptions.tree import pictures
from covshift.data.base import Data, FileData
from covshift.data.catalog import Source, find
from covshift.data.condition import CLEAN, SEVERITIES, Condition
from covshift.data.folder import Folder
from covshift.data.imagenet_c import find_conditions
from covshift.data.open import open_data
from covshift.errors import CovshiftError, plural
from covshift.progress import progress_bar
from covshift.uri import parse

_ENDS = {b"\xff\xd8": b"\xff\xd9", b"\x89P": b"IEND\xaeB`\x82"}
"""How JPEG and PNG files begin, and what stands at their end."""

_TAIL = 64
_BLOCK = 4096
_SHOWN = 5
_IMAGENET = 1000  # classes, of which all have as many images


@dataclass
class Report:
    """What was found."""

    uri: str
    facts: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def as_text(self) -> str:
        """For people: what is there, and what is wrong."""
        verdict = plural(len(self.problems), "problem") if self.problems else "nothing is missing"
        return "\n".join([self.uri, *self.facts, *(f"problem: {each}" for each in self.problems), verdict])


def check(uri: str, *, decode: bool = False) -> Report:
    """Look at all files of a data set.

    Args:
        uri: as `open_data` takes it.
        decode: decode every picture, instead of looking whether it ends as it should.
    """
    report = Report(uri)
    parsed = parse(uri, "data set", "imagenet-c:DIR")
    if parsed.source == "imagenet-c":
        _check_conditions(Path(parsed.name).expanduser(), report, decode)
        return report
    try:
        data = open_data(uri)
    except CovshiftError as error:
        report.problems.append(str(error))
        return report
    entry = find(parsed.source)
    report.facts += [fact for fact in (_counted(data.labels), data.remark) if fact]
    if entry is not None:
        _compare(report, "images", len(data), entry.images)
        _compare(report, "classes", len(np.unique(data.labels)), entry.classes)
        if isinstance(data, Folder):
            _compare_classes(report, data.paths, entry)
    if isinstance(data, FileData):
        broken = find_broken([data.file(CLEAN, index) for index in range(len(data))], decode=decode)
        _report_broken(report, broken)
    _check_sums(data, report)
    return report


def _compare(report: Report, what: str, found: int, expected: int) -> None:
    if expected and found != expected:
        report.problems.append(f"expected {expected} {what}, got {found}")


def _compare_classes(report: Report, paths: Iterable[Path], entry: Source) -> None:
    """Name the classes that have more or fewer images than all have, where all have as many."""
    found = Counter(path.parts[0] for path in paths)
    each, rest = divmod(entry.images, entry.classes)
    odd = {name: number for name, number in sorted(found.items()) if number != each}
    if not rest and len(found) == entry.classes == _IMAGENET and odd:
        which = _some(f"{name} ({number})" for name, number in odd.items())
        report.problems.append(f"expected {each} images of each class, got others of {which}")


def _counted(labels: Sequence[int] | np.ndarray) -> str:
    each = Counter(int(label) for label in labels)
    fewest, most = min(each.values()), max(each.values())
    return f"{len(labels)} images of {len(each)} classes, {fewest} to {most} of each"


def _check_conditions(root: Path, report: Report, decode: bool) -> None:
    try:
        places = find_conditions(root)
    except CovshiftError as error:
        report.problems.append(str(error))
        return
    missing = [c for name in names("test") for s in SEVERITIES if (c := Condition(name, s)) not in places]
    holdout = [c for name in names("holdout") for s in SEVERITIES if (c := Condition(name, s)) not in places]
    report.facts.append(f"{len(places)} of 95 conditions")
    if missing:
        report.problems.append(f"{plural(len(missing), 'test condition')} missing: {_some(map(str, missing))}")
    if holdout:
        report.facts.append(f"{plural(len(holdout), 'holdout condition')} missing: {_some(map(str, holdout))}")
    listed: dict[Condition, list[Path]] = {}
    with progress_bar("listing conditions", len(places)) as advance:
        for condition, place in places.items():
            try:
                listed[condition] = pictures(place)
            except CovshiftError as error:
                report.problems.append(str(error))
            advance(1)
    if not listed:
        return
    every = set().union(*listed.values())
    report.facts.append(_counted_folders(every))
    for condition, paths in listed.items():
        gone = sorted(every - set(paths))
        if gone:
            classes = Counter(path.parts[0] for path in gone)
            report.problems.append(
                f"{condition} lacks {plural(len(gone), 'picture')} that other conditions have, of "
                f"{_some(f'{name} ({number})' for name, number in classes.items())}"
            )
    entry = find("imagenet-c")
    if entry is not None and len({path.parts[0] for path in every}) == entry.classes:
        _compare(report, "pictures in a condition", len(every), entry.images)
        _compare_classes(report, every, entry)
    files = [places[condition] / path for condition, paths in listed.items() for path in paths]
    _report_broken(report, find_broken(files, decode=decode))


def _counted_folders(paths: set[Path]) -> str:
    order = {name: place for place, name in enumerate(sorted({path.parts[0] for path in paths}))}
    return _counted([order[path.parts[0]] for path in paths]) + " in a condition"


def find_broken(files: Sequence[Path], *, decode: bool = False) -> list[Path]:
    """The pictures that cannot be decoded whole; those that end as they should are believed, unless `decode`."""

    def broken(file: Path) -> bool:
        try:
            if not decode and _ends_well(file):
                return False
            open_rgb(file)
        except (CovshiftError, OSError):
            return True
        return False

    found: list[Path] = []
    with progress_bar("looking at pictures", len(files)) as advance, ThreadPoolExecutor(cores()) as pool:
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


def _report_broken(report: Report, broken: list[Path]) -> None:
    if broken:
        report.problems.append(f"{plural(len(broken), 'file')} damaged: {_some(map(str, broken))}")


def _check_sums(data: Data, report: Report) -> None:
    """Compare the files of CIFAR-10-C with the published checksums."""
    from covshift.cache import checksum
    from covshift.data.arrays import Cifar10C
    from covshift.data.cifar10_c_sums import MD5

    if isinstance(data, Cifar10C):
        files = {name: data.root / f"{name}.npy" for name in MD5}
        gone = [name for name, file in files.items() if not file.exists()]
        other = [name for name, file in files.items() if file.exists() and checksum(file, "MD5") != MD5[name]]
        if gone:
            report.problems.append(f"{plural(len(gone), 'file')} missing: {_some(gone)}")
        if other:
            report.problems.append(f"{plural(len(other), 'file')} not as published (MD5): {_some(other)}")


def _some(words: Iterable[str]) -> str:
    found = list(words)
    return ", ".join(found[:_SHOWN]) + (f" … {len(found) - _SHOWN} more" if len(found) > _SHOWN else "")
