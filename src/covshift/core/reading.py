"""Reading the classes of images off their mean at a place, by Bayesian linear regression."""

from typing import NamedTuple

import torch
from torch import Tensor


class Reader(NamedTuple):
    """How the classes of images are read off their mean at a place, in directions that do not depend on each other.

    Attributes:
        effects: what one standard deviation of the classes does to the mean, [directions, channels].
        noise: the variance of the mean of one image whose class is known, [channels].
        strength: how much one image tells of each direction: the ratio of variances by class and by chance.
        embedding: one standard deviation of the classes as an embedding, [directions, numbers of an embedding].
    """

    effects: Tensor
    noise: Tensor
    strength: Tensor
    embedding: Tensor

    @classmethod
    def of(cls, slopes: Tensor, noise: Tensor, covariance: Tensor) -> "Reader":
        """Return the reader of a place.

        Args:
            slopes: what an embedding does to the mean, [numbers of an embedding, channels].
            noise: the variance of an image's mean that its class does not explain, [channels].
            covariance: that of the embeddings of classes.
        """
        noise = noise.clamp(min=torch.finfo(torch.float32).tiny)
        values, vectors = torch.linalg.eigh(covariance)
        deviations = vectors * values.clamp(min=0).sqrt()
        effects = deviations.mT @ slopes
        strength, turn = torch.linalg.eigh(effects / noise @ effects.mT)
        return cls(turn.mT @ effects, noise, strength.clamp(min=0), (deviations @ turn).mT)

    @property
    def mean_strength(self) -> float:
        """How much classes do to the mean of an image, in the mean over channels, where 1 is what chance does."""
        return float(self.strength.sum()) / len(self.noise)

    def read(self, difference: Tensor, spread: float, chance: float) -> Tensor:
        """Return the embedding that a difference of means shows; the less, the larger that is than classes make it.

        Args:
            difference: of the images at hand from what was expected, [channels].
            spread: the variance of their mean embedding, in variances of the classes.
            chance: the variance of the difference by chance, in variances of the mean of one image.
        """
        chance *= max(1.0, self.surprise(difference, spread, chance)) ** 2
        gain = spread / (chance + spread * self.strength)
        return (gain * (self.effects / self.noise @ difference)) @ self.embedding

    def surprise(self, difference: Tensor, spread: float, chance: float) -> float:
        """Return how large a difference is, given as for `read`; 1 is what chance and classes make it in the mean."""
        expected = chance + spread * self.mean_strength
        return float((difference.square() / self.noise).mean()) / expected

    def unknown(self, scale: Tensor, spread: float, chance: float) -> float:
        """Return how far classes that were not read may move the mean, as `Place.moved` measures it."""
        left = spread * chance / (chance + spread * self.strength)
        return float((left @ self.effects.square() * scale).mean())
