"""Files to deploy: each answers as PyTorch does, whatever its kind, and nothing half-written is left behind."""

import copy
import json
import sys
from contextlib import nullcontext

import numpy as np
import onnxruntime
import pytest
import torch
from networks import FAMILIES, images, randomise, relative, tiny
from safetensors import safe_open
from safetensors.torch import load_file
from typer.testing import CliRunner

import covshift
from covshift import CovshiftError, Statistics, export
from covshift.cli import app
from covshift.models.builtin import names as builtin_names
from covshift.support.torchvision import torchvision

SIDE = 12
CLOSE = 1e-4


def session(path):
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 3, 1
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def ask(session, x, **more):
    return torch.from_numpy(session.run(None, {"images": x.numpy(), **more})[0])


def other_statistics(model, seed):
    """Statistics as if from another domain."""
    moved = copy.deepcopy(model)  # whose scales and shifts are then other ones, too
    return Statistics.of(randomise(moved, seed, next(model.parameters()).dtype))


@pytest.fixture(scope="module")
def net():
    return tiny(dtype=torch.float32)


@pytest.fixture(scope="module")
def patch():
    return other_statistics(tiny(dtype=torch.float32), seed=5)


@pytest.fixture(scope="module")
def files(net, tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    export.save(net, folder / "folded.onnx", size=SIDE)
    export.save(net, folder / "swappable.onnx", size=SIDE, swappable=True)
    export.save(net, folder / "adaptive.onnx", size=SIDE, adaptive=True)
    return folder


def patched(patch):
    model = tiny(dtype=torch.float32)
    patch.apply(model)
    return model


def answers(model, x):
    with torch.no_grad():
        return model(x)


@pytest.mark.parametrize("number", [1, 7])
@pytest.mark.parametrize("name", ["folded", "swappable"])
def test_onnx_answers_as_torch(name, number, net, files):
    x = images(number, SIDE, dtype=torch.float32)
    assert relative(ask(session(files / f"{name}.onnx"), x), answers(net, x)) <= CLOSE


@pytest.mark.parametrize("number", [1, 7])
def test_pt2_answers_as_torch_with_the_patch(number, net, patch, tmp_path):
    made = export.save(net, tmp_path / "net.pt2", size=SIDE, patch=patch)
    assert made.size == (tmp_path / "net.pt2").stat().st_size
    x = images(number, SIDE, dtype=torch.float32)
    again = torch.export.load(tmp_path / "net.pt2").module()
    assert relative(again(x), answers(patched(patch), x)) <= CLOSE


def test_safetensors_hold_the_patched_state_dict(net, patch, tmp_path):
    patch.save(tmp_path / "patch.safetensors")
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    export.save(net, tmp_path / "net.safetensors", patch=tmp_path / "patch.safetensors")
    again = tiny(seed=3, dtype=torch.float32)
    again.load_state_dict(load_file(tmp_path / "net.safetensors"))
    x = images(7, SIDE, dtype=torch.float32)
    assert torch.equal(answers(again, x), answers(patched(patch), x))
    assert all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())


def test_a_swapped_patch_equals_a_fresh_export(net, patch, files, tmp_path):
    patch.save(tmp_path / "patch.safetensors")
    export.save(net, tmp_path / "fresh.onnx", size=SIDE, patch=patch)
    swappable, fresh = session(files / "swappable.onnx"), session(tmp_path / "fresh.onnx")
    for given in (patch, tmp_path / "patch.safetensors"):
        feeds = export.swap(swappable, given)
        x = images(7, SIDE, dtype=torch.float32)
        assert relative(ask(swappable, x, **feeds), ask(fresh, x)) <= CLOSE
        assert relative(ask(swappable, x, **feeds), answers(patched(patch), x)) <= CLOSE
    assert relative(ask(swappable, x), answers(net, x)) <= CLOSE, "the session is as before"


@pytest.mark.parametrize(
    ("name", "options"), [("folded", {}), ("swappable", {"swappable": True}), ("adaptive", {"adaptive": True})]
)
def test_the_same_model_makes_the_same_file(name, options, net, files, tmp_path):
    export.save(net, tmp_path / "again.onnx", size=SIDE, **options)
    assert (tmp_path / "again.onnx").read_bytes() == (files / f"{name}.onnx").read_bytes()


