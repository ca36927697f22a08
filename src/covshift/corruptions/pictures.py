"""Pictures on disk: read any kind as RGB, resize and crop as ImageNet does, write without ever leaving half a file."""

from pathlib import Path

import numpy as np
from PIL import Image

from covshift.corruptions.seeding import Array
from covshift.errors import CovshiftError
from covshift.files import replacing

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp"})
"""What counts as a picture in a folder; the same as in torchvision's ImageFolder."""


def read(path: Path, *, crop: bool) -> Array:
    """A picture as uint8 RGB; with `crop`, its shorter side resized to 256 px and the middle 224 x 224 px cut out.

    Grey, palette, CMYK and 16-bit pictures become RGB; an alpha channel is dropped.
    """
    try:
        with Image.open(path) as opened:
            picture = _rgb(opened)
    # Pillow's decoders raise these for files that are no pictures, cut short, damaged or larger than it allows.
    except (OSError, SyntaxError, ValueError, EOFError, Image.DecompressionBombError) as error:
        raise CovshiftError(f"cannot read the picture {path} ({error})") from error
    return np.asarray(_middle(picture) if crop else picture)


def _rgb(picture: Image.Image) -> Image.Image:
    if picture.mode.startswith("I"):
        # Pillow cuts 16-bit greys off at 255 where it converts them; 257 maps white to white.
        picture = Image.fromarray((np.asarray(picture).astype(np.uint32) // 257).clip(0, 255).astype(np.uint8))
    return picture.convert("RGB")


def _middle(picture: Image.Image, short: int = 256, side: int = 224) -> Image.Image:
    """Torchvision's Resize(256) and CenterCrop(224), bilinear."""
    width, height = picture.size
    wide, high = (short, int(short * height / width)) if width <= height else (int(short * width / height), short)
    left, top = round((wide - side) / 2), round((high - side) / 2)
    if wide * high > 1 << 26:
        # A line of pixels would grow to gigabytes; only its middle is wanted.
        x, y = width / wide, height / high
        box = (left * x, top * y, (left + side) * x, (top + side) * y)
        return picture.resize((side, side), Image.Resampling.BILINEAR, box=box)
    resized = picture.resize((wide, high), Image.Resampling.BILINEAR)
    return resized.crop((left, top, left + side, top + side))


def write(image: Array, path: Path, quality: int | None) -> None:
    """Save as JPEG of this quality (4:2:0, optimised) or, without one, in the lossless format of the suffix."""
    options = {} if quality is None else {"quality": quality, "optimize": True, "subsampling": "4:2:0"}
    with replacing(path) as part:
        Image.fromarray(image).save(part, "JPEG" if quality is not None else None, **options)
