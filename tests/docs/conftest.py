"""What the pages take for granted: a small folder of pictures, a model, images, a loader."""

import shutil
import sys

import numpy as np
import pytest
import torch
from blocks import ROOT
from PIL import Image

import covshift


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with ten classes of small pictures in `val/`, pictures without classes in `night/`, and one of a cat."""
    random = np.random.default_rng(0)
    for number in range(40):
        pixels = np.full((32, 32, 3), 25 * (number % 10), np.uint8) + random.integers(
            0, 25, (32, 32, 3), dtype=np.uint8
        )
        for path in (tmp_path / "val" / str(number % 10) / f"{number}.png", tmp_path / "night" / f"{number}.png"):
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(path)
    Image.fromarray(random.integers(0, 256, (64, 64, 3), dtype=np.uint8)).save(tmp_path / "cat.jpg")
    shutil.copytree(ROOT / "docs" / "assets", tmp_path / "docs" / "assets")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture
def names(place, page):
    """The names that blocks of Python use without making them."""
    opened = covshift.open_model(
        "builtin:resnet20" if page.name == "predict.md" else "torchvision:resnet18/none?size=32"
    )
    pixels = np.random.default_rng(0).integers(0, 256, (40, 32, 32, 3), dtype=np.uint8)
    images = opened.preprocess.tensor(pixels)
    loader = [images[:20], images[20:]]
    source = covshift.Statistics.of(opened.module)
    shifted = [covshift.estimate(opened.module, [factor * images]) for factor in (0.5, 1, 2)]
    return {
        "covshift": covshift,
        "np": np,
        "torch": torch,
        "model": opened.module,
        "transform": opened.preprocess.tensor,
        "images": images,
        "pixels": pixels,
        "unlabelled": pixels,
        "labels": np.arange(40) % 10,
        "loader": loader,
        "clean_loader": loader,
        "camera": [image[None] for image in images[:4]],
        "source": source,
        "target": shifted[0],
        **dict(zip(("fog_1", "fog_2", "snow_1"), shifted, strict=True)),
    }
