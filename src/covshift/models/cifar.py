"""Residual networks for 32-pixel images, with batch normalisation, group normalisation or none (Fixup).

The layout is that of the CIFAR networks of He et al. (2016): a 3 x 3 stem, three stages of n blocks at 32, 16 and 8
pixels, so 6n + 2 layers; a shortcut that changes shape takes every second pixel and adds channels of zeros.
"""

from collections.abc import Callable
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from covshift.support.errors import CovshiftError, unknown

Norm = Literal["batch", "group", "fixup"]

CHANNELS_PER_GROUP = 2
"""Channels in a group of the first stage; later stages keep the number of groups, as in Wu & He (2018)."""


class Block(nn.Module):
    """Two normalised 3 x 3 convolutions around a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int, norm: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.conv1, self.norm1 = _conv(inputs, outputs, stride), norm(outputs)
        self.conv2, self.norm2 = _conv(outputs, outputs), norm(outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Map N x inputs x H x W to N x outputs x H/stride x W/stride."""
        y = F.relu(self.norm1(self.conv1(x)))
        y = self.norm2(self.conv2(y))
        return F.relu(y + _shortcut(x, y))


class FixupBlock(nn.Module):
    """Two 3 x 3 convolutions with scalar biases and one scale in place of normalisation (Zhang et al., 2019)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.conv2 = _conv(inputs, outputs, stride), _conv(outputs, outputs)
        self.bias1a, self.bias1b, self.bias2a, self.bias2b = (nn.Parameter(torch.zeros(1)) for _ in range(4))
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        """Map N x inputs x H x W to N x outputs x H/stride x W/stride."""
        biased = x + self.bias1a
        y = F.relu(self.conv1(biased) + self.bias1b)
        y = self.conv2(y + self.bias2a) * self.scale + self.bias2b
        return F.relu(y + (x if x.shape == y.shape else _shortcut(biased, y)))


class ResNet(nn.Module):
    """A residual network for small images; its input is normalised by the mean and standard deviation it came with.

    >>> ResNet(depth=20)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])

    Args:
        depth: 6n + 2 layers with n blocks in each stage: 20, 32, 44, 56, 110.
        width: Channels of the first stage; each further stage has twice as many.
        norm: "batch", "group", or "fixup" for none.
        classes: The number of logits.
    """

    def __init__(self, depth: int = 20, width: int = 16, norm: Norm = "batch", classes: int = 10) -> None:
        super().__init__()
        if depth < 8 or depth % 6 != 2:
            raise CovshiftError(f"expected a depth of 6n + 2, e.g. 20, 32 or 56, got {depth}")
        if norm not in get_args(Norm):
            raise unknown("norm", norm, get_args(Norm))
        layers: dict[Norm, Callable[[int], nn.Module]] = {
            "batch": nn.BatchNorm2d,
            "group": lambda channels: nn.GroupNorm(width // CHANNELS_PER_GROUP, channels),
            "fixup": lambda channels: ScalarBias(),
        }
        self.stem, self.norm = _conv(3, width), layers[norm](width)
        blocks: list[nn.Module] = []
        inputs = width
        for stage in range(3):
            for index in range(depth // 6):
                outputs, stride = width * 2**stage, 2 if stage and not index else 1
                fixup = norm == "fixup"
                blocks.append(
                    FixupBlock(inputs, outputs, stride) if fixup else Block(inputs, outputs, stride, layers[norm])
                )
                inputs = outputs
        self.blocks = nn.Sequential(*blocks)
        self.bias = ScalarBias() if norm == "fixup" else nn.Identity()
        self.head = nn.Linear(inputs, classes)
        _initialise(self, len(blocks))

    def forward(self, x: Tensor) -> Tensor:
        """Return logits of N x 3 x H x W images."""
        x = F.relu(self.norm(self.stem(x)))
        x = self.blocks(x).mean((2, 3))
        logits: Tensor = self.head(self.bias(x))
        return logits


def deepen(network: ResNet, depth: int) -> ResNet:
    """Return the same function as a deeper network: stages get blocks that are the identity until they are trained.

    >>> shallow, images = ResNet(depth=8).eval(), torch.randn(2, 3, 32, 32)
    >>> torch.equal(deepen(shallow, 20).eval()(images), shallow(images))
    True

    Args:
        network: A network, with batch normalisation if it is to be deepened.
        depth: 6n + 2 layers, no fewer than it has.
    """
    few, many = len(network.blocks) // 3, depth // 6
    if few == many:
        return network
    if not isinstance(network.norm, nn.BatchNorm2d) or few > many:
        raise CovshiftError(f"expected a network with batch normalisation and at most {depth} layers")
    deeper = ResNet(depth, network.stem.out_channels, classes=network.head.out_features)
    for part in ("stem", "norm", "head"):
        getattr(deeper, part).load_state_dict(getattr(network, part).state_dict())
    for place, block in enumerate(deeper.blocks):
        stage, index = divmod(place, many)
        if index < few:
            block.load_state_dict(network.blocks[stage * few + index].state_dict())
        else:
            nn.init.zeros_(block.get_parameter("norm2.weight"))  # nothing is added to the shortcut
    return deeper


class ScalarBias(nn.Module):
    """One learned number that is added to every value: Fixup has it where other networks normalise."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        """Add the number."""
        return x + self.bias


def _conv(inputs: int, outputs: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)


def _shortcut(x: Tensor, like: Tensor) -> Tensor:
    """Return the identity, or every second pixel and channels of zeros up to the shape of `like`."""
    if x.shape == like.shape:
        return x
    return F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 0, like.shape[1] - x.shape[1]))


def _initialise(network: ResNet, blocks: int) -> None:
    """Initialise as He; Fixup makes every block the identity and shrinks the others by the number of blocks."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    for module in network.modules():
        if isinstance(module, FixupBlock):
            with torch.no_grad():
                module.conv1.weight.mul_(blocks**-0.5)
            nn.init.zeros_(module.conv2.weight)
    if isinstance(network.bias, ScalarBias):
        nn.init.zeros_(network.head.weight)
        nn.init.zeros_(network.head.bias)
