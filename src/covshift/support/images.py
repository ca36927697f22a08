"""Pictures on disk: read any kind as RGB, resize and crop as ImageNet does, write without ever leaving half a file."""

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import Image

from covshift.support.arrays import Array
from covshift.support.errors import CovshiftError
from covshift.support.files import replacing

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp"})
"""Suffixes of the files in a folder that count as pictures; the same as in torchvision's ImageFolder."""

FORMATS = ("JPEG", "PNG", "PPM", "BMP", "TIFF", "WEBP")
"""Formats that are decoded, whatever a file is called; others, such as EPS, would start other programs."""

LIMIT = "COVSHIFT_MAX_PIXELS"
"""The environment variable with the largest number of pixels that a picture may have."""

MOST_PIXELS = 89_478_485
"""Largest number of pixels by default: 256 MiB as RGB, where Pillow begins to warn."""

LOSSLESS = {".png": "PNG", ".bmp": "BMP", ".tif": "TIFF", ".tiff": "TIFF", ".ppm": "PPM"}

SMALLEST = 16
"""The smallest side, in pixels, that the corruptions can work with."""

_WHITE_16 = 65_535


def read_image(path: Path, *, crop: bool) -> Array:
    """Return a picture as uint8 RGB; with `crop`, resized to a shorter side of 256 px and cropped to 224 x 224 px."""
    picture = open_rgb(path)
    if not crop and min(picture.size) < SMALLEST:
        raise CovshiftError(
            f"the picture {path} has {picture.width} x {picture.height} px, less than {SMALLEST} a side"
        )
    return np.asarray(middle(picture, 256, 224) if crop else picture)


def open_rgb(path: Path) -> Image.Image:
    """Return a decoded picture; grey, palette, CMYK and 16-bit pictures become RGB, an alpha channel is dropped."""
    with _opened(path) as picture:
        return rgb(picture)


def check_header(path: Path) -> None:
    """Raise a `CovshiftError` unless a file begins as a picture that would be decoded, of a size that is allowed."""
    with _opened(path):
        pass


@contextmanager
def _opened(path: Path) -> Iterator[Image.Image]:
    """Give a picture of which only the header is read yet; whatever goes wrong with it is one kind of error."""
    _most_pixels()  # also tells Pillow
    try:
        with Image.open(path, formats=FORMATS) as opened:
            check_pixel_count(opened.width, opened.height)
            yield opened
    except Exception as error:  # a damaged or malicious file can make a decoder raise anything
        raise CovshiftError(f"cannot read the picture {path} ({error or type(error).__name__})") from error


def check_pixel_count(width: int, height: int) -> None:
    """Raise a `CovshiftError` if a picture is larger than allowed."""
    if width * height > (limit := _most_pixels()):
        raise CovshiftError(f"expected at most {limit:,} pixels, got {width} x {height}; set {LIMIT} to allow more")


def _most_pixels() -> int:
    """Return the number of pixels that a picture may have; Pillow's own limit is raised with ours."""
    text = os.environ.get(LIMIT)
    if text is None:
        return MOST_PIXELS
    if not text.isdecimal() or int(text) < 1:
        raise CovshiftError(f"expected {LIMIT} as a number of pixels, such as 200000000, got {text!r}")
    limit = int(text)
    Image.MAX_IMAGE_PIXELS = max(limit, MOST_PIXELS)
    return limit


def rgb(picture: Image.Image) -> Image.Image:
    """Return any kind of picture as RGB; 16-bit greys keep their range, an alpha channel is dropped."""
    if picture.mode == "F":
        raise CovshiftError("its values are floating-point numbers of unknown range; save it with 8 or 16 bits")
    if picture.mode == "I" and picture.format != "PPM":  # which has 16 bits at most
        raise CovshiftError("its values are 32-bit numbers of unknown range; save it with 8 or 16 bits")
    if picture.mode.startswith("I"):
        values = np.asarray(picture)
        if values.min() < 0 or values.max() > _WHITE_16:
            raise CovshiftError("its values are whole numbers beyond 16 bits; save it with 8 or 16 bits")
        # Pillow cuts 16-bit greys off at 255 where it converts them; 257 maps white to white.
        picture = Image.fromarray((values.astype(np.uint32) // 257).astype(np.uint8))
    if picture.mode == "P" and "transparency" in picture.info:
        picture = picture.convert("RGBA")
    return picture.convert("RGB")


def short_side(picture: Image.Image, short: int) -> tuple[int, int]:
    """Return width and height of a picture resized to a shorter side of `short`, rounded as in torchvision's Resize."""
    width, height = picture.size
    return (short, int(short * height / width)) if width <= height else (int(short * width / height), short)


def middle(
    picture: Image.Image, short: int, side: int, resample: Image.Resampling = Image.Resampling.BILINEAR
) -> Image.Image:
    """Apply torchvision's Resize(short) and CenterCrop(side), with its black border where `short` is below `side`."""
    width, height = picture.size
    wide, high = short_side(picture, short)
    left, top = margin(wide, side), margin(high, side)
    if wide * high > 1 << 26:
        # A line of pixels would grow to gigabytes; only its middle is wanted.
        x, y = width / wide, height / high
        box = (left * x, top * y, (left + side) * x, (top + side) * y)
        return picture.resize((side, side), resample, box=box)
    resized = picture.resize((wide, high), resample)
    return resized.crop((left, top, left + side, top + side))


def margin(length: int, side: int) -> int:
    """Return the width that is cut off before the middle; negative where the middle is larger than the picture."""
    return round((length - side) / 2) if length >= side else -((side - length) // 2)


def write_image(image: Array, path: Path, quality: int | None) -> None:
    """Write an image as JPEG of this quality (4:2:0, optimised) or, without one, in the suffix's lossless format."""
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
    """Return the suffix of a picture's name, or raise a `CovshiftError` unless it is that of a lossless format."""
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
