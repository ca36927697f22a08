"""A small vision transformer for 32-pixel images, of plain layers that are called one by one.

The layout is that of Dosovitskiy et al. (2021) with normalisation before each branch. Two strided convolutions make the
tokens, as in Xiao et al. (2021), since on as few images as CIFAR-10 has, cutting them into patches learns far slower.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from covshift.support.errors import CovshiftError

HEAD = 32
"""Channels of an attention head."""


class Attention(nn.Module):
    """Self-attention over tokens with several heads."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Map N x tokens x width to the same shape."""
        query, key, value = self.qkv(x).unflatten(2, (3, -1, HEAD)).permute(2, 0, 3, 1, 4).unbind()
        # torch's fused attention takes five times as long to train in bfloat16 on a CPU.
        shares = (query * HEAD**-0.5 @ key.transpose(2, 3)).softmax(3)
        out: Tensor = self.out((shares @ value).transpose(1, 2).flatten(2))
        return out


class TransformerBlock(nn.Module):
    """Attention and two linear layers, each normalised before and added to what came in."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(width), Attention(width)
        self.norm2, self.expand, self.reduce = nn.LayerNorm(width), nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        """Map N x tokens x width to the same shape."""
        x = x + self.attention(self.norm1(x))
        out: Tensor = x + self.reduce(F.gelu(self.expand(self.norm2(x))))
        return out


class VisionTransformer(nn.Module):
    """A transformer whose 64 tokens are 4 x 4 pixels apart; their mean is classified.

    >>> VisionTransformer(depth=2, width=64)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])

    Args:
        depth: Number of blocks.
        width: Channels of a token, a multiple of 32; the linear layers between have twice as many.
        classes: Number of logits.
    """

    def __init__(self, depth: int = 6, width: int = 192, classes: int = 10) -> None:
        super().__init__()
        if depth < 1 or width < HEAD or width % HEAD:
            raise CovshiftError(
                f"expected at least one block and a width that is a multiple of {HEAD}, got {depth} and {width}"
            )
        self.stem1 = nn.Conv2d(3, width // 2, 3, 2, padding=1)
        self.stem2 = nn.Conv2d(width // 2, width, 3, 2, padding=1)
        self.embed = nn.Linear(width, width)
        self.position = nn.Parameter(torch.empty(1, 64, width))
        self.blocks = nn.Sequential(*(TransformerBlock(width, 2 * width) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)
        nn.init.normal_(self.position, std=0.02)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits of N x 3 x 32 x 32 images."""
        x = F.gelu(self.stem2(F.gelu(self.stem1(x))))
        x = self.embed(x.flatten(2).transpose(1, 2)) + self.position
        logits: Tensor = self.head(self.norm(self.blocks(x)).mean(1))
        return logits
