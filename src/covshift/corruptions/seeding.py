"""Where random numbers come from: one generator for each image, and one door for both of NumPy's kinds."""

import hashlib
from functools import lru_cache

import numpy as np

from covshift.support.arrays import Array

Rng = np.random.Generator | np.random.RandomState


class Streams:
    """The generators of the images of one corruption at one severity, one after the other.

    An image's stream follows from the seed, the corruption, the severity and the image's index, and from nothing else.

    >>> streams = Streams(seed=0, name="fog", severity=3)
    >>> first = streams.at(7).random()
    >>> bool(streams.at(8).random() == first), bool(streams.at(7).random() == first)
    (False, True)
    """

    def __init__(self, seed: int, name: str, severity: int) -> None:
        self._prefix = f"{seed}/{name}/{severity}/"
        self._bits = np.random.SFC64(0)
        self._generator = np.random.Generator(self._bits)

    def at(self, index: int) -> np.random.Generator:
        """Return the generator at the start of the image's stream; the next call moves it to another stream."""
        digest = hashlib.blake2b(f"{self._prefix}{index}".encode(), digest_size=24).digest()
        # Three words of hash and a counter at one are a state, much cheaper than what a seed sequence would compute.
        words = np.frombuffer(digest + b"\1\0\0\0\0\0\0\0", "<u8")
        self._bits.state = {
            "bit_generator": "SFC64",
            "state": {"state": words},
            "has_uint32": 0,
            "uinteger": 0,
        }
        return self._generator


def integers(rng: Rng, low: int, high: int, size: tuple[int, ...] = ()) -> Array:
    """Draw small integers from `low` up to, but not including, `high`."""
    if isinstance(rng, np.random.RandomState):
        return np.asarray(rng.randint(low, high, size)).astype(np.int32)
    return rng.integers(low, high, size, dtype=np.int32)


def poisson(rng: Rng, image: Array, photons: int) -> Array:
    """Draw a Poisson count for each value of a uint8 image, where white sends this many photons."""
    if isinstance(rng, np.random.RandomState):
        return rng.poisson(image / 255.0 * photons)
    from covshift.corruptions.kernels import noise as kernels

    counts = np.empty(image.shape, np.int64)
    kernels.invert_poisson(image.ravel(), rng.random(image.size), *_poisson_tables(photons), counts.ravel())
    return counts


@lru_cache
def _poisson_tables(photons: int) -> tuple[Array, Array]:
    """Return for each of the 256 levels the distribution function, and where to start searching it, by 1/256."""
    from scipy.special import pdtr

    rates = np.arange(256) / 255.0 * photons
    cumulative = pdtr(np.arange(int(photons + 10 * photons**0.5 + 30)), rates[:, None])
    starts = np.stack([np.searchsorted(row, np.arange(256) / 256) for row in cumulative])
    return cumulative, starts
