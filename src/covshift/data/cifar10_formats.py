"""The layouts that CIFAR-10 was published in: pickled batches, binary batches, and sprites of PNG pictures."""

import io
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from covshift.support.arrays import Array
from covshift.support.errors import CovshiftError

ImagesAndLabels = tuple[Array, Array]

BATCHES = {"train": [f"data_batch_{i}" for i in range(1, 6)], "test": ["test_batch"]}
_PIXELS = 3 * 32 * 32


class Layout(NamedTuple):
    """The name of a layout's folder, the suffix of its batch files, and the function that reads one."""

    folder: str
    suffix: str
    read: Callable[[Path], ImagesAndLabels]


def find_layout(folder: Path, split: str) -> tuple[Layout, list[Path]]:
    """Return the layout that a folder holds or is, and the files of a split."""
    for layout in LAYOUTS:
        for place in (folder, folder / layout.folder):
            files = [place / f"{batch}{layout.suffix}" for batch in BATCHES[split]]
            if all(file.exists() for file in files):
                return layout, files
    known = " or ".join(f"{layout.folder}/{BATCHES[split][0]}{layout.suffix}" for layout in LAYOUTS)
    raise CovshiftError(f"expected CIFAR-10 in {folder}, i.e. {known} and all other batches; they are not there")


def read_split(folder: Path, split: str, advance: Callable[[float], None] = lambda steps: None) -> ImagesAndLabels:
    """Return images NHWC uint8 and labels int64 of a split, from whichever layout the folder holds or is."""
    layout, files = find_layout(folder, split)
    batches = []
    for file in files:
        try:
            batches.append(layout.read(file))
        except Exception as error:  # a damaged pickle or PNG file can raise anything
            raise CovshiftError(f"{file} is not a complete batch of CIFAR-10 ({error}); get a fresh copy") from error
        advance(1)
    images, labels = (np.concatenate(parts) for parts in zip(*batches, strict=True))
    return images, labels.astype(np.int64)


def _from_planes(rows: Array) -> Array:
    return np.ascontiguousarray(rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))


def _read_binary(file: Path) -> ImagesAndLabels:
    rows = np.fromfile(file, np.uint8).reshape(-1, 1 + _PIXELS)
    return _from_planes(rows[:, 1:]), rows[:, 0]


def _read_pickle(file: Path) -> ImagesAndLabels:
    batch = _Arrays(io.BytesIO(file.read_bytes()), encoding="latin1").load()
    return _from_planes(np.asarray(batch["data"], np.uint8)), np.asarray(batch["labels"], np.uint8)


class _Arrays(pickle.Unpickler):
    """An unpickler of arrays of numbers and plain containers, and of nothing that could run code."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in {("numpy", "ndarray"), ("numpy", "dtype")}:
            return getattr(np, name)
        if name == "_reconstruct" and module in {"numpy.core.multiarray", "numpy._core.multiarray"}:
            return super().find_class("numpy._core.multiarray", name)
        if (module, name) == ("_codecs", "encode"):
            return lambda text, encoding: text.encode(encoding)
        raise pickle.UnpicklingError(f"it holds {module}.{name}, which no batch of CIFAR-10 does")


def _read_sprite(file: Path) -> ImagesAndLabels:
    """Return a PNG whose rows are the pictures, with the labels of all batches in one JSON file beside it."""
    labels = json.loads((file.parent / f"{file.name.split('_')[0].replace('data', 'train')}_lables.json").read_text())
    limit, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None  # ten million pixels are not an attack here
    try:
        with Image.open(file, formats=["PNG"]) as picture:
            images = np.asarray(picture.convert("RGB")).reshape(-1, 32, 32, 3)
    finally:
        Image.MAX_IMAGE_PIXELS = limit
    first = len(images) * BATCHES["train"].index(file.stem) if file.stem in BATCHES["train"] else 0
    return images, np.asarray(labels[first : first + len(images)], np.uint8)


LAYOUTS = (
    Layout("cifar-10-batches-bin", ".bin", _read_binary),
    Layout("cifar-10-batches-py", "", _read_pickle),
    Layout("package", ".png", _read_sprite),
)
