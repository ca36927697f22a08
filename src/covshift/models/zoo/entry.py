"""`Entry` and `File`: the facts that it takes to open a published model."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from covshift.models.architecture import Pretraining
from covshift.models.checkpoint import StateDict, read_state
from covshift.models.preprocess import IMAGENET, Preprocess


@dataclass(frozen=True)
class File:
    """A file that the authors of a model have published.

    Attributes:
        url: the address of the file.
        name: the name of the file on disk.
        sha256: its checksum, or the first digits of it; empty where none was published.
        page: the address to fetch it from by hand, if not `url`.
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
    """Return a file on Google Drive, which asks for a confirmation before it sends a large one."""
    url = f"https://drive.usercontent.google.com/download?id={identity}&export=download&confirm=t"
    return File(url, name, page=f"https://drive.google.com/file/d/{identity}/view")


@dataclass(frozen=True)
class Entry:
    """One model of the paper.

    Attributes:
        name: the part of the URI after `zoo:`.
        family: the family of its architecture.
        build: a function that makes the model without weights.
        licence: the licence of the weights, as far as their authors state one.
        citation: the paper to cite.
        files: the published files, of which the first is read; empty where nobody has published any.
        preprocess: the preprocessing that the weights expect.
        read: a function that returns the tensors of a published file.
        rename: a function that gives tensors the names of our module; names that are ours already stay.
        note: a note for users.
        recipe: the recipe for `covshift train`, where there are no published weights.
        page: the address of the weights, if only a person can fetch them.
        pretraining: the kind of pre-training, where reports show it apart.
    """

    name: str
    family: str
    build: Callable[[], nn.Module]
    licence: str
    citation: str
    files: tuple[File, ...] = ()
    preprocess: Preprocess = IMAGENET
    read: Callable[[Path], StateDict] = read_state
    rename: Callable[[StateDict], StateDict] = lambda state: state
    note: str = ""
    recipe: str = ""
    page: str = ""
    pretraining: Pretraining = ""
