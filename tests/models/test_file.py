"""Checkpoints: every layout that training scripts write, and files that are no checkpoints."""

import argparse

import numpy as np
import pytest
import torch
from networks import images, randomise, tiny
from safetensors.torch import save_file

from covshift import CovshiftError, open_model
from covshift.support.torchvision import torchvision

TINY = "py:networks:Tiny"


def prefixed(state, prefix):
    return {f"{prefix}{key}": tensor for key, tensor in state.items()}


# name: what a training script makes of a state dict
LAYOUTS = {
    "plain": lambda state: state,
    "wrapped": lambda state: {"state_dict": state, "epoch": 90, "optimizer": {"state": {}, "lr": [0.1]}},
    "parallel": lambda state: {"state_dict": prefixed(state, "module."), "best_prec1": 91.2, "arch": "tiny"},
    "model": lambda state: {"model": state, "scheduler": {"last_epoch": 3}},
    "model_state_dict": lambda state: {"model_state_dict": prefixed(state, "module."), "loss": torch.zeros(1)},
    "compiled": lambda state: prefixed(state, "_orig_mod.module."),
    "lightning": lambda state: {"state_dict": prefixed(state, "model."), "hyper_parameters": {"lr": 0.1}},
    "nested": lambda state: {"model": {"state_dict": state}},
    "old": lambda state: {key: tensor for key, tensor in state.items() if "num_batches" not in key},
    "numpy": lambda state: {"state_dict": state, "best_acc1": np.float64(76.1), "epoch": np.int64(90)},
    "with a counter": lambda state: state | {"epoch": 3},
}


@pytest.fixture
def source():
    return tiny(dtype=torch.float32)


def logits(model):
    with torch.no_grad():
        return model(images(4, dtype=torch.float32))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("legacy", [False, True])
def test_foreign_layouts_give_the_logits_of_their_source(layout, legacy, source, tmp_path):
    path = tmp_path / "checkpoint.th"
    torch.save(LAYOUTS[layout](dict(source.state_dict())), path, _use_new_zipfile_serialization=not legacy)
    model = open_model(f"file:{path}?arch={TINY}", size=12)
    assert torch.equal(logits(model.module), logits(source))
    assert model.uri == f"file:{path}?arch={TINY}"
    assert model.preprocess.size == 12


@pytest.mark.parametrize("name", ["net.safetensors", "net.bin", "what? really=1"])
def test_safetensors_by_any_name(name, source, tmp_path):
    save_file(prefixed(source.state_dict(), "module."), tmp_path / name)
    model = open_model(f"file:{tmp_path / name}?arch={TINY}&mean=0.5,0.5,0.5")
    assert torch.equal(logits(model.module), logits(source))
    assert model.preprocess.mean == (0.5, 0.5, 0.5)


@pytest.mark.parametrize("arch", ["torchvision:mobilenet_v3_small", "timm:mobilenetv3_small_050"])
def test_the_checkpoint_tells_the_number_of_classes(arch, tmp_path):
    kind, _, name = arch.partition(":")
    module = open_model(f"{kind}:{name}/none").module
    head = module.classifier[-1] if kind == "torchvision" else module.classifier
    smaller = torch.nn.Linear(head.in_features, 10)
    if kind == "torchvision":
        module.classifier[-1] = smaller
    else:
        module.classifier = smaller
    randomise(module, dtype=torch.float32)
    torch.save(prefixed(module.state_dict(), "module."), tmp_path / "ten.pth")
    for query in ("", "&classes=10"):
        model = open_model(f"file:{tmp_path / 'ten.pth'}?arch={arch}{query}", size=48)
        assert model.classes == 10
        x = images(2, 48, dtype=torch.float32)
        assert torch.equal(model.module(x), module(x))
    with pytest.raises(CovshiftError, match=r"2 of another shape: .*10 x \d+ instead of 11 x"):
        open_model(f"file:{tmp_path / 'ten.pth'}?arch={arch}&classes=11")


def test_preprocessing_is_that_of_the_weights_that_arch_names(tmp_path):
    torch.save(torchvision.models.mobilenet_v2().state_dict(), tmp_path / "net.pth")
    first, second = (
        open_model(f"file:{tmp_path / 'net.pth'}?arch=torchvision:mobilenet_v2{weights}").preprocess
        for weights in ("", "/IMAGENET1K_V2")
    )
    assert (first.resize, second.resize) == (256, 232)


