"""Family and normalisation, seen from a network's layers."""

import pytest
from torch import nn

from covshift.models import Model
from covshift.models.architecture import family, norm_kind
from covshift.models.preprocess import IMAGENET
from covshift.support.torchvision import torchvision


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("resnet18", ("ResNet", "batch")),
        ("resnet50", ("ResNet", "batch")),
        ("resnext50_32x4d", ("ResNeXt", "batch")),
        ("wide_resnet50_2", ("Wide ResNet", "batch")),
        ("densenet121", ("DenseNet", "batch")),
        ("mobilenet_v3_small", ("MobileNet", "batch")),
        ("squeezenet1_1", ("SqueezeNet", "none")),
        ("convnext_tiny", ("ConvNeXt", "layer")),
    ],
)
def test_of_torchvision(name, want):
    import torch

    with torch.device("meta"):  # no memory for weights that nobody looks at
        module = torchvision.models.get_model(name, weights=None)
    model = Model(f"torchvision:{name}", module, IMAGENET)
    assert (model.family, model.norm) == want


class MyNet(nn.Sequential):
    """A user's own."""


@pytest.mark.parametrize(
    ("layers", "want"),
    [
        ([nn.BatchNorm2d(4), nn.GroupNorm(2, 4), nn.BatchNorm2d(4)], "batch"),
        ([nn.SyncBatchNorm(4)], "batch"),
        ([nn.InstanceNorm2d(4, track_running_stats=True)], "instance"),
        ([nn.LayerNorm(4)], "layer"),
        ([nn.Conv2d(3, 4, 3)], "none"),
    ],
)
def test_of_layers(layers, want):
    assert norm_kind(MyNet(*layers)) == want
    assert family(MyNet(*layers)) == "MyNet"
