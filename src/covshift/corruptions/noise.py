"""Noise: of the sensor, of the photons, of the wire."""

import numpy as np

from covshift.corruptions import kernels
from covshift.corruptions.seeding import Array, Rng, poisson


def gaussian_noise(image: Array, sigma: float, rng: Rng) -> Array:
    """Thermal noise: a normal number added to each value."""
    out = np.empty(image.shape)
    kernels.add_noise(image.ravel(), rng.standard_normal(image.size), sigma, out.ravel())
    return out


def shot_noise(image: Array, photons: int, rng: Rng) -> Array:
    """Light comes in pieces: each value becomes a Poisson count."""
    return poisson(rng, image, photons) / photons


def impulse_noise(image: Array, amount: float, rng: Rng) -> Array:
    """Salt and pepper: some values become black or white."""
    out = np.empty(image.shape)
    kernels.salt_and_pepper(image.ravel(), rng.random(image.size), rng.random(image.size), amount, out.ravel())
    return out


def speckle_noise(image: Array, sigma: float, rng: Rng) -> Array:
    """Noise in proportion to the light."""
    out = np.empty(image.shape)
    kernels.speckle(image.ravel(), rng.standard_normal(image.size), sigma, out.ravel())
    return out
