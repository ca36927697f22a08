"""`folder:DIR`: pictures in a folder for each class, or pictures whose classes are not known."""

import hashlib
from functools import cache
from importlib.resources import files
from pathlib import Path

import numpy as np

from covshift.corruptions.tree import pictures
from covshift.data.base import FileData, digest_of
from covshift.data.condition import Condition
from covshift.data.unlabelled import Unlabelled
from covshift.support.errors import CovshiftError
from covshift.support.images import SUFFIXES
from covshift.support.uri import Uri

_SAMPLES = 64  # files whose content a digest looks at


class _InFolder(FileData):
    """Pictures under a folder, in the order of their paths."""

    def __init__(self, uri: str, root: Path) -> None:
        self.uri = uri
        self.root = root
        self.paths = pictures(root)

    def __len__(self) -> int:
        return len(self.paths)

    def file(self, condition: Condition, index: int) -> Path:
        """Return the path of an image's file."""
        return self.root / self.paths[index]

    def image_name(self, index: int) -> str:
        """Return the path of an image's file, from the folder of the data on."""
        return self.paths[index].as_posix()

    def _digest(self) -> str:
        # The content of some files, evenly spaced: all of ImageNet would take minutes to read.
        some = self.paths[:: max(1, len(self.paths) // _SAMPLES)]
        sizes = [(path.as_posix(), (self.root / path).stat().st_size) for path in self.paths]
        return digest_of([*sizes, [hashlib.sha256((self.root / path).read_bytes()).hexdigest() for path in some]])


class Pictures(_InFolder, Unlabelled):
    """Pictures anywhere under a folder, without labels."""

    remedy = "put the pictures of each class in a folder of its own"

    def __init__(self, uri: str, root: Path) -> None:
        super().__init__(uri, root)
        self.digest = self._digest()


class Folder(_InFolder):
    """Pictures by class folder, in the order of their paths, in which `covshift corrupt` counts them too.

    Classes are the folders' names in order; numbers are ordered as numbers. Folders with ImageNet's names (n01440764)
    have ImageNet's class indices, also where only some of them are there.
    """

    def __init__(self, uri: str, root: Path, *, wnids_count: bool = True) -> None:
        super().__init__(uri, root)
        self.wnids_count = wnids_count
        stray = next((path for path in self.paths if len(path.parts) < 2), None)
        if stray is not None:
            raise CovshiftError(f"expected a folder for each class in {root}, but {stray} is in none")
        index = self.index({path.parts[0] for path in self.paths})
        self.paths = [path for path in self.paths if path.parts[0] in index]
        self.labels = np.array([index[path.parts[0]] for path in self.paths], np.int64)
        by_wnid = wnids_count and is_imagenet(index)
        self.classes = len(wnids()) if by_wnid else len(index)
        folders = {label: name for name, label in sorted(index.items(), reverse=True)}
        self.class_names = tuple(folders.get(label, "") for label in range(max(folders, default=-1) + 1))
        self.imagenet = by_wnid and len(index) == len(wnids())
        self.digest = self._digest()

    def index(self, folders: set[str]) -> dict[str, int]:
        """Return the class that each folder stands for; folders that are left out do not count."""
        return class_indices(folders, wnids_count=self.wnids_count)


def open_folder(uri: Uri) -> Folder | Pictures:
    """Open `folder:DIR`: labelled by its class folders or, where there are none, unlabelled.

    With `?wnids=no`, folders with ImageNet's names are classes of their own, for a model with as many classes.
    """
    uri.check_query("wnids")
    wish = uri.query.get("wnids", "yes")
    if wish not in ("yes", "no"):
        raise CovshiftError(f"expected wnids=yes or wnids=no, got {wish!r}")
    root = Path(uri.name).expanduser()
    if _is_flat(root):
        return Pictures(uri.text, root)
    return Folder(uri.text, root, wnids_count=wish == "yes")


def _is_flat(root: Path) -> bool:
    # Class folders hold many pictures, which are listed once; so first check for pictures beside the folders.
    beside = root.is_dir() and any(path.suffix.lower() in SUFFIXES for path in root.iterdir())
    return beside and all(len(path.parts) < 2 for path in pictures(root))


def class_indices(folders: set[str], *, wnids_count: bool = True) -> dict[str, int]:
    """Return the class that each folder stands for; with `wnids_count`, ImageNet's names have ImageNet's indices.

    >>> class_indices({"10", "9"})
    {'9': 0, '10': 1}
    >>> class_indices({"n01443537"})
    {'n01443537': 1}
    """
    if wnids_count and is_imagenet(folders):
        return {name: wnids()[name] for name in sorted(folders)}
    by_number = all(name.isdecimal() for name in folders)
    ordered = sorted(sorted(folders), key=int) if by_number else sorted(folders)
    return {name: position for position, name in enumerate(ordered)}


def is_imagenet(folders: set[str] | dict[str, int]) -> bool:
    """Return whether all of these are names of ImageNet's thousand classes."""
    return all(name in wnids() for name in folders)


@cache
def wnids() -> dict[str, int]:
    """Return the names of ImageNet's classes, each with its index."""
    lines = files("covshift.data").joinpath("imagenet_wnids.txt").read_text().split()
    return {name: index for index, name in enumerate(lines)}
