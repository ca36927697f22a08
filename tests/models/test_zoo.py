"""The zoo: every entry opens a file in its published layout, with the logits of the network that it was made of."""

import numpy as np
import pytest
import torch
from networks import images, randomise
from published import PAPER, write
from torch import nn
from torch.nn import functional as F

from covshift import CovshiftError, open_model
from covshift.models.base import count
from covshift.models.untrained import untrained
from covshift.models.zoo import ENTRIES
from covshift.models.zoo.assemble import AssembleResNet, Bottleneck, Select
from covshift.models.zoo.simclr import SamePool
from covshift.support.torchvision import torchvision

# One of each layout; the others are as many and as large again.
FAST = {"densenet121", "googlenet", "mnasnet0_5", "mobilenet_v2", "resnet18", "shufflenet_v2_x0_5", "augmix", "ant"}
FAST |= {"groupnorm-resnet50", "fixup-resnet50", "simclrv2-resnet50", "assemble-resnet50"}

# Parameters in millions as their authors say, rounded or cut off; those of torchvision are in the paper's table.
PUBLISHED = {
    "alexnet": 61.1,
    "wsl-resnext101_32x8d": 88,
    "wsl-resnext101_32x48d": 829,
    "simclrv2-resnet50": 24 + 2,  # theirs are without the last layer, here and below
    "simclrv2-resnet101": 43 + 2,
    "simclrv2-resnet152": 58 + 2,
}


def random(entry):
    torch.manual_seed(0)
    module = entry.build()
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if parameter.numel() < 2 or not parameter.any():  # what Fixup begins with as zeros
                parameter.normal_(std=0.02)
            if name.endswith("scale"):
                parameter.fill_(0.7)
    return randomise(module, dtype=torch.float32)


@pytest.mark.parametrize(
    "name", [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in ENTRIES]
)
def test_every_entry_opens_its_published_layout(name, tmp_path):
    entry = ENTRIES[name]
    module = random(entry)
    path = write(entry, module, tmp_path)
    model = open_model(f"zoo:{name}?file={path}")
    x = images(1, 299 if name == "inception_v3" else 64, dtype=torch.float32)
    with torch.no_grad():
        logits, expected = model.module(x), module(x)
    assert logits.shape == (1, 1000)
    assert logits.isfinite().all()
    assert logits.std() > 0
    assert torch.equal(logits, expected)
    assert model.uri == f"zoo:{name}?file={path}"
    assert model.pretraining == ("simclr" if "simclr" in name else "large-scale" if "wsl" in name else "")


def test_counts_are_the_published_ones():
    of_torchvision = set(ENTRIES) & set(torchvision.models.list_models()) - {"alexnet"}
    assert len(of_torchvision) == 24
    for name, entry in ENTRIES.items():
        found = count(untrained(entry.build, shapes_only=True))
        if name in of_torchvision:
            assert found == PAPER[name], name
        elif name in PUBLISHED:
            assert abs(found.params / 1e6 - PUBLISHED[name]) < 1, name
        elif entry.family == "resnet" or name.startswith("groupnorm"):
            depth = name.removeprefix("groupnorm-resnet") if "groupnorm" in name else "50"
            assert found.params == PAPER[f"resnet{depth}"][0], name
        elif entry.family == "resnext":
            assert found == PAPER["resnext101_32x8d"]
        elif "fixup" in name:
            # A ResNet without its norms, whose 2 in every channel give way to 7 scalars a block and 2 more.
            depth = name.removeprefix("fixup-resnet")
            blocks = {"50": 16, "101": 33, "152": 50}[depth]
            params, norms = PAPER[f"resnet{depth}"]
            assert found == (params - norms + 7 * blocks + 2, 0)
        else:
            assert name == "assemble-resnet50"


def test_every_entry_says_whose_it_is():
    for entry in ENTRIES.values():
        assert entry.licence, entry.name
        assert entry.citation, entry.name
        assert entry.files or entry.page or entry.recipe, entry.name
        for file in entry.files:
            assert file.url.startswith("http"), entry.name
            assert not file.sha256 or f"-{file.sha256}." in file.name


def test_torchvision_agrees_about_its_own_files():
    for name in set(ENTRIES) & set(torchvision.models.list_models()):
        weights = torchvision.models.get_model_weights(name)["IMAGENET1K_V1"]
        entry = ENTRIES[name]
        assert entry.files[0].url == weights.url
        how = weights.transforms()
        assert (entry.preprocess.resize, entry.preprocess.size) == (how.resize_size[0], how.crop_size[0]), name


def test_group_normalisation_is_that_of_timm(tmp_path):
    entry = ENTRIES["groupnorm-resnet50"]
    module = random(entry)
    model = open_model(f"zoo:{entry.name}?file={write(entry, module, tmp_path)}")
    import timm  # after torchvision

    theirs = timm.create_model("resnet50_gn").eval()
    theirs.load_state_dict(module.state_dict())
    x = images(2, 64, dtype=torch.float32)
    torch.testing.assert_close(model.module(x), theirs(x), rtol=1e-4, atol=1e-5)


def test_what_covshift_trains_fits_the_entry_without_published_weights(tmp_path):
    from safetensors.torch import save_file

    entry = ENTRIES["fixup-resnet50"]
    module = random(entry)
    save_file(module.state_dict(), tmp_path / "resnet50-fixup.safetensors")
    model = open_model(f"zoo:{entry.name}?file={tmp_path / 'resnet50-fixup.safetensors'}")
    assert torch.equal(model.module.stages[3][1].scale, module.stages[3][1].scale)
    with pytest.raises(CovshiftError, match="nobody has published weights of fixup-resnet50; train it with `covshift"):
        open_model("zoo:fixup-resnet50")


