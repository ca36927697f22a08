"""What an attack found, one by one: each of these was a traceback, a hang, or wrong in silence."""

import io
import json
import struct

import numpy as np
import pytest
import torch
from networks import assert_same, snapshot, tiny
from PIL import Image
from runs import workplace
from safetensors.torch import save as to_safetensors
from test_files import LABELS, PIXELS, encoded, measured, npy, npz
from torch import nn
from trees import picture
from typer.testing import CliRunner

from covshift import Batch, Condition, CovshiftError, Source, adapt, corrupt, estimate
from covshift.cli import app
from covshift.core.adapter import Adapter
from covshift.data import open_data
from covshift.models.builtin import WEIGHTS, open_weights
from covshift.models.checkpoint import read_state
from covshift.shift import Predictor
from covshift.shift.forecast.signals import SIGNALS


def huge() -> bytes:
    """A PNG of 90 million pixels in a few kilobytes."""
    content = io.BytesIO()
    Image.new("1", (10_000, 9_000)).save(content, "PNG")
    return content.getvalue()


BROKEN = {
    "an EPS file": lambda: encoded("EPS"),
    "a DDS file": lambda: encoded("DDS"),
    "a TIFF file of floats": lambda: encoded("TIFF", "F"),
    "a TIFF file of 32-bit numbers": lambda: encoded("TIFF", "I"),
    "half a JPEG file": lambda: encoded("JPEG")[:-400],
    "too large": huge,
}


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with a network and pictures of its classes, one of which shall be broken."""
    monkeypatch.chdir(workplace(tmp_path))
    for index in range(12):
        picture(tmp_path / "set" / f"class{index % 6}" / f"{index}.png", index)
    return tmp_path


def invoke(*words):
    return CliRunner().invoke(app, list(map(str, words)))


NET = ("--model", "py:nets:net")
COMMANDS = {
    "corrupt": ("corrupt", "set", "out", "--corruptions", "fog", "--severities", "1", "--no-crop"),
    "bench": ("bench", "run", *NET, "--data", "folder:set", "--out", "run", "--size", "16", "--corruptions", "fog"),
    "shift": ("shift", *NET, "--target", "folder:set"),
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_picture_is_named_in_one_line_or_skipped(command, kind, place):
    (place / "set" / "class0" / "broken.jpg").write_bytes(BROKEN[kind]())
    result = invoke(*COMMANDS[command])
    assert (result.exit_code, type(result.exception)) == (1, SystemExit), result.output
    (error,) = (line for line in result.stderr.splitlines() if line.startswith("error:"))
    assert "broken.jpg" in error
    assert "--skip-broken" in error
    result = invoke(*COMMANDS[command], "--skip-broken")
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("kind", BROKEN)
def test_data_check_finds_broken_pictures_without_decoding(kind, place):
    (place / "set" / "class0" / "broken.jpg").write_bytes(BROKEN[kind]())
    result = invoke("data", "check", "folder:set")
    assert result.exit_code == 3
    assert "1 file damaged: set/class0/broken.jpg" in result.stdout


def declaring(images: int) -> bytes:
    """An npy file of six images whose header declares more."""
    more = b"(%d, 4, 4, 3), }" % images
    content = npy(PIXELS).replace(b"(6, 4, 4, 3), }".ljust(len(more)), more)
    assert more in content
    return content


ARRAYS = {
    "labels beyond int64": (PIXELS, np.full(6, 2**63 + 3, np.uint64), "below 2\\^63, got 9223372036854775811"),
    "images without height": (PIXELS[:, :0], LABELS, "got uint8 of shape \\(6, 0, 4, 3\\)"),
    "images without width": (PIXELS[:, :, :0], LABELS, "got uint8 of shape \\(6, 4, 0, 3\\)"),
    "a billion images": (declaring(10**9), LABELS, "not a whole np[yz] file"),
}


@pytest.mark.parametrize("case", ARRAYS)
@pytest.mark.parametrize("packed", [True, False])
def test_arrays_that_cannot_be(case, packed, tmp_path):
    images, labels, words = ARRAYS[case]
    if packed:
        (tmp_path / "a.npz").write_bytes(npz(images=images, labels=labels))
        uri = f"npz:{tmp_path}/a.npz"
    else:
        (tmp_path / "i.npy").write_bytes(images if isinstance(images, bytes) else npy(images))
        (tmp_path / "l.npy").write_bytes(npy(labels))
        uri = f"npz:{tmp_path}/i.npy?labels={tmp_path}/l.npy"
    with pytest.raises(CovshiftError, match=words):
        open_data(uri)


def test_an_array_that_changes_on_disk_is_read_anew(tmp_path):
    (tmp_path / "l.npy").write_bytes(npy(LABELS))
    uri = f"npz:{tmp_path}/i.npy?labels={tmp_path}/l.npy"
    digests = set()
    for value in (0, 7):
        (tmp_path / "i.npy").unlink(missing_ok=True)
        (tmp_path / "i.npy").write_bytes(npy(PIXELS + np.uint8(value)))
        digests.add(open_data(uri).digest)
    assert len(digests) == 2


def test_a_checkpoint_that_holds_itself(tmp_path):
    content = {"weight": torch.zeros(1)}
    content["state_dict"] = content
    torch.save(content, tmp_path / "a.pth")
    with pytest.raises(CovshiftError, match="holds itself"):
        read_state(tmp_path / "a.pth")


@pytest.mark.parametrize("length", [2**63, 10**8 + 1, 10**6])
def test_a_header_of_absurd_size(length, tmp_path):
    (tmp_path / "a.safetensors").write_bytes(struct.pack("<Q", length) + b'{"a": 1}')
    with pytest.raises(CovshiftError, match="header"):
        read_state(tmp_path / "a.safetensors")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"recipe": {"data": "cifar10", "depth": 6 * 10**8 + 2, "width": 16, "norm": "batch"}}, "600000002 layers"),
        ({"recipe": {"data": "cifar10", "depth": 20, "width": 10**6, "norm": "batch"}}, "1000000 channels"),
        ({"classes": 10**12}, "1000000000000 classes"),
        ({"std": [0, 1, 1]}, "the colour"),
        ({"remark": "x" * 1_000_000}, "more than 1,000,000"),
    ],
)
def test_a_card_of_absurd_size(change, words, tmp_path):
    card = json.loads((WEIGHTS / "resnet20.json").read_text())
    (tmp_path / "a.safetensors").write_bytes((WEIGHTS / "resnet20.safetensors").read_bytes())
    (tmp_path / "a.json").write_text(json.dumps(card | change))
    with pytest.raises(CovshiftError, match=words):
        open_weights(tmp_path / "a.safetensors")


@pytest.mark.parametrize("pair", [([], "zz"), ("fog", "zz"), ("fog", -1), ("fog", 1.5), ("fog", True), (None, 1)])
def test_a_condition_that_cannot_be(pair):
    with pytest.raises(CovshiftError, match=r"expected (corruption|severity) to be"):
        Condition(*pair)


@pytest.mark.parametrize("name", ["fog", "frost"])
@pytest.mark.parametrize("frost", [object(), 3, None, [], [None], {1: 2}, [PIXELS]])
def test_ice_is_checked_for_every_corruption(name, frost):
    with pytest.raises(CovshiftError, match="expected frost textures as uint8 arrays"):
        corrupt(np.zeros((16, 16, 3), np.uint8), name, 3, frost=frost)


USES = {
    "adapt": lambda model, x: adapt(model, Batch(prior=1)),
    "adapt to the source that it holds": lambda model, x: adapt(model, Batch(), source=Source.of(model)),
    "estimate": lambda model, x: estimate(model, x),
    "estimate in one pass": lambda model, x: estimate(model, x, exact=False),
    "Source.measure": lambda model, x: Source.measure(model, x),
}
HELD = [("running_mean", np.nan), ("running_mean", np.inf), *(("running_var", each) for each in (np.nan, np.inf, -1))]


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize(("buffer", "value"), HELD)
def test_a_model_that_holds_impossible_statistics(buffer, value, use):
    model, x = nn.Sequential(nn.BatchNorm2d(4), nn.BatchNorm2d(4)).eval(), torch.rand(8, 4, 6, 6)
    before = snapshot(model)
    found = USES[use](model, x)  # of a model just constructed
    if isinstance(found, Adapter):
        found.remove()
    getattr(model[1], buffer)[2] = value
    with pytest.raises(CovshiftError, match="expected layer '1' to hold finite means and finite variances from 0"):
        USES[use](model, x)
    getattr(model[1], buffer)[2] = before["state"][f"1.{buffer}"][2]
    assert_same(before, model)


def predictor_file(net, rows, **metadata) -> bytes:
    whole = measured(net)
    kept = json.loads(whole[8 : 8 + int.from_bytes(whole[:8], "little")])["__metadata__"]
    return to_safetensors({"measured": rows}, kept | metadata)


NAMES = [f"{which} {name}" for which in ("plain", "adapted") for name in SIGNALS]
ROWS = torch.rand(5, 14, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("rows", "metadata", "words"),
    [
        (-ROWS, {}, "plain error of clean/0 is -"),
        (ROWS * torch.tensor([1.0] * 13 + [-1.0]), {}, "threshold of clean/0 is -"),
        (ROWS + 1, {}, "not from 0 to 1"),
        (ROWS, {"signals": json.dumps(["plain judgement", *NAMES[1:]])}, "differs is 'plain judge'"),
        (ROWS, {"scale": "[-1, 0.5, 0.5]"}, "temperature is -1"),
        (ROWS, {"conditions": json.dumps([["clean", 0]] + [["fog", 1]] * 4)}, "a condition twice"),
        (ROWS, {"conditions": json.dumps([["clean", 0]] + [["fog", k] for k in (1, 2, 3, 9)])}, "fog/9 is not"),
        (ROWS, {"conditions": json.dumps([["fog", k] for k in range(5)])}, "not clean/0"),
    ],
)
def test_a_predictor_with_impossible_content(rows, metadata, words, tmp_path):
    net = tiny()
    (tmp_path / "whole").write_bytes(predictor_file(net, ROWS))
    Predictor.load(tmp_path / "whole", net)
    (tmp_path / "changed").write_bytes(predictor_file(net, rows, **metadata))
    with pytest.raises(CovshiftError, match=words):
        Predictor.load(tmp_path / "changed", net)
