"""What has to be known of a published model to open it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor, nn

from covshift.models.checkpoint import read_state
from covshift.models.preprocess import IMAGENET, Preprocess

State = dict[str, Tensor]


@dataclass(frozen=True)
class File:
    """A file that the authors of a model have published.

    Attributes:
        url: where it is.
        name: what it is called on disk.
        sha256: its checksum, or the first digits of it; empty where none was published.
        page: where to fetch it by hand, if not at `url`.
    """

    url: str
    name: str
    sha256: str = ""
    page: str = ""

    @property
    def by_hand(self) -> str:
        """The address to give to a user."""
        return self.page or self.url


def published(url: str, sha256: str = "") -> File:
    """Return a file that keeps its name."""
    return File(url, url.rpartition("/")[2], sha256)


def on_drive(identity: str, name: str) -> File:
    """Return a file on Google Drive, which asks twice before it gives a large one away."""
    url = f"https://drive.usercontent.google.com/download?id={identity}&export=download&confirm=t"
    return File(url, name, page=f"https://drive.google.com/file/d/{identity}/view")


@dataclass(frozen=True)
class Entry:
    """One model of the paper.

    Attributes:
        name: what follows `zoo:`.
        family: of architectures.
        build: makes it without weights.
        licence: of the weights, as far as their authors say.
        citation: who made it.
        files: the published weights; the first one is what is read. None where nobody has published any.
        preprocess: what the weights expect.
        read: the tensors of a published file.
        rename: the same under the names of our module; names that are ours already must pass.
        note: what a user should know.
        recipe: for `covshift train`, where there are no published weights.
        page: where the weights are, if only a person can fetch them.
    """

    name: str
    family: str
    build: Callable[[], nn.Module]
    licence: str
    citation: str
    files: tuple[File, ...] = ()
    preprocess: Preprocess = IMAGENET
    read: Callable[[Path], State] = read_state
    rename: Callable[[State], State] = lambda state: state
    note: str = ""
    recipe: str = ""
    page: str = ""
