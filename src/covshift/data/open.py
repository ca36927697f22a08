"""`open_data`: the one door to images, wherever they come from."""

from collections.abc import Callable, Sequence
from pathlib import Path

from covshift.data.arrays import open_builtin, open_cifar10_c, open_npz
from covshift.data.base import Data, Preparing, digest_of
from covshift.data.condition import Condition
from covshift.data.folder import Pictures, open_folder
from covshift.data.imagenet import open_imagenet, open_imagenet_a, open_imagenet_r, open_imagenet_v2
from covshift.data.imagenet_c import open_imagenet_c
from covshift.data.objectnet import open_objectnet
from covshift.data.video import open_video
from covshift.support.arrays import Array
from covshift.support.errors import CovshiftError, unknown
from covshift.support.uri import Uri, parse

SOURCES: dict[str, Callable[[Uri], Data]] = {
    "builtin": open_builtin,
    "folder": open_folder,
    "imagenet": open_imagenet,
    "imagenet-c": open_imagenet_c,
    "imagenet-a": open_imagenet_a,
    "imagenet-r": open_imagenet_r,
    "imagenet-v2": open_imagenet_v2,
    "objectnet": open_objectnet,
    "cifar10-c": open_cifar10_c,
    "npz": open_npz,
    "video": open_video,
}
"""Sources by the word that a URI begins with, each with the function that opens it; a new source adds a line here."""


def open_data(uri: str) -> Data:
    """Open images by their URI.

    `builtin:cifar10` (fetched once into the cache folder), `folder:DIR` (labelled by class folders, where there are
    any), `imagenet:DIR`, `imagenet-c:DIR`, `imagenet-a:DIR`, `imagenet-r:DIR`, `imagenet-v2:DIR`, `objectnet:DIR` and
    `cifar10-c:DIR` (as published), `npz:FILE` (arrays `images` and `labels`), `video:FILE?every=10` (every tenth frame,
    without labels). Published sets of corrupted images hold no clean ones; name a source of these to have them too:
    `imagenet-c:DIR?clean=folder:val`.
    """
    parsed = parse(uri, "data set", "folder:val")
    if parsed.source not in SOURCES:
        raise unknown("data source", parsed.source, SOURCES)
    data = SOURCES[parsed.source](parsed)
    clean = parsed.query.get("clean")
    return data if clean is None else _WithClean(data, open_data(clean))


def open_unlabelled(uri: str) -> Data:
    """Open images whose classes do not matter: as `open_data` does, but `folder:DIR` is all pictures under it.

    Class folders are searched, and their names ignored.
    """
    parsed = parse(uri, "data set", "folder:night")
    if parsed.source != "folder":
        return open_data(uri)
    parsed.check_query("wnids")
    return Pictures(uri, Path(parsed.name).expanduser())


class _WithClean(Data):
    """Corrupted images as published, and the clean ones from elsewhere."""

    def __init__(self, corrupted: Data, clean: Data) -> None:
        if corrupted.labels.tolist() != clean.labels.tolist():
            raise CovshiftError(
                f"expected the same images in {corrupted.uri} and {clean.uri}, but their labels differ "
                f"({len(corrupted)} and {len(clean)} images)"
            )
        self.uri = corrupted.uri
        self.labels, self.classes, self.imagenet = corrupted.labels, corrupted.classes, corrupted.imagenet
        self.class_names = corrupted.class_names
        self.stored = corrupted.stored | clean.stored
        self.digest = digest_of([corrupted.digest, clean.digest])
        self._corrupted, self._clean = corrupted, clean

    def image_name(self, index: int) -> str:
        """Return the name that the corrupted image has."""
        return self._corrupted.image_name(index)

    def read(self, condition: Condition, indices: Sequence[int], prepare: Preparing) -> Sequence[Array | CovshiftError]:
        """Read from the source that has the condition."""
        source = self._corrupted if condition in self._corrupted.stored else self._clean
        return source.read(condition, indices, prepare)
