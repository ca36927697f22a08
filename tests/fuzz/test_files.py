"""Damaged files of every kind that covshift reads: they are read or refused, and nothing else happens."""

import io
import json
import warnings
import zipfile

import numpy as np
import pytest
import torch
from damage import attempt
from networks import tiny
from PIL import Image
from safetensors.torch import load as from_safetensors
from safetensors.torch import save as to_safetensors

import covshift
from covshift.core.identity import digest
from covshift.core.statistics import Statistics
from covshift.data import open_data
from covshift.data.condition import CLEAN
from covshift.models.builtin import WEIGHTS, open_weights
from covshift.models.checkpoint import load_weights, read_state
from covshift.shift import Predictor
from covshift.shift.forecast.signals import SIGNALS
from covshift.support import images

SLOW = pytest.mark.slow


def times(few: int, many: int):
    """A short run for every day, and a long one with another seed."""
    return pytest.mark.parametrize(("number", "seed"), [(few, 0), pytest.param(many, 1, marks=SLOW)])


def encoded(kind: str, mode: str = "RGB", **options: object) -> bytes:
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (24, 24, 3), np.uint8)).convert(mode)
    content = io.BytesIO()
    picture.save(content, kind, **options)
    return content.getvalue()


PICTURES = [
    *(encoded(kind) for kind in (*images.FORMATS, "DDS", "EPS", "GIF", "TGA", "JPEG2000", "ICO")),
    encoded("JPEG", progressive=True),
    encoded("JPEG", "CMYK"),
    encoded("PNG", "P", transparency=0),
    encoded("PNG", "I;16"),
    encoded("TIFF", "F"),
    encoded("TIFF", "I"),
    *(encoded("TIFF", compression=how) for how in ("tiff_lzw", "jpeg", "tiff_adobe_deflate", "packbits")),
    encoded("WEBP", lossless=True),
]


@times(400, 20_000)
def test_pictures(number, seed, tmp_path):
    def use(path):
        pixels = images.read_image(path, crop=bool(seed))
        assert pixels.dtype == np.uint8
        assert pixels.ndim == 3

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Pillow, about damage that it reads past
        taken, refused = attempt(number, seed, tmp_path, ".jpg", PICTURES, use, 64)
    assert min(taken, refused) > number / 50


def npy(array) -> bytes:
    content = io.BytesIO()
    np.save(content, array)
    return content.getvalue()


PIXELS, LABELS = np.zeros((6, 4, 4, 3), np.uint8), np.arange(6)


def npz(how=zipfile.ZIP_STORED, **arrays) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", how) as archive:
        for name, array in arrays.items():
            archive.writestr(f"{name}.npy", array if isinstance(array, bytes) else npy(array))
    return content.getvalue()


@times(300, 5_000)
def test_arrays(number, seed, tmp_path):
    (tmp_path / "labels.npy").write_bytes(npy(LABELS))

    def use(path):
        data = open_data(f"npz:{path}" if path.suffix == ".npz" else f"npz:{path}?labels={tmp_path}/labels.npy")
        assert data.labels.min() >= 0
        data.read(CLEAN, range(len(data)), np.asarray)

    packed = [npz(how, images=PIXELS, labels=LABELS) for how in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)]
    # Headers that lie inside of a whole zip file, whose checksums would find other damage.
    rng = np.random.default_rng(seed)
    for _ in range(40):
        header = bytearray(npy(PIXELS))
        header[int(rng.integers(8, 80))] = int(rng.integers(32, 127))
        packed.append(npz(images=bytes(header), labels=LABELS))
        header = npy(PIXELS).replace(b"(6, 4, 4, 3)", b"(%d, %d, 4, 3)" % tuple(rng.integers(0, 9, 2)))
        packed.append(npz(images=header, labels=rng.integers(0, 9, 6).astype(rng.choice(["<f4", ">i2", "<u8", "?"]))))
    attempt(number, seed, tmp_path, ".npz", packed, use, 200)
    attempt(number, seed, tmp_path, ".npy", [npy(PIXELS), npy(np.asfortranarray(PIXELS))], use, 128)


def twisted(tensor, rng):
    """A tensor with a value, a shape or a type that it should not have."""
    tensor = tensor.clone()
    kind = rng.integers(0, 5)
    if kind == 0:
        tensor.flatten()[int(rng.integers(0, tensor.numel()))] = float(rng.choice([np.nan, np.inf, -1, -1e9, 1e300]))
    elif kind == 1:
        tensor = tensor[..., : int(rng.integers(0, 2))].contiguous()
    elif kind == 2:
        tensor = tensor.unsqueeze(int(rng.integers(0, 2)))
    elif kind == 3:
        tensor = tensor.to([torch.int64, torch.float16, torch.bool, torch.complex64, torch.uint8][rng.integers(0, 5)])
    else:
        tensor = -tensor
    return tensor


