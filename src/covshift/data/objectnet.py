"""`objectnet:DIR`: photographs of household objects in odd places and poses, some of ImageNet's classes."""

from functools import cache
from importlib.resources import files
from pathlib import Path

from PIL import Image

from covshift.data.folder import Folder
from covshift.support.errors import CovshiftError, unknown
from covshift.support.uri import Uri

BORDER = 2
"""Width of the red frame in pixels, which marks a test image for people and machines."""

IMAGENET_CLASSES = 1000

CAUTION = (
    "ObjectNet's terms forbid tuning any parameters on it; whether statistics count as such is for you to judge: "
    "report adapted figures as what they are, and never keep an adapted model"
)


class ObjectNet(Folder):
    """The folders that stand for exactly one class of ImageNet; the others are ignored.

    Args:
        uri: the URI that it was opened by.
        root: the folder with a folder for each kind of object.
        drop: folders to leave out besides those that stand for several classes.
        mask: whether to compare logits among the classes that are left only; ObjectNet's authors compare all.
    """

    caution = CAUTION

    def __init__(self, uri: str, root: Path, *, drop: frozenset[str] = frozenset(), mask: bool = False) -> None:
        for name in sorted(drop - mapping().keys()):
            raise unknown("folder of ObjectNet that is in ImageNet", name, mapping())
        self._drop = drop
        super().__init__(uri, root)
        self.classes, self.imagenet = IMAGENET_CLASSES, False
        kept = {path.parts[0] for path in self.paths}
        self.remark = (
            f"ObjectNet: {len(kept)} of {len(unambiguous())} classes that stand for one class of ImageNet, "
            f"{len(self)} images; {len(mapping()) - len(unambiguous())} that stand for several are left out "
            "(the paper counts 109, the public mapping gives 104)"
        )
        if mask:
            self.among = tuple(sorted({unambiguous()[name] for name in unambiguous() if name not in drop}))

    def index(self, folders: set[str]) -> dict[str, int]:
        """Return the class index of each folder, by the public mapping."""
        found = {name: unambiguous()[name] for name in sorted(folders - self._drop) if name in unambiguous()}
        if not found:
            raise CovshiftError(f"expected folders such as banana and still_camera in {self.root}, found none")
        return found

    def picture(self, path: Path) -> Image.Image:
        """Decode a file and cut off its frame."""
        picture = super().picture(path)
        width, height = picture.size
        if min(picture.size) <= 2 * BORDER:
            raise CovshiftError(f"cannot read the picture {path} (its {width} x {height} px are all frame)")
        return picture.crop((BORDER, BORDER, width - BORDER, height - BORDER))


def open_objectnet(uri: Uri) -> ObjectNet:
    """Open `objectnet:DIR?drop=FOLDER,FOLDER&mask=yes`."""
    uri.check_query("drop", "mask")
    root = Path(uri.name).expanduser()
    places = (root / "objectnet-1.0" / "images", root / "images", root)
    drop = frozenset(name for name in uri.query.get("drop", "").split(",") if name)
    return ObjectNet(
        uri.text, next(place for place in places if place.is_dir() or place == root), drop=drop, mask=uri.flag("mask")
    )


@cache
def mapping() -> dict[str, tuple[int, ...]]:
    """Return ObjectNet's folders that are in ImageNet, each with the indices of its classes there.

    >>> mapping()["chair"]
    (423, 559, 765)
    """
    lines = files("covshift.data").joinpath("objectnet_classes.txt").read_text().splitlines()
    return {name: tuple(map(int, numbers)) for name, *numbers in map(str.split, lines)}


@cache
def unambiguous() -> dict[str, int]:
    """Return the folders that stand for one class."""
    return {name: indices[0] for name, indices in mapping().items() if len(indices) == 1}
