"""UnMix-TNS: a layer's statistics as a mixture of components, of which similar images move the same."""

from dataclasses import dataclass
from zlib import crc32

import torch
from torch import Tensor
from torch.nn.functional import normalize

from covshift.core.places import NormLayer
from covshift.rivals.base import NormRival, Pair, Step, each_image
from covshift.support.checks import check_number, check_seed

_ALPHA = 0.5  # how much of the source variance lies between the components at the start
_TEMPERATURE = 0.07


@dataclass(frozen=True)
class UnmixedNorm(NormRival):
    """UnMix-TNS: K components around the source, each of which follows the images that resemble it.

    At the start μ_k = μ + √(αK/(K-1))·σ·N(0,1) and σ_k² = (1-α)σ², α = 0.5. An image belongs to component k with
    p_k = softmax(cos(its mean, μ_k)/0.07); with the components drawn to the image by p_k, the image is normalised by
    the moments of their mixture. Tomar et al., Un-mixing test-time normalization statistics, 2024.

    Attributes:
        components: K; published with 16, and with 128 where domains are mixed.
        largest: the batch size at which components follow with the layer's own momentum; smaller ones follow slower.
        seed: the seed of the components at the start.
    """

    components: int = 16
    largest: int = 64
    seed: int = 0

    def __post_init__(self) -> None:
        check_number(self.components, "components", 1, whole=True)
        check_number(self.largest, "largest", 1, whole=True)
        check_seed(self.seed)

    def step(self, layer: NormLayer, kept: Pair | None, x: Tensor) -> Step:
        """Return the mixture of each image, and components that have followed the batch."""
        if x.ndim == 2:
            return Step(Pair(layer.mean, layer.var))
        mean, var = kept or self._start(layer)
        own = each_image(x)
        share = (normalize(own.mean, dim=1) @ normalize(mean, dim=1).T / _TEMPERATURE).softmax(1).unsqueeze(2)
        drawn_mean = torch.lerp(mean.expand(len(x), -1, -1), own.mean.unsqueeze(1), share)
        drawn_var = torch.lerp(var.expand(len(x), -1, -1), own.var.unsqueeze(1), share)
        use = Pair(drawn_mean.mean(1), drawn_var.mean(1) + drawn_mean.var(1, correction=0))
        momentum = getattr(layer.module, "momentum", None) or 0.1
        speed = 1 - (1 - momentum) ** (len(x) / self.largest)
        keep = Pair(mean + speed * (drawn_mean - mean).mean(0), var + speed * (drawn_var - var).mean(0))
        return Step(use, keep)

    def _start(self, layer: NormLayer) -> Pair:
        """Return components around the source whose mixture has about its mean and variance."""
        k = self.components
        if k == 1:
            return Pair(layer.mean.unsqueeze(0), layer.var.unsqueeze(0))
        generator = torch.Generator().manual_seed(crc32(f"{self.seed} {layer.path}".encode()))
        noise = torch.randn(k, len(layer.mean), generator=generator).to(layer.mean)
        mean = layer.mean + (_ALPHA * k / (k - 1)) ** 0.5 * layer.var.sqrt() * noise
        return Pair(mean, ((1 - _ALPHA) * layer.var).expand(k, -1))
