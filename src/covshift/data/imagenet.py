"""ImageNet and the sets with its classes: `imagenet:`, `imagenet-a:`, `imagenet-r:` and `imagenet-v2:DIR`."""

from pathlib import Path

import numpy as np

from covshift.corruptions.tree import pictures
from covshift.data.base import Data, FileData, digest_of
from covshift.data.condition import Condition
from covshift.data.folder import Folder, wnids
from covshift.data.subsets import IMAGENET_A, IMAGENET_R
from covshift.support.errors import CovshiftError, unknown
from covshift.support.uri import Uri

VARIANTS = ("matched-frequency", "threshold0.7", "top-images")
DEVKIT = "ILSVRC2012_devkit_t12"
_VALIDATION = f"ILSVRC2012_val_{'[0-9]' * 8}.JPEG"


class Flat(FileData):
    """The validation images as their archive holds them, without class folders; labels come from the devkit."""

    classes = 1000
    imagenet = True

    def __init__(self, uri: str, root: Path, devkit: Path) -> None:
        self.uri, self.root = uri, root
        self.paths = [path for path in pictures(root) if path.match(_VALIDATION)]
        truth = _ground_truth(devkit)
        numbers = [int(path.stem.rpartition("_")[2]) for path in self.paths]
        if max(numbers) > len(truth):
            raise CovshiftError(f"expected labels of {max(numbers)} images in {devkit}, got {len(truth)}")
        self.labels = np.array([truth[number - 1] for number in numbers], np.int64)
        sizes = [(path.as_posix(), (root / path).stat().st_size) for path in self.paths]
        self.digest = digest_of([*sizes, self.labels.tolist()])

    def file(self, condition: Condition, index: int) -> Path:
        """Return the path of an image's file."""
        return self.root / self.paths[index]

    def image_name(self, index: int) -> str:
        """Return the path of an image's file, from the folder of the data on."""
        return self.paths[index].as_posix()


class Subset(Folder):
    """Folders by ImageNet's names, of some classes; logits are compared among these only, as their authors do."""

    def __init__(self, uri: str, root: Path, among: tuple[int, ...]) -> None:
        self.among = among
        super().__init__(uri, root)

    def index(self, folders: set[str]) -> dict[str, int]:
        """Return the class index of each folder, by ImageNet's names."""
        index = {name: wnids()[name] for name in sorted(folders) if name in wnids()}
        odd = [name for name in sorted(folders) if index.get(name) not in set(self.among or ())]
        if odd:
            raise CovshiftError(f"expected folders of the {len(self.among or ())} classes of {self.uri}, got {odd[0]}")
        return index


class Numbered(Folder):
    """Folders whose names are ImageNet's class indices, and are ordered as numbers."""

    def __init__(self, uri: str, root: Path) -> None:
        super().__init__(uri, root)
        self.classes = 1000

    def index(self, folders: set[str]) -> dict[str, int]:
        """Return the class index of each folder, by its number, also where some are missing."""
        odd = [name for name in sorted(folders) if not (name.isdecimal() and int(name) < len(wnids()))]
        if odd:
            raise CovshiftError(f"expected folders 0 to 999 in {self.root}, got {odd[0]}")
        return {name: int(name) for name in folders}


def open_imagenet(uri: Uri) -> Data:
    """Open `imagenet:DIR`: the validation images, in class folders or as their archive holds them."""
    uri.check_query()
    root = Path(uri.name).expanduser()
    place = inside(root, "val", "ILSVRC/Data/CLS-LOC/val")
    if next(place.glob(_VALIDATION), None) is None:
        data = Folder(uri.text, place)
        if data.classes != len(wnids()):
            raise CovshiftError(f"expected folders with ImageNet's names (n01440764) in {place}, got others")
        return data
    for parent in (place, root, root.parent):
        if (parent / DEVKIT).is_dir():
            return Flat(uri.text, place, parent / DEVKIT)
    raise CovshiftError(
        f"{place} has no class folders; put the devkit beside it, unpacked to {root / DEVKIT}: it holds the labels "
        "of the images"
    )


def open_imagenet_a(uri: Uri) -> Subset:
    """Open `imagenet-a:DIR`."""
    uri.check_query()
    return Subset(uri.text, inside(Path(uri.name).expanduser(), "imagenet-a"), IMAGENET_A)


def open_imagenet_r(uri: Uri) -> Subset:
    """Open `imagenet-r:DIR`."""
    uri.check_query()
    return Subset(uri.text, inside(Path(uri.name).expanduser(), "imagenet-r"), IMAGENET_R)


def open_imagenet_v2(uri: Uri) -> Numbered:
    """Open `imagenet-v2:DIR?variant=matched-frequency`, where DIR holds the three; or DIR is one of them."""
    uri.check_query("variant")
    variant = uri.query.get("variant")
    if variant is not None and variant not in VARIANTS:
        raise unknown("variant of ImageNet-V2", variant, VARIANTS)
    root = Path(uri.name).expanduser()
    there = [name for name in VARIANTS if (root / _folder(name)).is_dir()]
    if variant is None and len(there) > 1:
        raise CovshiftError(f"{root} holds {', '.join(there)}; choose one: {uri.text}?variant={there[0]}")
    if variant is not None and root.name != _folder(variant) and variant not in there:
        raise CovshiftError(f"expected a folder {_folder(variant)} in {root}, found none")
    return Numbered(uri.text, inside(root, *(_folder(name) for name in ([variant] if variant else there))))


def _folder(variant: str) -> str:
    return f"imagenetv2-{variant}-format-val"


def inside(root: Path, *names: str) -> Path:
    """Return the folder of one of these names in `root`, else `root`: archives bring a folder of their own."""
    return next((root / name for name in names if (root / name).is_dir()), root)


def _ground_truth(devkit: Path) -> list[int]:
    """Return the class of each validation image; the devkit counts classes from 1 in an order of its own."""
    from scipy.io import loadmat

    data = devkit / "data"
    try:
        synsets = loadmat(data / "meta.mat", squeeze_me=True)["synsets"]
        by_id = {int(synset["ILSVRC2012_ID"]): wnids().get(str(synset["WNID"])) for synset in synsets}
        numbers = (data / "ILSVRC2012_validation_ground_truth.txt").read_text().split()
        labels = [by_id[int(number)] for number in numbers]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CovshiftError(f"expected meta.mat and the ground truth in {data}, got: {error}") from error
    if None in labels:
        raise CovshiftError(f"expected the ground truth in {data} to be of ImageNet's thousand classes")
    return [label for label in labels if label is not None]
