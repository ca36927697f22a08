"""Assemble-ResNet-50 (Lee et al. 2020): a ResNet with big and little branches, selective kernels and blurred strides.

Layers are made in the order in which its authors' code makes them, which is how its checkpoint numbers them.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

BLOCKS = (3, 4, 6, 3)
ALPHA, BETA = 2, 4
"""Factor by which the little branch is narrower and, but for its first block, shallower."""


class ConvNorm(nn.Module):
    """A convolution and its normalisation."""

    def __init__(self, inputs: int, outputs: int, side: int, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, side, stride, padding=side // 2, bias=False)
        self.norm = nn.BatchNorm2d(outputs, momentum=0.003)

    def forward(self, x: Tensor) -> Tensor:
        """Apply convolution and normalisation, without an activation."""
        y: Tensor = self.norm(self.conv(x))
        return y


class Select(nn.Module):
    """A layer that weighs two halves of the channels against each other, depending on the picture."""

    def __init__(self, width: int) -> None:
        super().__init__()
        inner = max(width // 2, 32)
        self.squeeze, self.norm = nn.Conv2d(width, inner, 1, bias=False), nn.BatchNorm2d(inner, momentum=0.003)
        self.excite = nn.Conv2d(inner, 2 * width, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map 2 width channels to width."""
        halves = torch.stack(x.chunk(2, 1))
        mean = halves.sum(0).mean((2, 3), keepdim=True)
        votes = torch.stack(self.excite(F.relu(self.norm(self.squeeze(mean)))).chunk(2, 1))
        return (halves * votes.softmax(0)).sum(0)


class Bottleneck(nn.Module):
    """1 x 1, a selective 3 x 3 and 1 x 1 around a shortcut; a stride is a blur that takes every second pixel."""

    blur: Tensor

    def __init__(self, inputs: int, width: int, stride: int = 1, *, project: bool, relu: bool = True) -> None:
        super().__init__()
        self.stride, self.relu = stride, relu
        self.shortcut = ConvNorm(inputs, 4 * width, 1) if project else None
        self.reduce = ConvNorm(inputs, width, 1)
        self.spread, self.select = ConvNorm(width, 2 * width, 3), Select(width)
        self.expand = ConvNorm(width, 4 * width, 1)
        binomial = torch.tensor([1.0, 2.0, 1.0])
        kernel = (torch.outer(binomial, binomial) / 16).expand(width, 1, 3, 3).clone()
        self.register_buffer("blur", kernel, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map N x inputs x H x W to N x 4 width x H/stride x W/stride."""
        y = self.select(F.relu(self.spread(F.relu(self.reduce(x)))))
        if self.stride > 1:
            y = F.conv2d(F.pad(y, (1, 1, 1, 1), "reflect"), self.blur, stride=self.stride, groups=y.shape[1])
        if self.shortcut is not None:
            x = self.shortcut(F.avg_pool2d(x, 3, self.stride, 1) if self.stride > 1 else x)
        y = self.expand(y) + x
        return F.relu(y) if self.relu else y


class Pool(nn.Module):
    """A big and a little branch in place of the max-pool."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.big = ConvNorm(width, width, 3, 2)
        self.little1, self.little2 = ConvNorm(width, width // ALPHA, 3), ConvNorm(width // ALPHA, width // ALPHA, 3, 2)
        self.little3, self.merge = ConvNorm(width // ALPHA, width, 1), ConvNorm(width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Halve the sides."""
        little = self.little3(F.relu(self.little2(F.relu(self.little1(x)))))
        return F.relu(self.merge(F.relu(self.big(x) + little)))


class Stage(nn.Module):
    """Most blocks at half the resolution, few and narrow ones at the full one, and a block for both."""

    def __init__(self, inputs: int, width: int, blocks: int, stride: int) -> None:
        super().__init__()
        self.big = run_of_blocks(inputs, width, blocks - 1, 2, relu=False)
        little = run_of_blocks(inputs, width // ALPHA, max(1, blocks // BETA - 1), 1)
        self.little = nn.Sequential(*little, ConvNorm(4 * width // ALPHA, 4 * width, 1))
        self.merge = run_of_blocks(4 * width, width, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Apply both branches; the sides of the input must be even."""
        big = F.interpolate(self.big(x), scale_factor=2, mode="nearest")
        y: Tensor = self.merge(F.relu(self.little(x) + big))
        return y


def run_of_blocks(inputs: int, width: int, count: int, stride: int, *, relu: bool = True) -> nn.Sequential:
    """Return blocks, of which the first has the stride and a projection; `relu` applies to the last of several."""
    first = Bottleneck(inputs, width, stride, project=True)
    rest = (Bottleneck(4 * width, width, project=False, relu=relu or i < count - 1) for i in range(1, count))
    return nn.Sequential(first, *rest)


class AssembleResNet(nn.Module):
    """Assemble-ResNet-50, for images of 224 or 256 px."""

    def __init__(self, classes: int = 1000, width: int = 64) -> None:
        super().__init__()
        self.stem, self.pool = ConvNorm(3, width, 7, 2), Pool(width)
        stages, inputs = [], width
        # The module in place of the pool halves the sides once more than a ResNet's first stage.
        for i, (blocks, stride) in enumerate(zip(BLOCKS[:3], (2, 2, 1), strict=True)):
            stages.append(Stage(inputs, width * 2**i, blocks, stride))
            inputs = 4 * width * 2**i
        self.stages = nn.ModuleList(stages)
        self.last = run_of_blocks(inputs, 8 * width, BLOCKS[3], 2)
        self.fc = nn.Linear(32 * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits of N x 3 x H x W images."""
        x = self.pool(F.relu(self.stem(x)))
        for stage in self.stages:
            x = stage(x)
        logits: Tensor = self.fc(self.last(x).mean((2, 3)))
        return logits
