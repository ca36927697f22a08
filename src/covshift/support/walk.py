"""Walking through folders: each of them once, wherever links lead."""

import os
from collections import deque
from collections.abc import Hashable
from pathlib import Path
from typing import NamedTuple

from covshift.support.errors import CovshiftError


class Walked(NamedTuple):
    """The files and links that a walk came across.

    Attributes:
        files: everything that is not a folder, below the root, in no particular order.
        repeated: linked folders that are part of the tree already, so that their files were listed once.
    """

    files: list[Path]
    repeated: list[Path]


def walk(root: Path) -> Walked:
    """Return all files below a folder, also in linked folders, each folder once.

    A link back to a folder above it would otherwise repeat the tree until the path is too long. Folders come before
    links to them, so that files keep the name that they have without any link.

    Raises:
        CovshiftError: if a folder cannot be listed.
    """
    files: list[Path] = []
    repeated: list[Path] = []
    seen: set[Hashable] = set()
    links = deque([root])
    while links:
        start = links.popleft()
        for place, folders, names in os.walk(start, onerror=_refuse):
            folder = Path(place)
            if (identity := _identity(folder)) in seen:
                repeated.append(folder)
                folders.clear()
                continue
            seen.add(identity)
            files += (folder / name for name in names)
            linked = {name for name in folders if _is_link(folder / name)}
            links.extend(folder / name for name in sorted(linked))
            folders[:] = [name for name in folders if name not in linked]
    return Walked(files, sorted(repeated))


def _is_link(folder: Path) -> bool:
    # Windows has another kind of link, which Python knows from 3.12 on, and then does not walk into.
    return folder.is_symlink() or getattr(os.path, "isjunction", os.path.islink)(folder)


def _identity(folder: Path) -> Hashable:
    """Return what a folder and all links to it have in common; some network drives number nothing."""
    found = folder.stat()
    return (found.st_dev, found.st_ino) if found.st_ino else folder.resolve()


def _refuse(error: OSError) -> None:
    raise CovshiftError(f"cannot list the folder {error.filename}: {error.strerror}") from error
