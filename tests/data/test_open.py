"""Every source of images, read from small files in its published layout."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from covshift.corruptions import names
from covshift.data import CLEAN, MIXED, Condition, open_data
from covshift.data.folder import class_indices, wnids
from covshift.support.errors import CovshiftError

FOG = Condition("fog", 3)


def picture(seed: int, side: int = 32) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (side, side, 3), np.uint8)


def save(path: Path, seed: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(picture(seed)).save(path)


def read(data, condition=CLEAN, indices=None):
    chosen = range(len(data)) if indices is None else indices
    return list(data.read(condition, list(chosen), np.asarray))


def test_folder_reads_classes_in_order(tmp_path):
    for seed, name in enumerate(["cat/a.png", "cat/b.png", "dog/c.png"]):
        save(tmp_path / name, seed)
    data = open_data(f"folder:{tmp_path}")
    assert data.labels.tolist() == [0, 0, 1]
    assert (data.classes, data.imagenet, len(data)) == (2, False, 3)
    assert [np.array_equal(image, picture(seed)) for seed, image in enumerate(read(data))] == [True] * 3
    assert data.has(FOG)
    assert data.has(MIXED)


def test_some_imagenet_classes_keep_their_indices(tmp_path):
    for seed, name in enumerate(["n02119789/a.png", "n01440764/b.png"]):
        save(tmp_path / name, seed)
    data = open_data(f"folder:{tmp_path}")
    assert data.labels.tolist() == [0, wnids()["n02119789"]]
    assert wnids()["n02119789"] == 278  # kit fox
    assert (data.classes, data.imagenet) == (1000, False)


def test_imagenet_names_may_be_classes_of_their_own(tmp_path):
    for seed, name in enumerate(["n02119789/a.png", "n01440764/b.png"]):
        save(tmp_path / name, seed)
    data = open_data(f"folder:{tmp_path}?wnids=no")
    assert (data.labels.tolist(), data.classes) == ([0, 1], 2)


def test_a_tree_that_was_cut_short_is_noticed(tmp_path):
    for condition in ("fog/3", "snow/3"):
        for number in range(2):
            save(tmp_path / condition / f"n01440764/{number}.png", number)
    (tmp_path / "snow/3/n01440764/1.png").unlink()
    with pytest.raises(CovshiftError, match=r"got 1 and 2; the first that is not in both is n01440764/1\.png"):
        open_data(f"imagenet-c:{tmp_path}")


def test_numbers_are_ordered_as_numbers():
    assert class_indices({str(number) for number in range(12)}) == {str(number): number for number in range(12)}


def test_digest_follows_the_files(tmp_path):
    save(tmp_path / "cat/a.png", 0)
    before = open_data(f"folder:{tmp_path}").digest
    assert open_data(f"folder:{tmp_path}").digest == before
    save(tmp_path / "cat/b.png", 0)
    assert open_data(f"folder:{tmp_path}").digest != before
    Image.new("RGB", (32, 32)).save(tmp_path / "cat/b.bmp")
    black = open_data(f"folder:{tmp_path}").digest
    Image.new("RGB", (32, 32), "white").save(tmp_path / "cat/b.bmp")  # of the same size in bytes
    assert open_data(f"folder:{tmp_path}").digest != black


@pytest.mark.parametrize("where", ["", "weather/"], ids=["flat", "as in the archives"])
def test_imagenet_c_reads_the_published_tree(tmp_path, where):
    save(tmp_path / f"{where}fog/3/n01440764/x.JPEG", 0)
    save(tmp_path / f"{where}fog/5/n01440764/x.JPEG", 1)
    data = open_data(f"imagenet-c:{tmp_path}")
    assert data.stored == {FOG, Condition("fog", 5)}
    assert not data.has(CLEAN)
    with Image.open(tmp_path / f"{where}fog/5/n01440764/x.JPEG") as opened:
        assert np.array_equal(read(data, Condition("fog", 5))[0], np.asarray(opened))


def test_clean_images_from_elsewhere(tmp_path):
    save(tmp_path / "c/fog/3/n01440764/x.png", 0)
    save(tmp_path / "val/n01440764/x.png", 1)
    data = open_data(f"imagenet-c:{tmp_path}/c?clean=folder:{tmp_path}/val")
    assert np.array_equal(read(data, FOG)[0], picture(0))
    assert np.array_equal(read(data, CLEAN)[0], picture(1))
    assert data.has(Condition("snow", 1))


def test_cifar10_c_reads_the_published_files(tmp_path):
    images = np.stack([picture(seed) for seed in range(20)])
    np.save(tmp_path / "fog.npy", images)
    np.save(tmp_path / "labels.npy", np.tile(np.array([3, 1, 4, 9], np.uint8), 5))
    data = open_data(f"cifar10-c:{tmp_path}")
    assert data.labels.tolist() == [3, 1, 4, 9]
    assert data.classes == 10
    assert np.array_equal(read(data, FOG, [1, 3]), images[[9, 11]])


@pytest.mark.parametrize("suffix", ["npz", "npy"])
def test_npz_holds_images_and_labels(tmp_path, suffix):
    images, labels = np.stack([picture(0), picture(1)]), np.array([0, 2], np.int32)
    if suffix == "npz":
        np.savez(tmp_path / "set.npz", images=images, labels=labels)
        data = open_data(f"npz:{tmp_path}/set.npz?classes=5")
    else:
        np.save(tmp_path / "images.npy", images)
        np.save(tmp_path / "labels.npy", labels)
        data = open_data(f"npz:{tmp_path}/images.npy?labels={tmp_path}/labels.npy&classes=5")
    assert data.classes == 5
    assert data.labels.tolist() == [0, 2]
    assert np.array_equal(read(data), images)


def _wrong(tmp_path: Path) -> dict[str, str]:
    """Names that cannot be opened, and what the error says."""
    (tmp_path / "empty").mkdir()
    save(tmp_path / "flat/a.png", 0)
    save(tmp_path / "stray/a.png", 0)
    save(tmp_path / "stray/cat/a.png", 0)
    (tmp_path / "cut.npz").write_bytes(b"PK\x03\x04 half")
    np.savez(tmp_path / "keys.npz", x=np.zeros(3))
    np.savez(tmp_path / "grey.npz", images=np.zeros((2, 32, 32), np.uint8), labels=np.zeros(2, int))
    np.savez(tmp_path / "float.npz", images=np.zeros((2, 32, 32, 3)), labels=np.zeros(2, int))
    good = np.zeros((2, 32, 32, 3), np.uint8)
    np.savez(tmp_path / "few.npz", images=good, labels=np.zeros(1, int))
    np.savez(tmp_path / "minus.npz", images=good, labels=np.array([0, -1]))
    (tmp_path / "c").mkdir()
    np.save(tmp_path / "c/fog.npy", good)
    np.save(tmp_path / "c/labels.npy", np.zeros(10, np.uint8))
    return {
        "": "expected a data set such as folder:val",
        "val": "expected a data set as source:name",
        "foldr:val": "did you mean 'folder'",
        f"folder:{tmp_path}/nowhere": "expected a folder",
        f"folder:{tmp_path}/empty": "found none",
        f"folder:{tmp_path}/stray": "is in none",
        f"folder:{tmp_path}/flat?size=3": "unknown setting of folder:",
        f"imagenet-c:{tmp_path}/flat": "expected folders such as",
        f"cifar10-c:{tmp_path}/flat": "expected files such as",
        f"cifar10-c:{tmp_path}/c": "to hold 10 images, got 2",
        f"npz:{tmp_path}/nowhere.npz": "there is no file",
        f"npz:{tmp_path}/cut.npz": "not a whole npz file",
        f"npz:{tmp_path}/keys.npz": "expected arrays 'images' and 'labels'",
        f"npz:{tmp_path}/grey.npz": "uint8 RGB images",
        f"npz:{tmp_path}/float.npz": "got float64",
        f"npz:{tmp_path}/few.npz": "a class index from 0 for each of 2 images",
        f"npz:{tmp_path}/minus.npz": "a class index from 0",
        f"npz:{tmp_path}/few.npz?classes=ten": "a whole number",
    }


def test_bad_names_are_clear_errors(tmp_path):
    for uri, words in _wrong(tmp_path).items():
        with pytest.raises(CovshiftError) as caught:
            open_data(uri)
        assert words in str(caught.value), (uri, str(caught.value))


def test_wnids_are_imagenets():
    assert len(wnids()) == 1000
    assert list(wnids()) == sorted(wnids())
    assert len(names("all")) == 19
