"""A small ConvNeXt for 32-pixel images: depthwise 7 x 7 convolutions and LayerNorm over channels (Liu et al., 2022)."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from covshift.support.errors import CovshiftError

SCALE = 0.1
"""Initial scale of what a block adds; deep networks begin at 1e-6, shallow ones learn faster from here."""


class ConvNeXtBlock(nn.Module):
    """A depthwise convolution, LayerNorm, two linear layers of each pixel and a scale, added to what came in."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width)
        self.expand, self.reduce = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.full((width,), SCALE))

    def forward(self, x: Tensor) -> Tensor:
        """Map N x H x W x width to the same shape."""
        y = self.conv(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
        y = self.reduce(F.gelu(self.expand(self.norm(y))))
        out: Tensor = x + self.scale * y
        return out


class Downsample(nn.Module):
    """LayerNorm and a 2 x 2 convolution of stride 2."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.norm, self.conv = nn.LayerNorm(inputs), nn.Conv2d(inputs, outputs, 2, 2)

    def forward(self, x: Tensor) -> Tensor:
        """Map N x H x W x inputs to N x H/2 x W/2 x outputs."""
        out: Tensor = self.conv(self.norm(x).permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
        return out


class ConvNeXt(nn.Module):
    """Three stages of blocks at 16, 8 and 4 pixels, half of them in the second one.

    >>> ConvNeXt(depth=4, width=8)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])

    Args:
        depth: Number of blocks, a multiple of four.
        width: Channels of the first stage; each further stage has twice as many.
        classes: Number of logits.
    """

    def __init__(self, depth: int = 8, width: int = 48, classes: int = 10) -> None:
        super().__init__()
        if depth < 4 or depth % 4 or width < 1:
            raise CovshiftError(
                f"expected a depth that is a multiple of 4 and at least one channel, got {depth} and {width}"
            )
        quarter = depth // 4
        self.stem, self.stem_norm = nn.Conv2d(3, width, 2, 2), nn.LayerNorm(width)
        layers: list[nn.Module] = []
        for stage, blocks in enumerate((quarter, 2 * quarter, quarter)):
            channels = width * 2**stage
            layers += [Downsample(channels // 2, channels)] if stage else []
            layers += [ConvNeXtBlock(channels) for _ in range(blocks)]
        self.blocks = nn.Sequential(*layers)
        self.norm, self.head = nn.LayerNorm(4 * width), nn.Linear(4 * width, classes)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Conv2d):
                nn.init.trunc_normal_(module.weight, std=0.02)
                nn.init.zeros_(module.get_parameter("bias"))

    def forward(self, x: Tensor) -> Tensor:
        """Return logits of N x 3 x H x W images."""
        x = self.stem_norm(self.stem(x).permute(0, 2, 3, 1))
        logits: Tensor = self.head(self.norm(self.blocks(x).mean((1, 2))))
        return logits
