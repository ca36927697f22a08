"""Loops of the noises."""

import numpy as np

from covshift.corruptions.kernels import level
from covshift.support.arrays import Array
from covshift.support.jit import kernel


@kernel
def add_noise(image: Array, noise: Array, scale: float, out: Array) -> None:
    """Add scaled noise to an image, on the scale where white is 1."""
    for i in range(image.size):
        out[i] = level(image[i] / 255.0 + scale * noise[i])


@kernel
def speckle(image: Array, noise: Array, scale: float, out: Array) -> None:
    """Add noise in proportion to the image."""
    for i in range(image.size):
        x = image[i] / 255.0
        out[i] = level(x + x * (scale * noise[i]))


@kernel
def salt_and_pepper(image: Array, hit: Array, salt: Array, out: Array) -> None:
    """Set values to white or black where they are hit, and to the image elsewhere."""
    for i in range(image.size):
        out[i] = level(image[i] / 255.0)
        if hit[i]:
            out[i] = 255 if salt[i] < 0.5 else 0


@kernel
def invert_poisson(image: Array, chance: Array, cumulative: Array, starts: Array, values: Array, out: Array) -> None:
    """Write the value of the least count whose distribution function exceeds the drawn probability, at each rate."""
    last = cumulative.shape[1] - 1
    for i in range(image.size):
        level, u = image[i], chance[i]
        count = np.int64(starts[level, int(u * 256)])
        while count < last and cumulative[level, count] <= u:
            count += 1
        out[i] = values[count]