def test_weights_and_patches_are_the_same_bytes_each_time(net, patch, tmp_path):
    contents = {"weights": set(), "patch": set()}
    for _ in range(4):  # safetensors itself writes several notes in random order
        export.save(net, tmp_path / "weights", to="safetensors")
        patch.save(tmp_path / "patch")
        for name, seen in contents.items():
            seen.add((tmp_path / name).read_bytes())
    assert {name: len(seen) for name, seen in contents.items()} == {"weights": 1, "patch": 1}
    with safe_open(tmp_path / "weights", "pt") as file:
        assert file.metadata()["covshift.version"] == covshift.__version__


def test_only_statistics_can_be_swapped(net, files):
    overridable = {value.name for value in session(files / "swappable.onnx").get_overridable_initializers()}
    buffers = {name for name in net.state_dict() if name.endswith(("running_mean", "running_var"))}
    assert overridable == buffers
    assert not session(files / "folded.onnx").get_overridable_initializers()


@pytest.mark.parametrize("number", [1, 7])
def test_the_adaptive_graph_equals_batch(number, net, files):
    graph = session(files / "adaptive.onnx")
    x = images(number, SIDE, dtype=torch.float32)
    with covshift.adapt(net, covshift.Batch(prior=16)):
        expected = answers(net, x)
    assert relative(ask(graph, x), expected) <= CLOSE
    with covshift.adapt(net, covshift.Batch(prior=3)):
        expected = answers(net, x)
    assert relative(ask(graph, x, prior=np.full(1, 3, np.float32)), expected) <= CLOSE


def test_the_adaptive_graph_with_its_state_equals_stream(net, files):
    graph = session(files / "adaptive.onnx")
    state = {}
    with covshift.adapt(net, covshift.Stream(prior=16)) as adapter:
        for number in (1, 4, 1, 7):
            x = images(number, SIDE, seed=number, dtype=torch.float32)
            expected = answers(net, x)
            logits, following = graph.run(None, {"images": x.numpy(), **state})
            state = {"state": following}
            assert relative(torch.from_numpy(logits), expected) <= CLOSE
        seen = adapter.state
    layout = json.loads(graph.get_modelmeta().custom_metadata_map["covshift.state"])
    assert following[0] == seen.images == 13
    assert [path for path, _ in layout] == ["stem.1", "norm", "last"]
    flat = torch.cat([torch.cat([seen[path].mean, seen[path].var]) for path, _ in layout])
    assert relative(torch.from_numpy(following[1:]), flat.float()) <= CLOSE


