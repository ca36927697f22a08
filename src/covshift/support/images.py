"""Pictures on disk: read any kind as RGB, resize and crop as ImageNet does, write without ever leaving half a file."""

import io
from pathlib import Path

import numpy as np
from PIL import Image

from covshift.support.arrays import Array
from covshift.support.errors import CovshiftError
from covshift.support.files import replacing

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp"})
"""What counts as a picture in a folder; the same as in torchvision's ImageFolder."""


LOSSLESS = {".png": "PNG", ".bmp": "BMP", ".tif": "TIFF", ".tiff": "TIFF", ".ppm": "PPM"}

SMALLEST = 16
"""Pixels a side: what the corruptions need."""

_TOO_LARGE = (Image.DecompressionBombError, Image.DecompressionBombWarning)


def read(path: Path, *, crop: bool) -> Array:
    """A picture as uint8 RGB; with `crop`, its shorter side resized to 256 px and the middle 224 x 224 px cut out."""
    picture = open_rgb(path)
    if not crop and min(picture.size) < SMALLEST:
        raise CovshiftError(
            f"the picture {path} has {picture.width} x {picture.height} px, less than {SMALLEST} a side"
        )
    return np.asarray(middle(picture, 256, 224) if crop else picture)


def open_rgb(path: Path) -> Image.Image:
    """A picture, decoded; grey, palette, CMYK and 16-bit pictures become RGB, an alpha channel is dropped."""
    try:
        with Image.open(path) as opened:
            return rgb(opened)
    # Pillow's decoders raise these for files that are no pictures, cut short, damaged or larger than it allows.
    except (OSError, SyntaxError, ValueError, EOFError, *_TOO_LARGE) as error:
        raise CovshiftError(f"cannot read the picture {path} ({error})") from error


def rgb(picture: Image.Image) -> Image.Image:
    """Any kind of picture as RGB; 16-bit greys keep their range, an alpha channel is dropped."""
    if picture.mode.startswith("I"):
        # Pillow cuts 16-bit greys off at 255 where it converts them; 257 maps white to white.
        picture = Image.fromarray((np.asarray(picture).astype(np.uint32) // 257).clip(0, 255).astype(np.uint8))
    if picture.mode == "P" and "transparency" in picture.info:
        picture = picture.convert("RGBA")
    return picture.convert("RGB")


def short_side(picture: Image.Image, short: int) -> tuple[int, int]:
    """Width and height of a picture whose shorter side becomes `short`, rounded as torchvision's Resize does."""
    width, height = picture.size
    return (short, int(short * height / width)) if width <= height else (int(short * width / height), short)


def middle(
    picture: Image.Image, short: int, side: int, resample: Image.Resampling = Image.Resampling.BILINEAR
) -> Image.Image:
    """Torchvision's Resize(short) and CenterCrop(side); where `short` is below `side`, with its black border."""
    width, height = picture.size
    wide, high = short_side(picture, short)
    left, top = _margin(wide, side), _margin(high, side)
    if wide * high > 1 << 26:
        # A line of pixels would grow to gigabytes; only its middle is wanted.
        x, y = width / wide, height / high
        box = (left * x, top * y, (left + side) * x, (top + side) * y)
        return picture.resize((side, side), resample, box=box)
    resized = picture.resize((wide, high), resample)
    return resized.crop((left, top, left + side, top + side))


def _margin(length: int, side: int) -> int:
    """What is cut off before the middle; negative where the middle is larger than the picture."""
    return round((length - side) / 2) if length >= side else -((side - length) // 2)


def write(image: Array, path: Path, quality: int | None) -> None:
    """Save as JPEG of this quality (4:2:0, optimised) or, without one, in the lossless format of the suffix."""
    content = io.BytesIO()
    if quality is not None:
        Image.fromarray(image).save(content, "JPEG", quality=quality, optimize=True, subsampling="4:2:0")
    else:
        Image.fromarray(image).save(content, LOSSLESS[check_lossless(path)])
    # Pillow would not notice a disk that fills up in the middle of a file.
    with replacing(path) as part:
        part.write_bytes(content.getbuffer())


def check_quality(quality: int) -> None:
    """Raise a `CovshiftError` unless this is a quality that JPEG has."""
    if not isinstance(quality, int) or isinstance(quality, bool) or not 1 <= quality <= 100:
        raise CovshiftError(f"expected a JPEG quality from 1 to 100, got {quality!r}")


def check_lossless(path: Path) -> str:
    """The suffix of a picture's name, or an error where it stands for no lossless format."""
    if path.suffix.lower() not in LOSSLESS:
        known = ", ".join(LOSSLESS)
        raise CovshiftError(f"expected a name that ends in .jpg, .jpeg, {known}, got {path}")
    return path.suffix.lower()


def quality_for(target: Path, quality: int | None) -> int | None:
    """Return the quality of a JPEG that is to get this name, None for a lossless picture.

    Raises:
        CovshiftError: if no picture can have this name or quality, before any work is done.
    """
    if target.suffix.lower() in {".jpg", ".jpeg"} and quality is not None:
        check_quality(quality)
        return quality
    check_lossless(target)
    return None
