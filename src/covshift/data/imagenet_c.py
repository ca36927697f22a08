"""`imagenet-c:DIR`: the published tree, `corruption/severity/class/file`, as `covshift corrupt` writes it, too."""

from pathlib import Path

from covshift.corruptions import names
from covshift.corruptions.tree import pictures
from covshift.data.base import digest_of
from covshift.data.condition import SEVERITIES, Condition
from covshift.data.folder import Folder
from covshift.support.errors import CovshiftError
from covshift.support.uri import Uri


class ImageNetC(Folder):
    """The tree of ImageNet-C: one list of pictures, read off its first condition, and a folder for each condition."""

    def __init__(self, uri: str, root: Path) -> None:
        places = find_conditions(root)
        super().__init__(uri, next(iter(places.values())))
        self.places = places
        self.stored = frozenset(places)
        self.digest = digest_of([self.digest, sorted(places)])
        # All of them would take long to list; a tree that was cut short rarely is in the same way everywhere.
        for condition in (list(places)[len(places) // 2], list(places)[-1]):
            other = pictures(places[condition])
            if other != self.paths:
                odd = sorted(set(other) ^ set(self.paths))[0]
                raise CovshiftError(
                    f"expected the same pictures in {self.root} and {places[condition]}, got {len(self.paths)} and "
                    f"{len(other)}; the first that is not in both is {odd}"
                )

    def file(self, condition: Condition, index: int) -> Path:
        """Return the path of an image's file."""
        return self.places[condition] / self.paths[index]


def open_imagenet_c(uri: Uri) -> ImageNetC:
    """Open `imagenet-c:DIR`."""
    uri.check_query("clean")
    return ImageNetC(uri.text, Path(uri.name).expanduser())


def find_conditions(root: Path) -> dict[Condition, Path]:
    """Find the folder of each condition; published archives may lie in folders of their own (`blur/motion_blur/3`)."""
    places = {
        Condition(name, severity): parent / name / str(severity)
        for parent in (root, *sorted(root.glob("*/")))
        for name in names("all")
        for severity in SEVERITIES
        if (parent / name / str(severity)).is_dir()
    }
    if not places:
        raise CovshiftError(f"expected folders such as {root}/fog/3, with a folder for each class, found none")
    return places
