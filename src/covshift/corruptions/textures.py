"""Where the ice of `frost` comes from: drawn by covshift, as published, from a folder, or from arrays."""

import hashlib
import math
import os
from collections.abc import Sequence
from functools import lru_cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from covshift.corruptions.seeding import Array
from covshift.errors import CovshiftError

Frost = str | os.PathLike[str] | Sequence[Array]

USED = 5
"""How many textures are drawn from: the published code ships six and never draws the sixth."""

_PICTURES = {".png", ".jpg", ".jpeg", ".bmp", ".webp"}


def textures(frost: Frost, scale: float, height: int, width: int) -> tuple[Array, ...]:
    """The textures, scaled, each at least one pixel larger than an image of this height and width."""
    if isinstance(frost, str | os.PathLike):
        return _fitted(os.fspath(frost), scale, height, width)
    return _fit(_load(frost), scale, height, width)


def frost_source(frost: Frost = "procedural") -> str:
    """What a result should record about its ice: where it came from, and a digest of the textures.

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
        return _named(os.fspath(frost))
    found = tuple(frost)[:USED]
    if not found or any(t.dtype != np.uint8 or t.ndim != 3 or t.shape[2] != 3 for t in found):
        raise CovshiftError("expected frost textures as uint8 arrays, HWC, RGB; got something else, or none")
    return found


@lru_cache(maxsize=8)
def _named(source: str) -> tuple[Array, ...]:
    if source == "procedural":
        from covshift.corruptions.ice import draw

        return tuple(draw(number) for number in range(USED))
    folder = _published_folder() if source == "published" else Path(source)
    files = sorted(f for f in folder.iterdir() if f.suffix.lower() in _PICTURES) if folder.is_dir() else []
    if not files:
        raise CovshiftError(
            f"expected frost to be 'procedural', 'published' or a folder with pictures, got {source!r}, "
            "which is no folder or holds no pictures"
        )
    from PIL import Image

    return tuple(np.asarray(Image.open(file).convert("RGB")) for file in files[:USED])


def _published_folder() -> Path:
    spec = find_spec("imagecorruptions")
    if spec is None or not spec.submodule_search_locations:
        raise CovshiftError(
            "the published frost textures come with the package imagecorruptions, which is not installed; "
            "pip install --no-deps imagecorruptions"
        )
    return Path(spec.submodule_search_locations[0]) / "frost"


@lru_cache(maxsize=8)
def _fitted(source: str, scale: float, height: int, width: int) -> tuple[Array, ...]:
    return _fit(_named(source), scale, height, width)


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
