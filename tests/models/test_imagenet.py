"""The ImageNet networks that do without batch statistics."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from covshift.models.imagenet import BLOCKS, FixupBottleneck, imagenet_resnet
from covshift.support.errors import CovshiftError
from covshift.support.torchvision import torchvision


def test_group_norm_has_32_groups_and_the_parameters_of_a_resnet():
    net = imagenet_resnet(50, "group")
    norms = [module for module in net.modules() if isinstance(module, nn.GroupNorm)]
    assert len(norms) == 53
    assert {norm.num_groups for norm in norms} == {32}
    plain = torchvision.models.resnet50()
    assert sum(p.numel() for p in net.parameters()) == sum(p.numel() for p in plain.parameters())
    # Wu & He: scales begin with 1, but for the last one of each block.
    for name, norm in net.named_modules():
        if isinstance(norm, nn.GroupNorm):
            assert (norm.weight == (0 if name.endswith("bn3") else 1)).all(), name
            assert norm.eps == 1e-5


def test_fixup_has_the_convolutions_of_a_resnet():
    def shapes(net):
        return sorted(tuple(m.weight.shape) + m.stride for m in net.modules() if isinstance(m, nn.Conv2d))

    net = imagenet_resnet(50, "fixup")
    assert shapes(net) == shapes(torchvision.models.resnet50())
    scalars = [p for p in net.parameters() if p.numel() == 1]
    assert len(scalars) == 16 * 7 + 2
    assert len([m for m in net.modules() if isinstance(m, FixupBottleneck)]) == sum(BLOCKS[50])


def test_a_fixup_network_starts_with_its_shortcuts_and_uniform_predictions():
    torch.manual_seed(0)
    net = imagenet_resnet(50, "fixup", classes=5).eval()
    assert not net(torch.randn(1, 3, 64, 64)).any()
    for block in net.stages[2]:
        assert not block.conv3.weight.any()
        he = (2 / (block.conv2.out_channels * 9)) ** 0.5
        assert block.conv2.weight.std().item() == pytest.approx(he * 16**-0.25, rel=0.05)
    x = torch.rand(1, 1024, 4, 4)
    assert torch.equal(net.stages[2][1](x), x)


def test_a_bottleneck_is_as_written_down():
    torch.manual_seed(0)
    block = FixupBottleneck(8, 4, 2).double()
    for p in block.parameters():
        nn.init.normal_(p)
    x, b = torch.randn(2, 8, 6, 6, dtype=torch.float64), block
    y1 = F.relu(F.conv2d(x + b.bias1a, b.conv1.weight) + b.bias1b)
    y2 = F.relu(F.conv2d(y1 + b.bias2a, b.conv2.weight, stride=2, padding=1) + b.bias2b)
    y3 = b.scale * F.conv2d(y2 + b.bias3a, b.conv3.weight) + b.bias3b
    shortcut = F.conv2d(x + b.bias1a, b.downsample.weight, stride=2)
    torch.testing.assert_close(block(x), F.relu(y3 + shortcut))


def test_bad_depth():
    with pytest.raises(CovshiftError, match="depth of 50, 101, 152, got 18"):
        imagenet_resnet(18, "group")
