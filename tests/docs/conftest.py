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
    for name in [
        name for name, module in sys.modules.items() if str(getattr(module, "__file__", "")).startswith(str(tmp_path))
    ]:
        del sys.modules[name]


@pytest.fixture
def names(place):
    """The names that blocks of Python use without making them."""
    opened = covshift.open_model("builtin:resnet20")
    images = np.random.default_rng(0).integers(0, 256, (40, 32, 32, 3), dtype=np.uint8)
    shown = opened.preprocess.tensor(images)
    torch.manual_seed(0)
    return {
        "covshift": covshift,
        "np": np,
        "torch": torch,
        "model": opened.module,
        "transform": opened.preprocess,
        "images": shown,
        "pixels": images,
        "labels": np.arange(40) % 10,
        "loader": [shown[:20], shown[20:]],
        "clean_loader": [shown[:20], shown[20:]],
        "camera": [image[None] for image in shown[:4]],
    }