@pytest.mark.parametrize("frame", [(40, 60), (61, 33), (24, 24), (32, 32), (16, 20)])
@pytest.mark.parametrize(
    "preprocess",
    [
        covshift.Preprocess(40, 32, "bilinear", (0.4, 0.5, 0.6), (0.2, 0.3, 0.25)),
        covshift.Preprocess(32, 32, "bicubic", (0.4, 0.5, 0.6), (0.2, 0.3, 0.25), squash=True),
        covshift.Preprocess(None, 24, "lanczos", (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
        covshift.Preprocess(28, 32, "box", (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
        covshift.Preprocess(20, None, "nearest", (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
        covshift.Preprocess(None, None, "bilinear", (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    ],
    ids=lambda each: each.interpolation,
)
def test_preprocessing_in_the_graph_is_that_of_pillow(preprocess, frame):
    from covshift.export.deployed import Frame, PixelInput

    rng = np.random.default_rng(0)
    coarse = rng.integers(0, 256, (2, 4, 5, 3)).repeat(frame[0] // 4 + 1, 1).repeat(frame[1] // 5 + 1, 2)
    pictures = (coarse[:, : frame[0], : frame[1]] + rng.integers(-9, 10, (2, *frame, 3))).clip(0, 255).astype(np.uint8)
    expected = preprocess(pictures)
    made = PixelInput(preprocess, Frame(*frame), torch.float32)(torch.from_numpy(pictures))
    assert made.shape == expected.shape
    levels = (made - expected).abs() * torch.tensor(preprocess.std).view(3, 1, 1) * 255
    assert levels.max() < 2.01, "Pillow computes with whole numbers, twice: two grey levels are rounding errors"
    assert levels.mean() < 0.1


def test_pictures_in_probabilities_out(tmp_path):
    model = covshift.open_model("builtin:resnet20")
    export.save(model, tmp_path / "camera.onnx", with_preprocess=True, frame=(48, 64))
    graph = session(tmp_path / "camera.onnx")
    assert graph.get_inputs()[0].shape == ["batch", 48, 64, 3]
    assert graph.get_inputs()[0].type == "tensor(uint8)"
    pictures = np.random.default_rng(0).integers(0, 256, (7, 48, 64, 3), dtype=np.uint8)
    with torch.no_grad():
        expected = model(pictures).softmax(1)
    for some in (slice(1), slice(7)):
        (got,) = graph.run(["probabilities"], {"images": pictures[some]})
        assert np.abs(got - expected[some].numpy()).max() <= CLOSE


def test_a_file_says_what_it_is_and_not_where_it_was_made(files):
    content = (files / "swappable.onnx").read_bytes()
    assert b"site-packages" not in content
    assert b".py" not in content
    notes = session(files / "swappable.onnx").get_modelmeta().custom_metadata_map
    assert notes["covshift.version"] == covshift.__version__


class Auxiliary(torch.nn.Module):
    """A network with a second head, which only training uses."""

    def __init__(self):
        super().__init__()
        self.net, self.auxiliary = tiny(dtype=torch.float32), torch.nn.BatchNorm1d(4)

    def forward(self, x):
        return self.net(x)


def test_layers_that_only_training_uses_are_not_in_the_graph(tmp_path):
    model = Auxiliary().eval()
    for form in ("swappable", "adaptive"):
        export.save(model, tmp_path / f"{form}.onnx", size=SIDE, **{form: True})
    swappable = session(tmp_path / "swappable.onnx")
    assert len(swappable.get_overridable_initializers()) == len(export.swap(swappable, Statistics.of(model))) == 6
    layout = json.loads(session(tmp_path / "adaptive.onnx").get_modelmeta().custom_metadata_map["covshift.state"])
    assert [path for path, _ in layout] == ["net.stem.1", "net.norm", "net.last"]


class Doubled(torch.nn.Module):
    """A layer that is called twice."""

    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm2d(3)

    def forward(self, x):
        return self.norm(self.norm(x).relu()).mean((2, 3))


class Unusual(torch.nn.Module):
    """An operator that ONNX does not have."""

    def forward(self, x):
        return torch.special.bessel_j0(x).mean((2, 3))


class Choosy(torch.nn.Module):
    """What it does depends on the values."""

    def forward(self, x):
        return x.mean((2, 3)) if x.sum() > 0 else x.amax((2, 3))


@pytest.mark.parametrize(
    ("make", "name", "options", "message"),
    [
        (tiny, "net.onnx", {}, "expected the side of the model's input in pixels for a bare module; give size="),
        (tiny, "net", {"size": 12}, "net; or use `to=onnx`"),
        (tiny, "net.pdf", {"size": 12}, "unknown kind of file 'pdf'; known: onnx, pt2, safetensors"),
        (tiny, "net.pt2", {"size": 12, "swappable": True}, "expected an ONNX file with `swappable=True`, got pt2"),
        (tiny, "net.onnx", {"swappable": True, "adaptive": True}, "`swappable=True` or `adaptive=True`, got both"),
        (tiny, "net.onnx", {"size": 12, "prior": 8}, "expected `adaptive=True` with `prior=8`"),
        (tiny, "net.onnx", {"size": 12, "adaptive": True, "prior": -1}, "prior"),
        (tiny, "net.onnx", {"size": 12, "frame": (12, 12)}, "expected `with_preprocess=True` with a frame"),
        (tiny, "net.onnx", {"size": 12, "with_preprocess": True}, "expected the preprocessing of the model"),
        (tiny, "net.safetensors", {"with_preprocess": True}, "a safetensors file has no graph"),
        (tiny, "net.safetensors", {"patch": "none.safetensors"}, "there is no statistics patch at none.safetensors"),
        (tiny, "net.safetensors", {"patch": 3}, "expected patch to be statistics, or the file"),
        (
            tiny,
            "net.onnx",
            {"size": 12, "frame": "zz"},
            "expected frame to be a height and a width in pixels, got 'zz'",
        ),
        (tiny, "net.onnx", {"size": 12, "preprocess": 3}, "expected preprocess to be a Preprocess, got 3"),
        (lambda: tiny().train(), "net.onnx", {"size": 12}, "the model is in training mode"),
        (lambda: Unusual().eval(), "net.onnx", {"size": 12}, "the operator prims.bessel_j0"),
        (lambda: Choosy().eval(), "net.onnx", {"size": 12}, "torch.export cannot make a graph of Choosy"),
        (lambda: Doubled().eval(), "net.onnx", {"size": 12, "adaptive": True}, "got 'norm' several times"),
        (lambda: Choosy().eval(), "net.onnx", {"size": 12, "adaptive": True}, "layers hold none; export it without"),
        (lambda: Choosy().eval(), "net.onnx", {"size": 0}, "expected size to be a number of pixels from 1, got 0"),
    ],
)
def test_errors_are_one_sentence_and_leave_nothing(make, name, options, message, tmp_path):
    with pytest.raises(CovshiftError) as caught:
        export.save(make(), tmp_path / name, **options)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["onnx", "onnxscript", "onnxruntime"])
def test_without_the_extra(name, monkeypatch, net, tmp_path):
    monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr(torch.export, "export", None)  # it is noticed before anything that takes long
    with pytest.raises(CovshiftError, match=rf"{name} is not installed; run: pip install 'covshift\[onnx\]'"):
        export.save(net, tmp_path / "net.onnx", size=SIDE)
    done = CliRunner().invoke(app, ["export", "--model", "builtin:resnet20", "--out", str(tmp_path / "net.onnx")])
    assert done.stderr == f"error: {name} is not installed; run: pip install 'covshift[onnx]'\n"
    assert not list(tmp_path.iterdir())


def test_a_patch_of_another_model_is_refused(net, files):
    stranger = Statistics.of(torch.nn.BatchNorm2d(3).eval())
    with pytest.raises(CovshiftError, match="of another model than the session"):
        export.swap(session(files / "swappable.onnx"), stranger)
    with pytest.raises(CovshiftError, match="of another model"):
        export.save(net, files / "x.safetensors", patch=stranger)
    with pytest.raises(CovshiftError, match="export it again with `swappable=True`"):
        export.swap(session(files / "folded.onnx"), Statistics.of(net))
    with pytest.raises(CovshiftError, match=r"expected session to be an onnxruntime.InferenceSession"):
        export.swap("net.onnx", Statistics.of(net))


def test_a_correction_of_any_network_is_folded_into_its_weights(net, files, tmp_path):
    layers = [torch.nn.Conv2d(3, 8, 3), torch.nn.GroupNorm(2, 8), torch.nn.ReLU(), torch.nn.Flatten()]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(800, 4)).eval()
    x = images(40, SIDE, dtype=torch.float32)
    source = covshift.Source.measure(model, x, progress=False)
    patch = covshift.estimate(model, 0.5 * x + 1, source=source, progress=False)
    export.save(model, tmp_path / "net.onnx", size=SIDE, patch=patch)
    before = answers(model, x)
    patch.apply(model)
    assert relative(answers(model, x), before) > 0.01
    assert relative(ask(session(tmp_path / "net.onnx"), x), answers(model, x)) <= CLOSE
    anchored = covshift.estimate(net, x, source=covshift.Source.measure(net, x, progress=False), progress=False)
    with pytest.raises(CovshiftError, match="folded into weights"):
        export.swap(session(files / "swappable.onnx"), anchored)


def test_a_graph_that_answers_otherwise_is_not_kept(net, monkeypatch, tmp_path):
    from covshift.export import parity

    monkeypatch.setattr(parity, "_ALLOWED", -1.0)
    with pytest.raises(CovshiftError, match="nothing was written"):
        export.save(net, tmp_path / "net.pt2", size=SIDE)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["resnet20-fixup", "resnet20-gn", "vit", "convnext"])
def test_corrected_weights_are_opened_again(name, tmp_path):
    """Layers without a bias have got one: those of Fixup."""
    model = covshift.open_model(f"builtin:{name}")
    x = images(16, 32, dtype=torch.float32)
    source = covshift.Source.measure(model, x, progress=False)
    patch = covshift.estimate(model, 0.5 * x + 1, source=source, progress=False)
    export.save(model, tmp_path / "net.safetensors", patch=patch)
    again = covshift.open_model(f"file:{tmp_path}/net.safetensors?arch=builtin:{name}")
    before = answers(model, x)
    patch.apply(model)
    assert torch.equal(answers(again, x), answers(model, x))
    assert relative(answers(model, x), before) > 0.01


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (lambda logits: logits * (1 + 5e-5), None),
        (lambda logits: logits * (1 + 2e-4), "the largest difference is 0.0002 of the largest answer"),
        (lambda logits: logits * torch.nan, "the largest difference is inf"),
        (lambda logits: logits[:, :-1], "answers in shape"),
        (lambda logits: logits[:, :1], "answers in shape"),  # would be subtracted without an error
    ],
)
def test_answers_are_compared_to_a_ten_thousandth(run, message, net):
    from covshift.export.deployed import Deployed
    from covshift.export.parity import _compare, some_images

    images = some_images(2, (3, SIDE, SIDE), torch.float32)
    deployed = Deployed(net, None)
    if message is None:
        assert _compare(lambda x: run(net(x)), deployed, images, None) == pytest.approx(5e-5, rel=0.02)
    else:
        with pytest.raises(CovshiftError, match=message):
            _compare(lambda x: run(net(x)), deployed, images, None)


def test_nothing_is_left_of_an_export_that_was_stopped(net, tmp_path, monkeypatch):
    def stop(path, content):
        with path.open("wb") as file:
            file.write(content[:100])
        raise KeyboardInterrupt

    monkeypatch.setattr("pathlib.Path.write_bytes", stop)
    with pytest.raises(KeyboardInterrupt):
        export.save(net, tmp_path / "net.safetensors")
    assert not list(tmp_path.iterdir())


def test_the_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = covshift.open_model("builtin:resnet20")
    x = images(7, 32, dtype=torch.float32)
    covshift.estimate(model, x).save("patch.safetensors")
    arguments = "export --model builtin:resnet20 --patch patch.safetensors --to {} --out net --json"
    for kind in ("safetensors", "onnx"):
        done = CliRunner().invoke(app, arguments.format(kind).split())
        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout)["to"] == kind
    Statistics.load("patch.safetensors").apply(model)
    assert relative(ask(session("net"), x), answers(model.module, x)) <= CLOSE
    done = CliRunner().invoke(app, ["export", "--model", "builtin:resnet20", "--frame", "big"])
    assert done.stderr == "error: expected --frame as HEIGHTxWIDTH in pixels, e.g. 720x1280, got 'big'\n"
    assert {file.name for file in tmp_path.iterdir()} == {"net", "patch.safetensors"}


models = torchvision.models
LARGE = {
    **{name: FAMILIES[name] for name in ("resnet18", "mobilenet_v2", "efficientnet_b0", "densenet121")},
    "vit_b_16": (lambda: models.vit_b_16(image_size=64), 64),
    "convnext_tiny": (models.convnext_tiny, 64),
    **{
        f"builtin:{name}": (lambda name=name: covshift.open_model(f"builtin:{name}").module, 32)
        for name in builtin_names()
    },
}


def run_file(path, x, model):
    """Return the logits that a file gives; the weights are read into a copy of the model that has none of them."""
    if path.suffix == ".onnx":
        return ask(session(path), x)
    if path.suffix == ".pt2":
        return torch.export.load(path).module()(x)
    again = copy.deepcopy(model)
    with torch.no_grad():
        for tensor in again.state_dict().values():
            tensor.zero_()
    again.load_state_dict(load_file(path))
    return answers(again, x)


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE)
def test_large_architectures(name, tmp_path):
    """`pytest -m slow -rP tests/export` prints the figures."""
    torch.manual_seed(0)
    make, side = LARGE[name]
    model = randomise(make(), dtype=torch.float32)
    if name == "vit_b_16":  # torchvision makes its last layer of zeros
        torch.nn.init.normal_(model.heads.head.weight)
    has_statistics = any("running_mean" in key for key in model.state_dict())
    x = {number: images(number, side, dtype=torch.float32) for number in (1, 7)}
    files = {"folded.onnx": {}, "net.pt2": {}, "net.safetensors": {}}
    if has_statistics:
        files |= {"swappable.onnx": {"swappable": True}, "adaptive.onnx": {"adaptive": True}}
    off = {}
    for file, options in files.items():
        export.save(model, tmp_path / file, size=side, **options)
        for number, some in x.items():
            adapting = covshift.adapt(model, covshift.Batch(prior=16)) if file == "adaptive.onnx" else nullcontext()
            with adapting:
                expected = answers(model, some)
            off[file, number] = relative(run_file(tmp_path / file, some, model), expected)
    if has_statistics:
        moved = other_statistics(model, seed=5)
        swappable = session(tmp_path / "swappable.onnx")
        feeds = export.swap(swappable, moved)
        export.save(model, tmp_path / "fresh.onnx", size=side, patch=moved)
        moved.apply(model)
        for number, some in x.items():
            off["swapped", number] = relative(ask(swappable, some, **feeds), answers(model, some))
            fresh = run_file(tmp_path / "fresh.onnx", some, model)
            off["swapped, to a fresh export", number] = relative(ask(swappable, some, **feeds), fresh)
    for (file, number), value in off.items():
        sys.stdout.write(f"{name}: {file}, batch of {number}: {value:.1e}\n")
    assert max(off.values()) <= CLOSE
