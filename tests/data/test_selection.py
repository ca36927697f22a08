"""Images chosen, ordered, prepared and corrupted."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import covshift
from covshift.data import CLEAN, MIXED, Condition, open_data
from covshift.data.arrays import CleanArray
from covshift.data.condition import TEST, draw_mixed
from covshift.data.selection import CorruptionSettings, Selection, choose
from covshift.support.errors import CovshiftError

FOG = Condition("fog", 3)


def some_data(number: int = 40) -> CleanArray:
    rng = np.random.default_rng(0)
    return CleanArray("npz:x", rng.integers(0, 256, (number, 32, 32, 3), np.uint8), np.arange(number) % 4)


def all_of(selection: Selection, condition: Condition, size: int = 7):
    batches = list(selection.images_in(condition).batches(size))
    return np.concatenate([b.images for b in batches]), np.concatenate([b.labels for b in batches])


@given(st.lists(st.integers(0, 4), min_size=1, max_size=60), st.integers(1, 60), st.integers(0, 5))
def test_a_subset_is_balanced(labels, limit, seed):
    labels = np.array(labels)
    chosen = choose(labels, limit=limit, seed=seed)
    assert len(set(chosen)) == len(chosen) == min(limit, len(labels))
    taken, there = (np.bincount(each, minlength=5) for each in (labels[chosen], labels))
    # A class has fewer than another only where it has no more, or is one behind.
    assert all(taken[c] == there[c] or taken[c] >= taken.max() - 1 for c in range(5))
    assert choose(labels, limit=limit, seed=seed) == chosen


def test_orders():
    labels = np.array([1, 0, 1, 0])
    assert choose(labels, order="source") == [0, 1, 2, 3]
    assert choose(labels, order="label") == [1, 3, 0, 2]
    assert sorted(choose(labels)) == [0, 1, 2, 3]
    with pytest.raises(CovshiftError, match="did you mean 'label'"):
        choose(labels, order="labels")


@pytest.mark.parametrize("size", [1, 7, 40, 300])
@pytest.mark.parametrize("memory", [0, 50_000, 2**30], ids=["nothing kept", "some kept", "all kept"])
def test_batches_are_what_corrupt_makes(size, memory):
    data, order = some_data(), choose(np.arange(40) % 4)
    images = Selection(
        data, order, np.asarray, corruption_settings=CorruptionSettings(seed=3), memory=memory
    ).images_in(FOG)
    expected = covshift.corrupt(data.array(CLEAN)[order], *FOG, seed=3, indices=order)
    for _ in range(2):  # the second time from memory, where they fit
        batches = list(images.batches(size))
        assert [len(b.labels) for b in batches[:-1]] == [size] * (len(batches) - 1)
        assert np.array_equal(np.concatenate([b.images for b in batches]), expected)
        assert np.array_equal(np.concatenate([b.labels for b in batches]), data.labels[order])


def test_an_image_does_not_depend_on_the_subset():
    data = some_data()
    whole, _ = all_of(Selection(data, range(40), np.asarray), FOG)
    part, _ = all_of(Selection(data, [30, 3], np.asarray), FOG)
    assert np.array_equal(part, whole[[30, 3]])


def test_mixed_gives_every_image_one_of_the_conditions():
    data = some_data()
    images, _ = all_of(Selection(data, range(40), np.asarray), MIXED)
    for index, place in enumerate(draw_mixed(40, TEST, seed=0)):
        expected = covshift.corrupt(data.array(CLEAN)[index], *TEST[place], indices=index)
        assert np.array_equal(images[index], expected)


def test_pictures_are_decoded_once(tmp_path, monkeypatch):
    (tmp_path / "a").mkdir()
    Image.new("RGB", (32, 32)).save(tmp_path / "a/x.png")
    data = open_data(f"folder:{tmp_path}")
    selection = Selection(data, [0], np.asarray)
    all_of(selection, CLEAN)
    monkeypatch.setattr(data, "read", None)
    all_of(selection, FOG)


def test_a_broken_picture_is_named_or_skipped(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        Image.new("RGB", (32, 32)).save(tmp_path / name / "good.png")
    (tmp_path / "b/half.png").write_bytes((tmp_path / "b/good.png").read_bytes()[:60])
    data = open_data(f"folder:{tmp_path}")
    with pytest.raises(CovshiftError, match=r"half\.png.*skip_broken=True"):
        all_of(Selection(data, range(3), np.asarray, skip_broken=False), FOG)
    with pytest.raises(CovshiftError, match=r"half\.png.*; repair or remove it$"):
        all_of(Selection(data, range(3), np.asarray), FOG)
    images, labels = all_of(Selection(data, range(3), np.asarray, skip_broken=True), FOG)
    assert (len(images), labels.tolist()) == (2, [0, 1])


def test_pictures_of_many_sizes_need_a_crop(tmp_path):
    (tmp_path / "a").mkdir()
    Image.new("RGB", (32, 32)).save(tmp_path / "a/x.png")
    Image.new("RGB", (40, 32)).save(tmp_path / "a/y.png")
    with pytest.raises(CovshiftError, match="32 x 32 and 40 x 32 px"):
        all_of(Selection(open_data(f"folder:{tmp_path}"), range(2), np.asarray), CLEAN)
