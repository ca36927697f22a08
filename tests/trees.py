"""Small trees of pictures in published layouts, with the traps that the real ones have."""

from pathlib import Path

import numpy as np
from PIL import Image

SIDE = 20


def picture(path: Path, seed: int = 0, mode: str = "RGB", side: int = SIDE) -> Path:
    """A picture; its colour tells the seed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    pixels = rng.integers(0, 256, (side, side, 3), np.uint8)
    image = Image.fromarray(pixels).convert(mode)
    image.save(path, "PNG" if path.suffix == ".png" else "JPEG")
    return path


def imagenet(root: Path, each: int = 2) -> Path:
    """Three classes in folders: grey and CMYK JPEGs, and a PNG that calls itself JPEG, as the real set has."""
    for k, wnid in enumerate(("n01443537", "n01440764", "n15075141")):
        for i in range(each):
            picture(root / wnid / f"ILSVRC2012_val_{k * each + i + 1:08d}.JPEG", k * each + i)
    picture(root / "n01443537" / "ILSVRC2012_val_00000101.JPEG", 101, "L")
    picture(root / "n01443537" / "ILSVRC2012_val_00000102.JPEG", 102, "CMYK")
    odd = picture(root / "n01443537" / "odd.png", 103)
    odd.rename(odd.with_name("ILSVRC2012_val_00000103.JPEG"))
    return root


def objectnet(root: Path) -> Path:
    """Folders that stand for one class, for several, and for none; a red frame of two pixels."""
    for folder in ("banana", "t-shirt", "chair", "wheel", "coaster"):
        for i in range(2):
            path = root / "images" / folder / f"{i:02d}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            pixels = np.full((SIDE + 4, SIDE + 4, 3), (255, 0, 0), np.uint8)
            pixels[2:-2, 2:-2] = (10, 20, 30 + i)
            Image.fromarray(pixels).save(path)
    return root
