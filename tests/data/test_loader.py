"""`Data.loader`: a torch DataLoader of a model's input, from folders and arrays, in any condition."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader

import covshift
from covshift import Condition, CovshiftError, Preprocess, corrupt, open_data

PREPROCESS = Preprocess(40, 32, "bilinear", (0.4, 0.5, 0.6), (0.2, 0.3, 0.4))
NUMBER = 14


def save(path, seed, side=(50, 44)):
    """A smooth picture, different for each seed."""
    rng = np.random.default_rng(seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    small = Image.fromarray(rng.integers(0, 256, (6, 6, 3), np.uint8))
    small.resize(side, Image.Resampling.BICUBIC).save(path)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """The same pictures in class folders and, in the same order, in a flat folder."""
    root = tmp_path_factory.mktemp("pictures")
    for place in range(NUMBER):
        save(root / "classes" / ("cat" if place < 5 else "dog") / f"{place:02}.png", place)
        save(root / "flat" / f"{place:02}.png", place)
    return root


def by_hand(root, condition=None):
    """The model's input of all pictures, by torchvision's steps written out: resize, crop, corrupt, normalise."""
    pictures = [Image.open(path) for path in sorted((root / "flat").iterdir())]
    pixels = np.stack(
        [np.asarray(p.resize((45, 40), Image.Resampling.BILINEAR).crop((6, 4, 38, 36))) for p in pictures]
    )
    if condition:
        pixels = corrupt(pixels, *condition)
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (PREPROCESS.mean, PREPROCESS.std))
    return (torch.from_numpy(np.moveaxis(pixels, -1, 1).copy()) / 255 - mean) / std


@pytest.mark.parametrize("condition", [None, "clean", "contrast/4", Condition("gaussian_noise", 2)])
@pytest.mark.parametrize("workers", [0, 2])
def test_the_input_is_that_of_pictures_prepared_by_hand(folders, condition, workers):
    made = Condition("contrast", 4) if condition == "contrast/4" else condition if condition != "clean" else None
    loader = open_data(f"folder:{folders}/classes").loader(
        preprocess=PREPROCESS, condition=condition, batch_size=4, workers=workers
    )
    assert isinstance(loader, DataLoader)
    for _ in range(2):  # the same each time
        images, labels = (torch.cat(parts) for parts in zip(*loader, strict=True))
        torch.testing.assert_close(images, by_hand(folders, made))
        assert labels.tolist() == [0] * 5 + [1] * 9
    assert [len(labels) for _, labels in loader] == [4, 4, 4, 2]
    assert len(loader) == 4


def test_every_corruption_in_processes_of_their_own(folders):
    """Forked workers run what this process has run before: filters of OpenCV, compiled kernels."""
    data = open_data(f"folder:{folders}/flat")
    for name in covshift.corruptions.names("all"):
        here, there = (
            torch.cat(list(data.loader(preprocess=PREPROCESS, condition=f"{name}/3", workers=workers, limit=4)))
            for workers in (0, 1)
        )
        assert torch.equal(here, there), name


def test_a_flat_folder_is_unlabelled(folders):
    data = open_data(f"folder:{folders}/flat")
    assert not data.labelled
    assert len(data) == NUMBER
    assert repr(data) == f"Pictures('folder:{folders}/flat', 14 images without labels)"
    batches = list(data.loader(preprocess=PREPROCESS, batch_size=10))
    assert [batch.shape for batch in batches] == [(10, 3, 32, 32), (4, 3, 32, 32)]
    torch.testing.assert_close(torch.cat(batches), by_hand(folders))
    for read in (lambda: data.labels, lambda: data.classes):
        with pytest.raises(CovshiftError, match=r"expected labelled images, got folder:.*/flat.* a folder of its own"):
            read()


def test_limit_order_and_seed(folders):
    data = open_data(f"folder:{folders}/classes")

    def labels(**settings):
        return torch.cat([batch[1] for batch in data.loader(preprocess=PREPROCESS, **settings)]).tolist()

    assert labels(limit=6) == [0, 0, 0, 1, 1, 1]  # as many of each class, in the order of the data
    assert sorted(labels(order="shuffled")) == labels()
    assert labels(order="shuffled") == labels(order="shuffled") != labels(order="shuffled", seed=1)


def test_a_function_takes_images_as_they_are_stored(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (5, 20, 24, 3), np.uint8)
    np.savez(tmp_path / "some.npz", images=pixels, labels=np.arange(5))
    loader = open_data(f"npz:{tmp_path}/some.npz").loader(nn.Identity(), preprocess=lambda x: x.double() / 2)
    images, labels = next(iter(loader))
    assert torch.equal(images, torch.from_numpy(pixels).permute(0, 3, 1, 2).double() / 2)
    assert labels.tolist() == [0, 1, 2, 3, 4]


def test_samples_are_pixels_with_their_label(folders):
    dataset = open_data(f"folder:{folders}/classes").loader(preprocess=PREPROCESS).dataset
    assert dataset[-1].image.dtype == np.uint8
    assert dataset[-1].image.shape == (32, 32, 3)
    assert dataset[-1].label == 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model": nn.Flatten()}, "expected the preprocessing of the model, got a Flatten without it; .* preprocess="),
        ({}, "expected the preprocessing of the model, got nothing"),
        ({"preprocess": PREPROCESS, "condition": "fog"}, "a condition such as fog/3, got 'fog'"),
        ({"preprocess": PREPROCESS, "condition": "mist/3"}, "unknown corruption 'mist'"),
        ({"preprocess": PREPROCESS, "batch_size": 0}, "batch_size to be a whole number from 1, got 0"),
        ({"preprocess": PREPROCESS, "workers": -1}, "workers to be a whole number from 0, got -1"),
        ({"preprocess": PREPROCESS, "limit": 0}, "limit to be a number of images from 1, got 0"),
        ({"preprocess": PREPROCESS, "order": "random"}, "unknown order 'random'"),
    ],
)
def test_what_cannot_be_loaded(folders, settings, message):
    with pytest.raises(CovshiftError, match=message):
        open_data(f"folder:{folders}/classes").loader(**settings)


def test_corrupted_sets_without_clean_images(tmp_path):
    save(tmp_path / "fog/3/cat/a.png", 0)
    data = open_data(f"imagenet-c:{tmp_path}")
    assert len(data.loader(preprocess=PREPROCESS, condition="fog/3")) == 1
    with pytest.raises(CovshiftError, match="such as fog/3, got clean/0; it has no clean images"):
        data.loader(preprocess=PREPROCESS)


def test_pictures_of_several_sizes_or_broken(tmp_path):
    save(tmp_path / "a.png", 0)
    save(tmp_path / "b.png", 1, (30, 30))
    data = open_data(f"folder:{tmp_path}")
    assert next(iter(data.loader(preprocess=PREPROCESS))).shape == (2, 3, 32, 32)
    with pytest.raises(CovshiftError, match="expected images of one size"):
        list(data.loader(preprocess=lambda x: x))
    (tmp_path / "c.png").write_bytes(b"half a picture")
    with pytest.raises(CovshiftError, match=r"cannot read the picture .*c\.png"):
        list(open_data(f"folder:{tmp_path}").loader(preprocess=PREPROCESS))


def test_pixels_are_what_the_loader_makes_the_input_of(folders):
    for name in ("classes", "flat"):
        data = open_data(f"folder:{folders}/{name}")
        images, labels = data.pixels(preprocess=PREPROCESS, condition="contrast/4", limit=6)
        batch = next(iter(data.loader(preprocess=PREPROCESS, condition="contrast/4", limit=6)))
        assert images.dtype == np.uint8
        assert torch.equal(PREPROCESS(images), batch[0] if name == "classes" else batch)
        assert (labels is None) == (name == "flat")
    assert labels is None or labels.tolist() == batch[1].tolist()
