"""Noise: of the sensor, of the photons, of the wire."""

from collections.abc import Iterator

import numpy as np

from covshift.corruptions.kernels import noise as kernels
from covshift.corruptions.seeding import Rng, poisson_levels
from covshift.support.arrays import Array

BLOCK = 1 << 14
"""Number of values to draw numbers for at a time: few enough that the numbers stay in the cache."""


def gaussian_noise(image: Array, sigma: float, rng: Rng, out: Array) -> None:
    """Add thermal noise: a normal number for each value."""
    for values, result in _blocks(image, out):
        kernels.add_noise(values, rng.standard_normal(values.size), sigma, result)


def shot_noise(image: Array, photons: int, rng: Rng, out: Array) -> None:
    """Replace each value by a Poisson count, since light comes in photons."""
    poisson_levels(rng, image, photons, out)


def impulse_noise(image: Array, amount: float, rng: Rng, out: Array) -> None:
    """Make some values black or white: salt and pepper."""
    hit = np.empty(image.size, bool)  # the numbers for where come before those for what
    for start in range(0, image.size, BLOCK):
        some = hit[start : start + BLOCK]
        np.less(rng.random(some.size), amount, out=some)
    for (values, result), start in zip(_blocks(image, out), range(0, image.size, BLOCK), strict=True):
        kernels.salt_and_pepper(values, hit[start : start + BLOCK], rng.random(values.size), result)


def speckle_noise(image: Array, sigma: float, rng: Rng, out: Array) -> None:
    """Add noise in proportion to the light."""
    for values, result in _blocks(image, out):
        kernels.speckle(values, rng.standard_normal(values.size), sigma, result)


def _blocks(image: Array, out: Array) -> Iterator[tuple[Array, Array]]:
    values, results = image.ravel(), out.ravel()
    for start in range(0, image.size, BLOCK):
        yield values[start : start + BLOCK], results[start : start + BLOCK]
