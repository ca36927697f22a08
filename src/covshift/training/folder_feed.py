"""ImageNet, or any folder of that layout, as a feed for the training loop: decoded in threads, cropped at random."""

import math
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from covshift.corruptions.tree import pictures
from covshift.support.arrays import Array
from covshift.support.device import cores
from covshift.support.errors import CovshiftError
from covshift.support.images import read_image
from covshift.training.feed import TrainingBatch, normalise

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SIDE = 224
AREA, RATIO = (0.08, 1.0), (3 / 4, 4 / 3)
"""Share of the picture's area that a crop may take, and the ratio of its sides."""


class FolderFeed:
    """`train/CLASS/*` and `val/CLASS/*` under a folder; classes are numbered in the order of their names."""

    def __init__(self, folder: Path, threads: int | None = None) -> None:
        self._train, self._test = (_find(folder / split) for split in ("train", "val"))
        names, others = ({file.parent.name for file in files} for files in (self._train, self._test))
        if names != others:
            odd = ", ".join(sorted(names ^ others)[:3])
            raise CovshiftError(f"expected the same classes in {folder}/train and {folder}/val; not in both: {odd}")
        self._label = {name: label for label, name in enumerate(sorted(names))}
        self._pool = ThreadPoolExecutor(threads or cores())
        self.classes = len(names)
        self.mean: tuple[float, ...] = MEAN
        self.std: tuple[float, ...] = STD

    def __len__(self) -> int:
        return len(self._train)

    def train(self, indices: Array, rng: np.random.Generator) -> TrainingBatch:
        """Return a random part of each of these pictures, stretched to 224 x 224 pixels, mirrored every other time."""
        files = [self._train[index] for index in indices]
        cropped = self._pool.map(
            lambda file, own: random_crop(read_image(file, crop=False), own), files, rng.spawn(len(files))
        )
        return self._batch(files, cropped)

    def test(self, size: int) -> Iterator[TrainingBatch]:
        """Yield all test pictures, resized to 256 pixels and cropped to the middle 224 x 224."""
        for start in range(0, len(self._test), size):
            files = self._test[start : start + size]
            yield self._batch(files, self._pool.map(lambda file: read_image(file, crop=True), files))

    def _batch(self, files: Sequence[Path], images: Iterable[Array]) -> TrainingBatch:
        labels = torch.tensor([self._label[file.parent.name] for file in files])
        return TrainingBatch(normalise(np.stack(list(images)).astype(np.float32), self.mean, self.std), labels)


def _find(folder: Path) -> list[Path]:
    files = [folder / file for file in pictures(folder)]
    if stray := next((file for file in files if file.parent.parent != folder), None):
        raise CovshiftError(f"expected {folder}/CLASS/PICTURE, got {stray}")
    return files


def random_crop(image: Array, rng: np.random.Generator) -> Array:
    """Return a random part of an image, stretched to 224 x 224 pixels, mirrored every other time."""
    height, width = image.shape[:2]
    for _ in range(10):
        area = height * width * rng.uniform(*AREA)
        ratio = math.exp(rng.uniform(*np.log(RATIO)))
        wide, high = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < wide <= width and 0 < high <= height:
            break
    else:  # nothing fits a very long picture: take its middle
        wide = high = min(width, height)
    left, top = rng.integers(width - wide + 1), rng.integers(height - high + 1)
    box = (int(left), int(top), int(left) + wide, int(top) + high)
    out = np.asarray(Image.fromarray(image).resize((SIDE, SIDE), Image.Resampling.BILINEAR, box=box))
    return out[:, ::-1] if rng.random() < 0.5 else out
