"""Opening models by URI: torchvision's, timm's and a user's own, with nothing fetched from outside."""

import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest
import torch
from networks import randomise
from torch import nn

from covshift import CovshiftError, open_model
from covshift.models import IMAGENET, Model, Preprocess
from covshift.models.from_timm import timm
from covshift.support.torchvision import torchvision

NETS = """
    import torch
    from torch import nn
    from covshift.models import Model, Preprocess

    CIFAR = Preprocess(None, 32, "bilinear", (0.49, 0.48, 0.45), (0.25, 0.24, 0.26))
    text = "no function"

    def net(classes=7):
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                             nn.Linear(4, classes))

    ready = net()
    def pair(): return net(), CIFAR
    def whole(): return Model("anything", net(), CIFAR)
    def word(): return "a model"
    def half_pair(): return net(), "CIFAR"
    def broken(): raise KeyError("layer9")
    def needs(depth): return net()
    def picky(): return nn.Sequential(nn.Flatten(), nn.Linear(5, 2))
    def double(): return net().double()
    def features(): return nn.Conv2d(3, 4, 3)
    class Two(nn.Module):
        def forward(self, x): return x, x
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder that the user is in, with a module of networks."""
    (tmp_path / "my_nets.py").write_text(dedent(NETS))
    (tmp_path / "needs_more.py").write_text("import a_package_that_nobody_has")
    (tmp_path / "wrong.py").write_text("x = 1 / 0")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    for name in ("my_nets", "needs_more", "wrong"):
        sys.modules.pop(name, None)


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """Where torchvision would put what it downloads."""
    monkeypatch.setattr(torch.hub, "_hub_dir", str(tmp_path / "hub"))
    folder = tmp_path / "hub" / "checkpoints"
    folder.mkdir(parents=True)
    return folder


def publish(name, folder):
    """Weights of our own under the name of torchvision's."""
    weights = torchvision.models.get_model_weights(name).IMAGENET1K_V1
    settings = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
    torch.manual_seed(0)
    model = randomise(torchvision.models.get_model(name, weights=None, **settings), dtype=torch.float32)
    path = folder / Path(weights.url).name
    torch.save(model.state_dict(), path)
    return path, weights


@pytest.mark.parametrize("name", ["resnet18", "mnasnet0_5", "googlenet", "inception_v3"])
def test_torchvision_and_the_same_file_by_path_give_torchvisions_logits(name, hub):
    path, weights = publish(name, hub)
    images = np.random.default_rng(0).integers(0, 256, (2, 96, 96, 3), dtype=np.uint8)
    theirs = torchvision.models.get_model(name, weights=weights).eval()
    with torch.no_grad():
        expected = theirs(IMAGENET.tensor(images))
        for uri in (f"torchvision:{name}", f"file:{path}?arch=torchvision:{name}"):
            model = open_model(uri)
            assert torch.equal(model.module(model.preprocess.tensor(images)), expected), uri
            assert model.uri.endswith(f"torchvision:{name}/IMAGENET1K_V1")
            assert model.classes == 1000
            assert not any(module.training for module in model.module.modules())


def test_weights_are_the_papers_unless_said_otherwise():
    from covshift.models.from_torchvision import _resolve
    from covshift.support.uri import parse

    def chosen(uri):
        return _resolve(parse(uri, "model", ""))[1].name

    assert chosen("torchvision:resnet50") == "IMAGENET1K_V1"
    assert chosen("torchvision:resnet50/DEFAULT") == "IMAGENET1K_V2"
    assert chosen("torchvision:vit_h_14") == "IMAGENET1K_SWAG_E2E_V1"


def test_weights_that_cannot_be_fetched_are_named(hub, monkeypatch):
    def offline(*args, **kwargs):
        raise OSError("no network")

    monkeypatch.setattr("torchvision.models._api.load_state_dict_from_url", offline)
    with pytest.raises(CovshiftError, match=r"no network.*resnet18-f37072fd\.pth.*put it at .*hub.checkpoints"):
        open_model("torchvision:resnet18")
    monkeypatch.setattr(timm, "create_model", offline)
    with pytest.raises(CovshiftError, match=r"no network.*model\.safetensors of timm/resnet18\.a1_in1k"):
        open_model("timm:resnet18")


def test_code_in_a_file_among_torchvisions_is_not_run(hub):
    path, _ = publish("resnet18", hub)
    torch.save({"state_dict": print}, path)
    with pytest.raises(CovshiftError, match="holds more than weights"):
        open_model("torchvision:resnet18")


def test_untrained_models_are_the_same_every_time():
    torch.manual_seed(1)
    drawn = torch.rand(3)
    torch.manual_seed(1)
    first = open_model("torchvision:squeezenet1_1/none", size=64)
    assert torch.equal(torch.rand(3), drawn)
    assert open_model("torchvision:squeezenet1_1/none").digest == first.digest
    assert first.uri == "torchvision:squeezenet1_1/none"
    assert first.bn_params == 0
    assert first.preprocess.size == 64