@pytest.mark.parametrize("side", [(8, 8), (7, 9), (8, 7)])
def test_the_pool_is_that_of_tensorflow(side):
    x = np.random.default_rng(0).random((2, 3, *side)).astype(np.float32)
    out = [-(-length // 2) for length in side]
    before = [max((o - 1) * 2 + 3 - length, 0) // 2 for o, length in zip(out, side, strict=True)]
    expected = np.empty((2, 3, *out), np.float32)
    for i in range(out[0]):
        for j in range(out[1]):
            top, left = 2 * i - before[0], 2 * j - before[1]
            expected[:, :, i, j] = x[:, :, max(top, 0) : top + 3, max(left, 0) : left + 3].max((2, 3))
    assert np.array_equal(SamePool()(torch.from_numpy(x)).numpy(), expected)


def test_simclr_takes_pixels_as_they_are():
    preprocess = ENTRIES["simclrv2-resnet50"].preprocess
    assert preprocess.interpolation == "bicubic"
    white = preprocess.tensor(np.full((1, 2, 2, 3), 255, np.uint8))
    assert torch.equal(white, torch.ones(1, 3, 2, 2))


def test_a_bottleneck_of_assemble_is_as_written_down():
    torch.manual_seed(0)
    block = randomise(Bottleneck(8, 4, 2, project=True))
    x = torch.randn(2, 8, 6, 6, dtype=torch.float64)

    def norm(layer, y):
        scale = layer.weight / (layer.running_var + 1e-5).sqrt()
        return (y - layer.running_mean.view(-1, 1, 1)) * scale.view(-1, 1, 1) + layer.bias.view(-1, 1, 1)

    def conv(layer, y, padding=0):
        return norm(layer.norm, F.conv2d(y, layer.conv.weight, padding=padding))

    y = F.relu(conv(block.spread, F.relu(conv(block.reduce, x)), 1))
    a, b = y[:, :4], y[:, 4:]
    s = (a + b).mean((2, 3), keepdim=True)
    z = F.relu(norm(block.select.norm, F.conv2d(s, block.select.squeeze.weight)))
    votes = F.conv2d(z, block.select.excite.weight)
    share = 1 / (1 + (votes[:, 4:] - votes[:, :4]).exp())
    y = share * a + (1 - share) * b
    padded = np.pad(y.detach().numpy(), ((0, 0), (0, 0), (1, 1), (1, 1)), mode="reflect")
    weights = np.outer([1, 2, 1], [1, 2, 1]) / 16
    blurred = np.empty((2, 4, 3, 3))
    for i in range(3):
        for j in range(3):
            blurred[:, :, i, j] = (padded[:, :, 2 * i : 2 * i + 3, 2 * j : 2 * j + 3] * weights).sum((2, 3))
    y = conv(block.expand, torch.from_numpy(blurred))
    shortcut = np.zeros((2, 8, 3, 3))
    zeros = np.pad(x.numpy(), ((0, 0), (0, 0), (1, 1), (1, 1)))
    for i in range(3):
        for j in range(3):
            shortcut[:, :, i, j] = zeros[:, :, 2 * i : 2 * i + 3, 2 * j : 2 * j + 3].mean((2, 3))
    torch.testing.assert_close(block(x), F.relu(y + conv(block.shortcut, torch.from_numpy(shortcut))))


def test_assemble_has_the_resolutions_of_its_authors():
    network, sides = AssembleResNet(width=8).eval(), []
    for layer in (network.pool, *network.stages, network.last):
        layer.register_forward_hook(lambda module, inputs, output: sides.append(output.shape[-1]))
    with torch.no_grad():
        network(torch.zeros(1, 3, 256, 256))
    assert sides == [64, 32, 16, 16, 8]
    blocks = [[len(stage.big), len(stage.little), len(stage.merge)] for stage in network.stages]
    assert blocks == [[2, 2, 1], [3, 2, 1], [5, 2, 1]]
    assert [block.relu for block in network.stages[1].big] == [True, True, False]
    assert sum(isinstance(module, Select) for module in network.modules()) == 2 + 3 + 5 + 3 * 2 + 3


def test_wrong_files(tmp_path):
    torch.save(nn.Linear(2, 2).state_dict(), tmp_path / "other.pth")
    with pytest.raises(CovshiftError, match=r"other.pth does not fit zoo:augmix, which has \d+ tensors: .*model$"):
        open_model(f"zoo:augmix?file={tmp_path / 'other.pth'}")
    with pytest.raises(CovshiftError, match="unknown model of the zoo 'augmax'; did you mean 'augmix'"):
        open_model("zoo:augmax")
    with pytest.raises(CovshiftError, match="expected a file for zoo:assemble-resnet50; fetch it from https"):
        open_model("zoo:assemble-resnet50")
    shallow = write(ENTRIES["simclrv2-resnet50"], random(ENTRIES["simclrv2-resnet50"]), tmp_path)
    with pytest.raises(CovshiftError, match=r"does not fit zoo:simclrv2-resnet101"):
        open_model(f"zoo:simclrv2-resnet101?file={shallow}")


def test_half_a_download_of_arrays(tmp_path):
    np.savez(tmp_path / "text.npz", a=np.array(["x"]))
    (tmp_path / "half.npz").write_bytes((tmp_path / "text.npz").read_bytes()[:-30])
    for name in ("text.npz", "half.npz", "none.npz"):
        with pytest.raises(CovshiftError, match=f"{name} is not a whole npz file"):
            open_model(f"zoo:groupnorm-resnet101?file={tmp_path / name}")
