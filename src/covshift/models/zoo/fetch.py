"""Getting the published files of a model: from the cache folder, torch's own, or where their authors put them."""

from pathlib import Path

import torch

from covshift.models.zoo.entry import Entry, File
from covshift.support.cache import checksum, download, home, locked
from covshift.support.errors import CovshiftError


def fetch(entry: Entry) -> Path:
    """Return the first file of an entry on this machine; what is missing is downloaded, once.

    Raises:
        CovshiftError: if there are no published weights, or they cannot be fetched; the message says what to do.
    """
    if not entry.files:
        raise CovshiftError(_unpublished(entry))
    first, *_ = [_fetch(entry, file) for file in entry.files]
    return first


def _fetch(entry: Entry, file: File) -> Path:
    path = home() / "zoo" / file.name
    if path.exists():
        return path
    hub = Path(torch.hub.get_dir()) / "checkpoints" / file.name
    if file.sha256 and hub.is_file() and checksum(hub, "SHA-256").startswith(file.sha256):
        return hub
    with locked(path.parent):
        if path.exists():  # another process may have fetched it while this one waited
            return path
        try:
            download(file.url, path, sha256=file.sha256 or None)
        except CovshiftError as error:
            raise CovshiftError(
                f"{error}. Fetch {file.by_hand} by other means and put it at {path}, or name the file that you have: "
                f"zoo:{entry.name}?file=PATH"
            ) from error
    return path


def _unpublished(entry: Entry) -> str:
    yours = f"zoo:{entry.name}?file=PATH"
    if entry.page:
        return f"expected a file for zoo:{entry.name}; fetch it from {entry.page} and name it: {yours}"
    return (
        f"nobody has published weights of {entry.name}; train it with `covshift train {entry.recipe} --data imagenet/ "
        f"--device cuda`, or name a file that you have: {yours}"
    )
