"""The contact sheet: one image under every corruption at every severity."""

from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from covshift.corruptions.apply import corrupt
from covshift.corruptions.registry import names
from covshift.support.arrays import Array
from covshift.support.images import quality_for, read_image, write_image

LABEL, GAP = 150, 4


def contact_sheet(image: Array, *, tile: int = 112, seed: int = 0, frost: str = "procedural") -> Array:
    """Draw a row for each of the 19 corruptions and a column for each severity, with labels.

    >>> contact_sheet(np.zeros((32, 32, 3), np.uint8), tile=32).shape
    (712, 330, 3)
    """
    rows = names("all")
    width, height = LABEL + 5 * (tile + GAP), 24 + GAP + len(rows) * (tile + GAP)
    sheet = Image.new("RGB", (width, height), "white")
    pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(13)
    for i, name in enumerate(rows):
        top = 24 + GAP + i * (tile + GAP)
        pen.text((8, top + tile / 2), name.replace("_", " "), "black", font, anchor="lm")
        for severity in range(1, 6):
            left = LABEL + (severity - 1) * (tile + GAP)
            if i == 0:
                pen.text((left + tile / 2, 14), str(severity), "black", font, anchor="mm")
            result = Image.fromarray(corrupt(image, name, severity, seed=seed, frost=frost))
            sheet.paste(result.resize((tile, tile), Image.Resampling.BOX), (left, top))
    return np.asarray(sheet)


def write_sheet(source: Path, target: Path, *, crop: bool = True, seed: int = 0, frost: str = "procedural") -> None:
    """Draw the contact sheet of one picture, as a JPEG or a lossless picture by the name of the target."""
    quality = quality_for(target, 85)
    write_image(contact_sheet(read_image(source, crop=crop), seed=seed, frost=frost), target, quality)
