"""The folder in which the blocks of a page run, and the names that its Python takes for granted."""

import shutil
import sys

import numpy as np
import pytest
import torch
from blocks import ROOT
from standins import fill, small_net, some_pixels

import covshift
from covshift.bench.methods import base
from covshift.corruptions import registry as corruption_registry
from covshift.models import from_torchvision


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with classes of small pictures in `val/`, pictures without classes in `night/`, and one of a cat."""
    fill(tmp_path, tmp_path / "cache")
    monkeypatch.setenv("COVSHIFT_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(from_torchvision, "_download", small_net)
    shutil.copytree(ROOT / "docs" / "assets", tmp_path / "docs" / "assets")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("nets", "mine"):  # of other tests, where the pages have modules of their own
        monkeypatch.delitem(sys.modules, name, raising=False)
    registered = (base.REGISTERED, corruption_registry._REGISTERED)
    before = [dict(table) for table in registered]
    yield tmp_path
    for table, held in zip(registered, before, strict=True):
        table.clear()
        table.update(held)
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture
def names(place):
    """The names that blocks of Python use without making them."""
    model = covshift.open_model("torchvision:resnet18?size=32")
    pixels = some_pixels(40)
    images = model.preprocess(pixels)
    loader = [images[:20], images[20:]]
    shifted = [covshift.estimate(model, [factor * images]) for factor in (0.5, 1, 2)]
    return {
        "covshift": covshift,
        "np": np,
        "torch": torch,
        "model": model,
        "images": images,
        "pixels": pixels,
        "labels": np.arange(40) % 10,
        "unlabelled": pixels,
        "loader": loader,
        "clean_loader": loader,
        "camera": [image[None] for image in images[:4]],
        "source": covshift.Statistics.of(model),
        "target": shifted[0],
        **dict(zip(("fog_1", "fog_2", "snow_1"), shifted, strict=True)),
    }
