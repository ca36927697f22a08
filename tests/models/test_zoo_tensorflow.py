"""TensorFlow's checkpoints, without TensorFlow."""

from pathlib import Path

import numpy as np
import pytest
from published import write_tensorflow

from covshift import CovshiftError
from covshift.models.zoo.tensorflow import list_tensors, prefix_of, read_tensors

RNG = np.random.default_rng(0)
# Names that share beginnings, also across the blocks of the table; no values, one value, and many.
TENSORS = {f"net/conv2d_{i}/kernel": RNG.random((3, 3, i + 1, 2)).astype(np.float32) for i in range(40)}
TENSORS |= {"net/conv2d/kernel": RNG.random((1, 1, 2, 200)).astype(np.float32), "empty": np.zeros((0, 4), np.float32)}
TENSORS |= {"global_step": np.int64(2**40), "net/bias": np.float32(0.5), "ü": np.arange(3)}


@pytest.mark.parametrize("per_block", [1, 7, 1000])
def test_everything_comes_back(per_block, tmp_path):
    index = write_tensorflow(tmp_path / "model.ckpt-12", TENSORS, per_block)
    for path in (index, prefix_of(index), tmp_path / "model.ckpt-12.data-00000-of-00001"):
        found = read_tensors(path)
        assert found.keys() == TENSORS.keys()
        for name, array in TENSORS.items():
            assert found[name].numpy().dtype == array.dtype
            assert np.array_equal(found[name].numpy(), array), name
    assert list_tensors(index)["net/conv2d_3/kernel"].shape == (3, 3, 4, 2)
    assert read_tensors(index, lambda name: name == "empty").keys() == {"empty"}


def test_damaged_files(tmp_path):
    index = write_tensorflow(tmp_path / "model.ckpt", TENSORS)
    data = tmp_path / "model.ckpt.data-00000-of-00001"
    whole, table = data.read_bytes(), index.read_bytes()
    data.write_bytes(whole[:-1])
    with pytest.raises(CovshiftError, match="ends before ü; fetch it again"):
        read_tensors(index)
    data.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
    with pytest.raises(CovshiftError, match=r"global_step in .* is damaged: its checksum is not that of the index"):
        read_tensors(index)
    data.unlink()
    with pytest.raises(CovshiftError, match=r"cannot read .*model.ckpt.data-00000-of-00001: No such file"):
        read_tensors(index)
    for broken in (b"", table[: len(table) // 2], b"x" * 100):
        index.write_bytes(broken)
        with pytest.raises(CovshiftError, match="is not a complete index of a TensorFlow checkpoint"):
            read_tensors(index)
    for at in range(0, len(table) - 8, 17):
        index.write_bytes(table[:at] + b"\xff\xff\xff" + table[at + 3 :])
        with pytest.raises(CovshiftError):
            read_tensors(index)


def value(name, shape):
    """What was stored under a name: tensorflow/ was written by the Saver of TensorFlow 2.19 itself."""
    return ((np.arange(np.prod(shape)) + sum(name.encode())) % 251 / 8 - 15).astype(np.float32).reshape(shape)


def test_what_tensorflow_wrote():
    found = read_tensors(Path(__file__).parent / "tensorflow" / "model.ckpt-37535")
    assert len(found) == 94
    for i in range(30):
        number = f"_{i}" if i else ""
        for name, shape in {
            f"base_model/conv2d{number}/kernel": (1, 1, i % 3 + 1, 4),
            f"base_model/batch_normalization{number}/gamma": (4,),
            f"base_model/batch_normalization{number}/moving_mean": (4,),
        }.items():
            assert np.array_equal(found[name].numpy(), value(name, shape)), name
    assert found["global_step"] == 37535
    assert found["scalar"] == 0.25
    assert found["none"].shape == (0, 3)