def test_timm_names_its_weights_in_full():
    model = open_model("timm:resnet18/none?size=64", resize=80, std=[0.5, 0.5, 0.5])
    assert model.uri == "timm:resnet18.a1_in1k/none"
    assert model.preprocess == Preprocess(80, 64, "bicubic", IMAGENET.mean, (0.5, 0.5, 0.5))
    assert (model.classes, model.params, model.bn_params) == (1000, 11689512, 9600)


def test_without_timm_the_command_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    monkeypatch.delitem(sys.modules, "covshift.models.from_timm")
    with pytest.raises(CovshiftError, match=r"pip install 'covshift\[timm\]'"):
        open_model("timm:resnet18")


def test_a_factory_may_return_a_module_a_pair_or_a_model(here):
    plain = open_model("py:my_nets:net", mean=(0, 0, 0), size=32)
    assert plain.preprocess == Preprocess(None, 32, "bilinear", (0, 0, 0), IMAGENET.std)
    assert plain.classes == 7
    assert open_model("py:my_nets:net").classes == 7
    for name in ("pair", "whole"):
        model = open_model(f"py:my_nets:{name}?size=40", size=48)
        assert isinstance(model, Model)
        assert (model.uri, model.preprocess.size, model.preprocess.mean[0]) == (f"py:my_nets:{name}", 48, 0.49)
        assert not model.module.training
    assert open_model("py:my_nets:ready").module is open_model("py:my_nets:ready").module


def test_the_digest_is_of_the_values_in_any_process(here):
    model = open_model("py:my_nets:net")
    code = "import covshift; print(covshift.open_model('py:my_nets:net').digest)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=here)
    assert told.stdout.strip() == model.digest
    digests = {model.digest}
    for change in (lambda m: m[4].bias.data.add_(1e-6), lambda m: m[1].running_var.mul_(2), nn.Module.half):
        other = open_model("py:my_nets:net")
        change(other.module)
        digests.add(other.digest)
    renamed = open_model("py:my_nets:net")
    renamed.module = nn.Sequential(renamed.module)
    assert len(digests | {renamed.digest}) == 5


# uri: what the message says
WRONG = {
    "": "expected a model such as torchvision:resnet50, got ''",
    "resnet50": "expected a model as source:name, such as torchvision:resnet50, got 'resnet50'",
    "torchvision:": "expected a name after torchvision:",
    "torchvison:resnet50": "unknown model source 'torchvison'; did you mean 'torchvision'?",
    "torchvision:resnet5": "unknown torchvision model 'resnet5'; did you mean 'resnet50'?",
    "torchvision:resnet50/IMAGENET1K_V3": "unknown weights of resnet50 .* did you mean 'IMAGENET1K_V",
    "torchvision:vgg16/IMAGENET1K_FEATURES": "unknown weights of vgg16",
    "torchvision:resnet18/none?sise=3": "unknown setting of torchvision: 'sise'; did you mean 'size'?",
    "torchvision:resnet18/none?size=3&size=4": "expected every key once",
    "torchvision:resnet18/none?size=3&x": "expected key=value",
    "torchvision:resnet18/none?size=big": "expected size as a whole number, got 'big'",
    "torchvision:resnet18/none?mean=0.5,red,1": "expected mean as numbers such as 0.5,0.5,0.5",
    "torchvision:resnet18/none?mean=0.5,0.5": "expected mean as three numbers",
    "torchvision:resnet18/none?std=0,1,1": "expected std above 0",
    "timm:resnet18x": "unknown timm model 'resnet18x'; did you mean 'resnet18",
    "timm:resnet18.a9_in1k": "unknown timm model 'resnet18.a9_in1k'; did you mean 'resnet18.a",
    "timm:resnet18/V1": "expected timm:resnet18, timm:resnet18.TAG or timm:resnet18/none",
    "timm:vit_base_patch14_dinov2": "no weights of a classifier",
    "py:my_nets": "expected py:module:function",
    "py:my_nets:nett": "unknown function in my_nets 'nett'; did you mean 'net'?",
    "py:my_nets:text": "expected py:my_nets:text to name a function, got a str",
    "py:my_nets:word": r"to return a torch.nn.Module, or \(module, Preprocess\), got str",
    "py:my_nets:half_pair": "got Sequential, str",
    "py:my_nets:broken": "py:my_nets:broken failed: KeyError: 'layer9'",
    "py:my_nets:needs": "missing 1 required positional argument: 'depth'",
    "py:no_nets:net": "there is no Python module 'no_nets'",
    "py:needs_more:net": "cannot be imported: ModuleNotFoundError: No module named 'a_package_that_nobody_has'",
    "py:wrong:net": "cannot be imported: ZeroDivisionError: division by zero",
}


@pytest.mark.parametrize("uri", WRONG)
def test_what_cannot_be_opened_says_why(uri, here):
    with pytest.raises(CovshiftError, match=WRONG[uri]):
        open_model(uri)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Two", r"logits of shape \(images, classes\), got tuple"),
        ("features", r"got shape \(1, 4, 30, 30\)"),
        ("picky", "cannot take a float32 image of 32 x 32 or 64 x 64"),
        ("double", "cannot take a float32 image .*double"),
    ],
)
def test_a_model_that_is_no_classifier_says_so(name, message, here):
    with pytest.raises(CovshiftError, match=message):
        _ = open_model(f"py:my_nets:{name}").classes
