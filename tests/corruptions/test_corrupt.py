"""What holds for every corruption in the registry; a new one is tested without a new test."""

import os
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import covshift
from covshift import CovshiftError, corrupt
from covshift.corruptions import SEVERITY, category, frost_source, names

ALL = names("all")


def photo(height, width, seed=0):
    """Smooth colours and a few edges, so that every corruption has something to change."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width]
    waves = [np.sin(x * rng.uniform(0.05, 0.4) + y * rng.uniform(0.05, 0.4) + rng.uniform(0, 6)) for _ in range(3)]
    image = np.stack(waves, -1) * 90 + 128
    image[height // 4 : height // 2, width // 3 : width // 2] = rng.uniform(0, 255, 3)
    return image.astype(np.uint8)


BATCH = np.stack([photo(32, 32, seed) for seed in range(64)])


@pytest.mark.parametrize("name", ALL)
def test_changes_the_image_at_every_severity(name):
    for size in (32, 64, 224):
        image = photo(size, size)
        before = image.copy()
        outputs = [corrupt(image, name, severity) for severity in range(1, 6)]
        assert all(out.dtype == np.uint8 and out.shape == image.shape for out in outputs)
        assert all((out != image).any() for out in outputs)
        assert all((a != b).any() for a, b in pairwise(outputs))
        np.testing.assert_array_equal(image, before)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("shape", [(16, 16), (19, 300), (301, 16), (75, 53)])
def test_any_size_and_aspect_ratio(name, shape):
    for value in (photo(*shape), np.zeros((*shape, 3), np.uint8), np.full((*shape, 3), 255, np.uint8)):
        for severity in (1, 5):
            assert corrupt(value, name, severity).shape == value.shape


@pytest.mark.parametrize("name", ALL)
def test_same_bytes_for_any_batch_size_order_threads_and_type(name):
    whole = corrupt(BATCH, name, 3, seed=7, threads=1)
    np.testing.assert_array_equal(corrupt(BATCH, name, 3, seed=7, threads=2), whole)
    for size in (1, 7):
        for start in range(0, 14, size):
            piece = slice(start, start + size)
            got = corrupt(BATCH[piece], name, 3, seed=7, indices=range(64)[piece])
            np.testing.assert_array_equal(got, whole[piece])
    backwards = corrupt(BATCH[::-1], name, 3, seed=7, indices=list(range(63, -1, -1)))
    np.testing.assert_array_equal(backwards[::-1], whole)
    np.testing.assert_array_equal(corrupt(BATCH[5], name, 3, seed=7, indices=5), whole[5])
    tensor = torch.from_numpy(BATCH).permute(0, 3, 1, 2)
    out = corrupt(tensor, name, 3, seed=7)
    assert isinstance(out, torch.Tensor)
    assert out.shape == tensor.shape
    np.testing.assert_array_equal(out.permute(0, 2, 3, 1).numpy(), whole)
    np.testing.assert_array_equal(corrupt(tensor[5], name, 3, seed=7, indices=5).permute(1, 2, 0), whole[5])


def test_same_bytes_in_another_process():
    code = (
        "import hashlib, numpy as np; from covshift.corruptions import corrupt, names;"
        "image = np.arange(32 * 32 * 3, dtype=np.uint32).reshape(32, 32, 3).astype(np.uint8);"
        "print(hashlib.sha256(b''.join(corrupt(image, n, 4, indices=9).tobytes() for n in names('all'))).hexdigest())"
    )
    digests = {subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout for _ in range(2)}
    assert len(digests) == 1


@pytest.mark.parametrize("name", ["gaussian_noise", "glass_blur", "snow", "frost", "fog", "elastic_transform"])
def test_seed_index_and_severity_draw_anew(name):
    first = corrupt(BATCH[0], name, 3)
    assert (corrupt(BATCH[0], name, 3, seed=1) != first).any()
    assert (corrupt(BATCH[0], name, 3, indices=1) != first).any()


@settings(max_examples=20, deadline=None)
@given(st.integers(), st.lists(st.integers(min_value=0), min_size=1, max_size=5, unique=True))
def test_an_image_does_not_see_its_neighbours(seed, indices):
    together = corrupt(BATCH[: len(indices)], "impulse_noise", 2, seed=seed, indices=indices)
    alone = [corrupt(image, "impulse_noise", 2, seed=seed, indices=i) for image, i in zip(BATCH, indices, strict=False)]
    np.testing.assert_array_equal(together, alone)


def test_empty_batch_and_strided_input():
    assert corrupt(BATCH[:0], "fog", 1).shape == (0, 32, 32, 3)
    turned = BATCH.transpose(0, 2, 1, 3)
    np.testing.assert_array_equal(corrupt(turned, "fog", 1), corrupt(np.ascontiguousarray(turned), "fog", 1))


def test_constants_follow_the_size_unless_named():
    image = photo(32, 32)
    np.testing.assert_array_equal(corrupt(image, "contrast", 3), corrupt(image, "contrast", 3, constants=32))
    assert (corrupt(image, "contrast", 3, constants=224) != corrupt(image, "contrast", 3)).any()


def test_published_form_is_a_jpeg_of_quality_85():
    from covshift.corruptions.digital import jpeg

    expected = corrupt(photo(224, 224), "fog", 2)
    jpeg(expected, 85, expected)
    np.testing.assert_array_equal(corrupt(photo(224, 224), "fog", 2, jpeg=85), expected)


def test_registry_and_tables_agree():
    assert names() + names("holdout") == ALL
    assert len(set(ALL)) == 19
    assert {category(name) for name in ALL} == {"noise", "blur", "weather", "digital"}
    for table in SEVERITY.values():
        assert set(table) == set(ALL)
        assert all(len(entries) == 5 for entries in table.values())


def test_frost_from_a_folder_equals_frost_from_arrays(tmp_path):
    from PIL import Image

    textures = [photo(240, 260 + i, seed=i) for i in range(6)]
    for i, texture in enumerate(textures):
        Image.fromarray(texture).save(tmp_path / f"ice{i}.png")
    expected = corrupt(BATCH, "frost", 3, frost=textures)
    np.testing.assert_array_equal(corrupt(BATCH, "frost", 3, frost=tmp_path), expected)
    sources = {frost_source(textures), frost_source(tmp_path), frost_source()}
    assert len(sources) == 3
    assert frost_source(tmp_path).split()[-1] == frost_source(textures).split()[-1]
    Image.fromarray(255 - textures[0]).save(tmp_path / "ice0.png")  # an edited folder is read again
    os.utime(tmp_path / "ice0.png", (1, 1))
    assert frost_source(tmp_path).split()[-1] != frost_source(textures).split()[-1]
    (tmp_path / "ice1.png").write_text("no picture")
    with pytest.raises(CovshiftError, match=r"cannot read the picture .*ice1"):
        corrupt(BATCH, "frost", 3, frost=tmp_path)


@pytest.mark.parametrize("name", ["gaussian_noise", "elastic_transform", "snow"])
def test_same_bytes_where_threads_are_the_default(name):
    batch = np.stack([photo(96, 112, seed) for seed in range(9)])
    np.testing.assert_array_equal(corrupt(batch, name, 2), corrupt(batch, name, 2, threads=1))
    np.testing.assert_array_equal(corrupt(batch[4], name, 2, indices=np.array(4)), corrupt(batch, name, 2)[4])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"name": "gausian_noise"}, "did you mean 'gaussian_noise'"),
        ({"severity": 0}, "severity from 1 to 5, got 0"),
        ({"severity": 6}, "severity from 1 to 5"),
        ({"severity": 2.5}, "severity from 1 to 5"),
        ({"images": np.zeros((32, 32), np.uint8)}, "grey"),
        ({"images": np.zeros((32, 32, 1), np.uint8)}, "grey"),
        ({"images": np.zeros((32, 32, 4), np.uint8)}, "alpha"),
        ({"images": np.zeros((3, 32, 32), np.uint8)}, "HWC"),
        ({"images": torch.zeros((32, 32, 3), dtype=torch.uint8)}, "CHW"),
        ({"images": np.zeros((32, 32, 3))}, "uint8"),
        ({"images": torch.zeros((3, 32, 32))}, "uint8"),
        ({"images": np.zeros((15, 32, 3), np.uint8)}, "16"),
        ({"images": "cat.png"}, "NumPy array or a torch tensor, got str"),
        ({"indices": [1, 2]}, "one index for each of 1 images, got 2"),
        ({"constants": 48}, "32, 64, 224, 299"),
        ({"rng": 7}, "seed="),
        ({"jpeg": 0}, "quality from 1 to 100"),
        ({"jpeg": 85.5}, "quality from 1 to 100"),
        ({"name": None}, "unknown corruption None"),
        ({"images": torch.zeros((3, 32, 32), dtype=torch.bfloat16)}, "uint8"),
        ({"images": np.zeros((3, 32, 32), np.uint8)}, "move the channels"),
        ({"indices": [1.5]}, "an index to be a whole number, got 1.5"),
        ({"indices": "x"}, "an index to be a whole number"),
        ({"seed": 1.5}, "seed to be a whole number"),
        ({"seed": None}, "seed to be a whole number"),
        ({"threads": 0}, "threads to be 1 or more"),
        ({"constants": [224]}, "32, 64, 224, 299"),
        ({"name": "frost", "frost": None}, "textures"),
        ({"name": "frost", "frost": [np.zeros((0, 9, 3), np.uint8)]}, "textures"),
        ({"name": "frost", "frost": "nowhere"}, "is not a folder"),
        ({"name": "frost", "frost": []}, "textures"),
    ],
)
def test_errors_say_what_to_do(arguments, says):
    given = {"images": photo(32, 32), "name": "fog", "severity": 3} | arguments
    with pytest.raises(CovshiftError, match=says):
        corrupt(given.pop("images"), **given)


def test_missing_published_textures_name_the_command(monkeypatch):
    monkeypatch.setattr("covshift.corruptions.textures.find_spec", lambda name: None)
    with pytest.raises(CovshiftError, match="pip install --no-deps imagecorruptions"):
        corrupt(photo(32, 32), "frost", 1, frost="published")


def test_unknown_group():
    with pytest.raises(CovshiftError, match="did you mean 'holdout'"):
        names("hold-out")


def test_numba_waits_for_the_first_corruption():
    code = "import sys, covshift.corruptions; print('numba' in sys.modules, 'cv2' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.split() == ["False", "False"]
    assert "corrupt" in covshift.__all__
