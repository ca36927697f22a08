"""The user's cache folder, and what is downloaded into it."""

import hashlib
import os
import shutil
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.client import HTTPException
from pathlib import Path
from urllib.error import URLError

from covshift.support.errors import CovshiftError
from covshift.support.locks import only_process
from covshift.support.progress import progress_bar

_CHUNK = 1 << 18
_HASHES = {"MD5": hashlib.md5, "SHA-256": hashlib.sha256}


def home() -> Path:
    """Return the cache folder: `COVSHIFT_HOME`, else `covshift` in `XDG_CACHE_HOME`, else `~/.cache/covshift`."""
    if named := os.environ.get("COVSHIFT_HOME"):
        return Path(named).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "covshift"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Make other processes that fetch into the folder wait; a process that dies releases its lock."""
    with ExitStack() as held:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            held.enter_context(only_process(folder / ".lock"))
        except OSError as error:
            raise CovshiftError(
                f"cannot write to {folder}: {error.strerror or error}; set COVSHIFT_HOME to another folder"
            ) from error
        yield


def download(url: str, path: Path, *, md5: str | None = None, sha256: str | None = None, timeout: float = 10) -> None:
    """Fetch a file, resuming what a killed or failed run left behind. Call it with the folder locked.

    Args:
        url: The address of the file.
        path: Where the file is put once it is complete.
        md5: The published checksum.
        sha256: The published SHA-256, or as many of its first digits as were published.
        timeout: The number of seconds without any data after which an error is raised.
    """
    part = path.with_name(f"{path.name}.part")
    try:
        _append(url, part, timeout)
    except HTTPException as error:  # a chunked answer whose last chunks did not arrive
        raise CovshiftError(f"cannot fetch {url}: the connection broke off; try again to resume") from error
    except (URLError, OSError) as error:
        raise CovshiftError(f"cannot fetch {url}: {getattr(error, 'reason', None) or error}") from error
    for kind, published in (("MD5", md5), ("SHA-256", sha256)):
        actual = checksum(part, kind) if published else ""
        if published and not actual.startswith(published):
            part.unlink()
            raise CovshiftError(
                f"expected {url} with {kind} {published}, got {actual}; the file was deleted, try again"
            )
    part.replace(path)


def checksum(path: Path, kind: str) -> str:
    """Return the MD5 or SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: _HASHES[kind](usedforsecurity=False)).hexdigest()


def _append(url: str, part: Path, timeout: float) -> None:
    """Download the missing rest of the file."""
    begun = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={begun}-"} if begun else {})  # noqa: S310
    try:
        answer = urllib.request.urlopen(request, timeout=timeout)  # noqa: S310
    except urllib.error.HTTPError as error:
        if error.code != 416 or not begun:
            raise
        whole = error.headers.get("Content-Range", "").removeprefix("bytes */")
        if whole.isdecimal() and int(whole) < begun:
            part.unlink()
            raise OSError("the partial download was longer than the file, and was deleted; try again") from error
        return  # nothing is left to send: the last run was killed before it checked
    with answer:
        if answer.headers.get_content_type() == "text/html":  # from file hosts that ask for a confirmation
            raise OSError("the server sent a web page instead of the file")
        length = int(answer.headers.get("Content-Length", 0))
        free = shutil.disk_usage(part.parent).free
        if length > free:
            raise OSError(
                f"the file has {length / 1e6:.0f} MB and {part.parent} has {free / 1e6:.0f} MB free; make room there, "
                "or set COVSHIFT_HOME to a folder elsewhere"
            )
        with (
            part.open("ab" if answer.status == 206 else "wb") as file,
            progress_bar(f"fetching {part.stem}, MB", length / 1e6 or None) as advance,
        ):
            while piece := answer.read(_CHUNK):
                file.write(piece)
                length -= len(piece)
                advance(len(piece) / 1e6)
    if length > 0:  # urllib takes a connection that broke off for the end
        raise OSError("the connection broke off; try again to resume")