def twist_metadata(metadata, rng):
    """Metadata with one entry of JSON of another kind, another name, or none at all."""
    key = str(rng.choice(sorted(metadata)))
    odd = ["null", "[]", "{}", "7", "[[]]", '["a", "a"]', "[null]", "[" * 5000, metadata[key].replace("a", "b"), "NaN"]
    changed = metadata | {key: odd[rng.integers(0, len(odd))]}
    return changed if rng.random() < 0.8 else {name: text for name, text in metadata.items() if name != key}


def lies(whole, seed, number=80):
    """Safetensors files that are whole, and hold what they should not."""
    rng, tensors = np.random.default_rng(seed), from_safetensors(whole)
    metadata = json.loads(whole[8 : 8 + int.from_bytes(whole[:8], "little")]).get("__metadata__", {})
    made = [whole]
    for count in range(number):
        changed = dict(tensors)
        if count % 2 or not metadata:
            name = str(rng.choice(sorted(tensors)))
            changed[name] = twisted(tensors[name], rng)
        made.append(to_safetensors(changed, metadata if count % 2 else twist_metadata(metadata, rng)))
    return made


def measured(net, values=None) -> bytes:
    """A predictor's file; nothing in it is measured."""
    names = [f"{which} {name}" for which in ("plain", "adapted") for name in SIGNALS]
    rows = torch.rand(5, 2 + len(names), dtype=torch.float64) if values is None else values
    metadata = {
        "format": "covshift predictor 1",
        "weights": digest(net),
        "scale": json.dumps([1.5, 0.5, 0.5]),
        "signals": json.dumps(names),
        "conditions": json.dumps([["clean", 0], *(["fog", level] for level in (1, 2)), ["snow", 1], ["snow", 2]]),
    }
    return to_safetensors({"measured": rows}, metadata)


@times(300, 5_000)
def test_patches_and_states(number, seed, tmp_path):
    net, x = tiny(dtype=torch.float32), torch.rand(4, 3, 8, 8)
    covshift.estimate(net, [x]).save(tmp_path / "whole")

    def use(path):
        patch = Statistics.load(path)
        other = tiny(dtype=torch.float32)
        with covshift.adapt(other, covshift.Stream(prior=4)) as adapter:
            adapter.state = patch
        patch.apply(other)
        assert other(x).isfinite().all()

    attempt(number, seed, tmp_path, ".safetensors", lies((tmp_path / "whole").read_bytes(), seed), use, 1200)


@times(300, 5_000)
def test_predictors(number, seed, tmp_path):
    net = tiny()

    def use(path):
        predictor = Predictor.load(path, net)
        for method in ("judge", "difference", "combined"):
            line = predictor.line("plain", method)
            assert np.isfinite([line.intercept, *line.slopes, line.spread]).all()

    attempt(number, seed, tmp_path, ".safetensors", lies(measured(net), seed), use, 700)


@times(200, 3_000)
def test_checkpoints(number, seed, tmp_path):
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4))
    samples = [to_safetensors(net.state_dict())]
    for content in (net.state_dict(), {"state_dict": net.state_dict(), "epoch": 3}):
        for new in (True, False):
            file = io.BytesIO()
            torch.save(content, file, _use_new_zipfile_serialization=new)
            samples.append(file.getvalue())

    def use(path):
        load_weights(net, read_state(path), path, "this network")

    attempt(number, seed, tmp_path, ".pth", samples, use, 300)


@times(100, 1_000)
def test_cards(number, seed, tmp_path):
    (tmp_path / "net.safetensors").write_bytes((WEIGHTS / "resnet20.safetensors").read_bytes())

    card = json.loads((WEIGHTS / "resnet20.json").read_text())
    samples = [json.dumps(card).encode()]
    for odd in (0, -1, 10**9, 10**400, None, "x", [], {}, float("nan"), True, 2.5):
        samples += [json.dumps(card | {key: odd}).encode() for key in ("recipe", "classes", "mean", "std")]
        for key in ("depth", "width", "norm", "data"):
            samples.append(json.dumps(card | {"recipe": card["recipe"] | {key: odd}}).encode())

    def use(path):
        (tmp_path / "net.json").write_bytes(path.read_bytes())
        open_weights(tmp_path / "net.safetensors")

    attempt(number, seed, tmp_path, ".json", samples, use, 700)
