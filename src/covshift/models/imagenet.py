"""The ImageNet networks without batch statistics that the paper trains: ResNets with group normalisation, and Fixup.

Group normalisation is torchvision's ResNet with another layer. The Fixup network keeps the ResNet's layout (He et al.,
2016; stride on the 3 x 3 convolution) and has scalars in place of normalisation (Zhang et al., 2019).
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from covshift.models.cifar import Norm, ScalarBias
from covshift.support.errors import CovshiftError

BLOCKS = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}
GROUPS = 32


def imagenet_resnet(depth: int, norm: Norm, classes: int = 1000) -> nn.Module:
    """Return a ResNet of 50, 101 or 152 layers with "batch", "group" or, for none, "fixup" normalisation."""
    if depth not in BLOCKS:
        raise CovshiftError(f"expected a depth of {', '.join(map(str, BLOCKS))}, got {depth}")
    if norm == "fixup":
        return FixupResNet(BLOCKS[depth], classes)
    from covshift.support.torchvision import (
        torchvision,  # the import takes a second, and the CIFAR networks do not need it
    )

    layers: dict[str, Callable[[int], nn.Module]] = {
        "batch": nn.BatchNorm2d,
        "group": lambda channels: nn.GroupNorm(GROUPS, channels),
    }
    make = getattr(torchvision.models, f"resnet{depth}")
    # Wu & He begin with 0 in the last scale of each block.
    network: nn.Module = make(norm_layer=layers[norm], num_classes=classes, zero_init_residual=norm == "group")
    return network


class FixupBottleneck(nn.Module):
    """1 x 1, 3 x 3 and 1 x 1 convolutions with a scalar bias before and after each, and a scale after the last."""

    def __init__(self, inputs: int, middle: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * middle
        self.conv1 = nn.Conv2d(inputs, middle, 1, bias=False)
        self.conv2 = nn.Conv2d(middle, middle, 3, stride, padding=1, bias=False)
        self.conv3 = nn.Conv2d(middle, outputs, 1, bias=False)
        self.bias1a, self.bias1b, self.bias2a = (nn.Parameter(torch.zeros(1)) for _ in range(3))
        self.bias2b, self.bias3a, self.bias3b = (nn.Parameter(torch.zeros(1)) for _ in range(3))
        self.scale = nn.Parameter(torch.ones(1))
        self.downsample = None if inputs == outputs else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map N x inputs x H x W to N x 4 middle x H/stride x W/stride."""
        biased = x + self.bias1a
        y = F.relu(self.conv1(biased) + self.bias1b)
        y = F.relu(self.conv2(y + self.bias2a) + self.bias2b)
        y = self.conv3(y + self.bias3a) * self.scale + self.bias3b
        return F.relu(y + (x if self.downsample is None else self.downsample(biased)))


class FixupResNet(nn.Module):
    """A ResNet of bottlenecks without normalisation."""

    def __init__(self, blocks: tuple[int, ...], classes: int = 1000) -> None:
        super().__init__()
        self.conv1, self.bias1 = nn.Conv2d(3, 64, 7, 2, padding=3, bias=False), ScalarBias()
        stages, inputs = [], 64
        for stage, count in enumerate(blocks):
            middle = 64 * 2**stage
            strides = [2 if stage else 1] + [1] * (count - 1)
            channels = [inputs] + [4 * middle] * (count - 1)
            pairs = zip(channels, strides, strict=True)
            stages.append(nn.Sequential(*(FixupBottleneck(channel, middle, stride) for channel, stride in pairs)))
            inputs = 4 * middle
        self.stages, self.bias2, self.fc = nn.Sequential(*stages), ScalarBias(), nn.Linear(inputs, classes)
        _initialise(self, sum(blocks))

    def forward(self, x: Tensor) -> Tensor:
        """Return logits of N x 3 x H x W images."""
        x = F.max_pool2d(F.relu(self.bias1(self.conv1(x))), 3, 2, padding=1)
        x = self.stages(x).mean((2, 3))
        logits: Tensor = self.fc(self.bias2(x))
        return logits


def _initialise(network: FixupResNet, blocks: int) -> None:
    """Initialise as He, a block's first two convolutions smaller by the number of blocks, its last one zero."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    with torch.no_grad():
        for module in network.modules():
            if isinstance(module, FixupBottleneck):
                # m = 3 convolutions in a branch: L^(-1 / (2m - 2)).
                module.conv1.weight.mul_(blocks**-0.25)
                module.conv2.weight.mul_(blocks**-0.25)
                module.conv3.weight.zero_()
        network.fc.weight.zero_()
        network.fc.bias.zero_()