def test_keys_that_do_not_fit_are_listed(source, tmp_path):
    state = dict(source.state_dict())
    del state["head.weight"]
    state |= {"stem.0.bias": torch.zeros(9), "extra": torch.zeros(2)}
    torch.save(state, tmp_path / "net.pth")
    with pytest.raises(CovshiftError) as caught:
        open_model(f"file:{tmp_path / 'net.pth'}?arch={TINY}")
    for part in ("1 missing: head.weight", "1 unexpected: extra", "1 of another shape: stem.0.bias 9 instead of 6"):
        assert part in str(caught.value)
    other = f"file:{tmp_path / 'net.pth'}?arch=torchvision:resnet18"
    with pytest.raises(CovshiftError, match=r"which has 122 tensors: 102 missing: conv1\.weight, .* … 99 more;"):
        open_model(other)


def broken_files(folder, state):
    (folder / "empty.pth").write_bytes(b"")
    (folder / "empty.safetensors").write_bytes(b"")
    (folder / "text.pth").write_text("no checkpoint at all")
    torch.save(state, folder / "whole.pth")
    save_file(state, folder / "whole.safetensors")
    for suffix in (".pth", ".safetensors"):
        content = (folder / f"whole{suffix}").read_bytes()
        (folder / f"short{suffix}").write_bytes(content[: len(content) // 2])
    torch.save({"state_dict": state, "args": argparse.Namespace(lr=0.1)}, folder / "namespace.pth")
    torch.save(tiny(), folder / "pickled.pth")
    torch.save({"epoch": 3, "optimizer": {"lr": 0.1}}, folder / "weightless.pth")
    torch.save([1, 2], folder / "list.pth")
    torch.save({}, folder / "nothing.pth")
    torch.jit.script(torch.nn.Linear(2, 2)).save(folder / "script.pth")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing.pth", "there is no checkpoint at .*missing.pth"),
        ("", "expected a checkpoint, got the folder"),
        ("empty.pth", "is not a whole checkpoint"),
        ("text.pth", "is not a checkpoint that torch can read"),
        ("short.pth", "is not a whole checkpoint"),
        ("empty.safetensors", "is not a whole safetensors file"),
        ("short.safetensors", "is not a whole safetensors file"),
        ("namespace.pth", r"holds more than weights \(argparse.Namespace\), and loading that could run any code"),
        ("pickled.pth", r"holds more than weights \(networks.Tiny\)"),
        ("weightless.pth", "expected weights by name .* got epoch, optimizer; save model.state_dict"),
        ("list.pth", "expected weights by name .* got a list"),
        ("nothing.pth", "expected weights by name .* got nothing"),
        ("script.pth", "is not a whole checkpoint .*TorchScript"),
    ],
)
@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
def test_files_that_are_no_checkpoints(name, message, source, tmp_path):
    broken_files(tmp_path, source.state_dict())
    with pytest.raises(CovshiftError, match=message):
        open_model(f"file:{tmp_path / name}?arch={TINY}")


def test_only_a_bias_of_the_right_length_is_added(tmp_path):
    model = open_model("builtin:resnet20-fixup")
    for length, fits in ((16, True), (15, False)):
        state = {**model.module.state_dict(), "stem.bias": torch.ones(length)}
        torch.save(state, tmp_path / "net.pth")
        uri = f"file:{tmp_path}/net.pth?arch=builtin:resnet20-fixup"
        if fits:
            assert torch.equal(open_model(uri).module.stem.bias, torch.ones(16))
        else:
            with pytest.raises(CovshiftError, match=r"1 unexpected: stem\.bias"):
                open_model(uri)


def test_a_file_says_how_it_was_pretrained(source, tmp_path):
    torch.save(source.state_dict(), tmp_path / "net.pth")
    model = open_model(f"file:{tmp_path / 'net.pth'}?arch={TINY}&pretraining=simclr")
    assert model.pretraining == open_model(model.uri).pretraining == "simclr"
    assert open_model(f"file:{tmp_path / 'net.pth'}?arch={TINY}").pretraining == ""


def test_settings_that_say_nothing(source, tmp_path):
    torch.save(source.state_dict(), tmp_path / "net.pth")
    for query, message in {
        "": r"expected the architecture of .*net.pth, e.g. file:.*\?arch=torchvision:resnet50",
        "?arch=": "expected the architecture",
        "?archi=torchvision:resnet18": "unknown setting of file: 'archi'; did you mean 'arch'",
        f"?arch={TINY}&classes=10": "classes= has no effect on py:networks:Tiny",
        f"?arch={TINY}&classes=0": "expected classes from 1 on",
        f"?arch={TINY}&pretraining=simcrl": "unknown pretraining 'simcrl'; did you mean 'simclr'",
        "?arch=file:net.pth": "expected arch= to name an architecture such as",
        "?arch=torchvision:resnet1": "unknown torchvision model",
    }.items():
        with pytest.raises(CovshiftError, match=message):
            open_model(f"file:{tmp_path / 'net.pth'}{query}")
