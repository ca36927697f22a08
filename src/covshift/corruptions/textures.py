"""Where the ice of `frost` comes from: drawn by covshift, as published, from a folder, or from arrays."""

import hashlib
import math
import os
from collections.abc import Iterable, Sequence
from functools import lru_cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from covshift.support.arrays import Array
from covshift.support.errors import CovshiftError
from covshift.support.images import SUFFIXES, read_image

Stamp = tuple[tuple[str, int], ...]
Frost = str | os.PathLike[str] | Sequence[Array]

USED = 5
"""Number of textures to choose from: the published code ships six and never uses the sixth."""


def textures(frost: Frost, scale: float, height: int, width: int) -> tuple[Array, ...]:
    """Return the textures, scaled, each at least one pixel larger than an image of this height and width."""
    if isinstance(frost, str | os.PathLike):
        return _fitted(_source(frost), scale, height, width)
    return _fit(_load(frost), scale, height, width)


def check_frost(frost: Frost) -> None:
    """Raise a `CovshiftError` unless this names a place, which is not looked at, or holds textures."""
    if not isinstance(frost, str | os.PathLike):
        _load(frost)


def frost_source(frost: Frost = "procedural") -> str:
    """Return what a result should record about its ice: where it came from, and a digest of the textures.

    >>> from covshift.corruptions import frost_source
    >>> frost_source([np.zeros((300, 300, 3), np.uint8)])
    'arrays sha256:efb44b8220da'
    """
    digest = hashlib.sha256()
    for texture in _load(frost):
        digest.update(repr(texture.shape).encode() + texture.tobytes())
    if frost == "published":
        where = f"published (imagecorruptions {metadata.version('imagecorruptions')})"
    elif isinstance(frost, str | os.PathLike):
        where = "procedural" if frost == "procedural" else f"folder {Path(frost).name}"
    else:
        where = "arrays"
    return f"{where} sha256:{digest.hexdigest()[:12]}"


def _load(frost: Frost) -> tuple[Array, ...]:
    if isinstance(frost, str | os.PathLike):
        return _named(_source(frost))
    found = tuple(frost)[:USED] if isinstance(frost, Iterable) else ()
    if not found or not all(_is_texture(texture) for texture in found):
        raise CovshiftError("expected frost textures as uint8 arrays, HWC, RGB; got something else, or none")
    return found


def _is_texture(texture: object) -> bool:
    fits = isinstance(texture, np.ndarray) and texture.dtype == np.uint8 and texture.ndim == 3
    return fits and texture.shape[2] == 3 and texture.size > 0  # type: ignore[attr-defined]


def _source(frost: str | os.PathLike[str]) -> Stamp:
    """Return the files that textures come from, each with what shows a change; none where covshift draws them."""
    if frost == "procedural":
        return ()
    folder = _published_folder() if frost == "published" else Path(frost)
    files = sorted(f for f in folder.iterdir() if f.suffix.lower() in SUFFIXES) if folder.is_dir() else []
    if not files:
        raise CovshiftError(
            f"expected frost to be 'procedural', 'published' or a folder with pictures, got {os.fspath(frost)!r}, "
            "which is not a folder or holds no pictures"
        )
    return tuple((str(file.resolve()), file.stat().st_mtime_ns) for file in files[:USED])


@lru_cache(maxsize=4)
def _named(files: Stamp) -> tuple[Array, ...]:
    if not files:
        from covshift.corruptions.ice import draw

        return tuple(draw(number) for number in range(USED))
    return tuple(read_image(Path(file), crop=False) for file, _ in files)


def _published_folder() -> Path:
    spec = find_spec("imagecorruptions")
    if spec is None or not spec.submodule_search_locations:
        raise CovshiftError(
            "the published frost textures come with the package imagecorruptions, which is not installed; "
            "pip install --no-deps imagecorruptions"
        )
    return Path(spec.submodule_search_locations[0]) / "frost"


@lru_cache(maxsize=4)
def _fitted(files: Stamp, scale: float, height: int, width: int) -> tuple[Array, ...]:
    return _fit(_named(files), scale, height, width)


def _fit(loaded: tuple[Array, ...], scale: float, height: int, width: int) -> tuple[Array, ...]:
    import cv2

    fitted = []
    for texture in loaded:
        rows, columns = texture.shape[:2]
        # Textures made for 224 px do not cover a larger image, nor, scaled to 0.3, all those that 64 px stands for.
        factor = max(scale, (height + 1) / rows, (width + 1) / columns)
        size = (0, 0) if factor == scale else (math.ceil(columns * factor), math.ceil(rows * factor))
        fitted.append(texture if factor == 1 else cv2.resize(texture, size, fx=factor, fy=factor))
    return tuple(fitted)
