"""Where random numbers come from: one stream for each image, and one door for it and both of NumPy's generators."""

import hashlib
from functools import cache, lru_cache
from types import ModuleType
from typing import Any

import numpy as np

from covshift.support.arrays import Array


class Stream:
    """The random numbers of one image: those of a NumPy generator with the same state, drawn by compiled code."""

    def __init__(self, words: bytes) -> None:
        # Three words of hash and a counter at one are a state, much cheaper than what a seed sequence would compute.
        self._state: Array = np.frombuffer(bytearray(words + _REST), "<u8")

    def generator(self) -> np.random.Generator:
        """Return NumPy's generator, at the place that this stream is at."""
        bits = np.random.SFC64(0)
        left, half = map(int, self._state[4:])
        state: Any = {"state": self._state[:4]}
        bits.state = {"bit_generator": "SFC64", "state": state, "has_uint32": left, "uinteger": half}
        return np.random.Generator(bits)

    def random(self, size: int) -> Array:
        """Draw numbers in [0, 1)."""
        return self.uniform(0.0, 1.0, (size,))

    def uniform(self, low: float, high: float, size: tuple[int, ...] = ()) -> Array:
        """Draw numbers from `low` up to, but not including, `high`."""
        out = np.empty(size)
        _kernels().uniforms(self._state, float(low), float(high - low), out.reshape(-1))
        return out

    def standard_normal(self, size: int | tuple[int, ...]) -> Array:
        """Draw standard normal numbers."""
        out = np.empty(size)
        _kernels().normals(self._state, out.reshape(-1))
        return out

    def integers(self, low: int, high: int, size: tuple[int, ...] = ()) -> Array:
        """Draw integers from `low` up to, but not including, `high`."""
        out = np.empty(size, np.int32)
        _kernels().whole_numbers(self._state, low, high - low, out.reshape(-1))
        return out


Rng = np.random.Generator | np.random.RandomState | Stream
_REST = b"\1" + bytes(23)


@cache
def _kernels() -> ModuleType:
    from covshift.corruptions.kernels import random  # numba takes a while to import

    return random


class Streams:
    """The random numbers of the images of one corruption at one severity.

    An image's stream follows from the seed, the corruption, the severity and the image's index, and from nothing else.

    >>> streams = Streams(seed=0, name="fog", severity=3)
    >>> first = streams.at(7).random(1)
    >>> bool(streams.at(8).random(1) == first), bool(streams.at(7).random(1) == first)
    (False, True)
    """

    def __init__(self, seed: int, name: str, severity: int) -> None:
        self._prefix = f"{seed}/{name}/{severity}/"

    def at(self, index: int) -> Stream:
        """Return the stream of an image, at its start."""
        return Stream(hashlib.blake2b(f"{self._prefix}{index}".encode(), digest_size=24).digest())


def integers(rng: Rng, low: int, high: int, size: tuple[int, ...] = ()) -> Array:
    """Draw small integers from `low` up to, but not including, `high`."""
    if isinstance(rng, np.random.RandomState):
        return np.asarray(rng.randint(low, high, size)).astype(np.int32)
    return rng.integers(low, high, size) if isinstance(rng, Stream) else rng.integers(low, high, size, dtype=np.int32)


def poisson(rng: Rng, image: Array, photons: int) -> Array:
    """Draw a Poisson count for each value of a uint8 image, where white sends this many photons."""
    if isinstance(rng, np.random.RandomState):
        return rng.poisson(image / 255.0 * photons)
    out = np.empty(image.shape, np.int64)
    _invert(rng, image, photons, np.arange(_most(photons)), out)
    return out


def poisson_levels(rng: Rng, image: Array, photons: int, out: Array) -> None:
    """Draw a Poisson count for each value of a uint8 image, and write it as a level, truncated as published."""
    from covshift.corruptions.kernels import quantise

    if isinstance(rng, np.random.RandomState):
        quantise(poisson(rng, image, photons) / photons, out)
    else:
        levels = np.empty(_most(photons), np.uint8)
        quantise(np.arange(_most(photons)) / photons, levels)
        _invert(rng, image, photons, levels, out)


def _invert(rng: "np.random.Generator | Stream", image: Array, photons: int, values: Array, out: Array) -> None:
    """Write for each value of an image that of the count that was drawn for it."""
    from covshift.corruptions.kernels import noise as kernels

    chance, tables = rng.random(image.size), _poisson_tables(photons)
    kernels.invert_poisson(image.reshape(-1), chance, *tables, values, out.reshape(-1))


def _most(photons: int) -> int:
    """Return a number of photons that practically never come, where white sends this many."""
    return int(photons + 10 * photons**0.5 + 30)


@lru_cache
def _poisson_tables(photons: int) -> tuple[Array, Array]:
    """Return for each of the 256 levels the distribution function, and where to start searching it, by 1/256."""
    from scipy.special import pdtr

    rates = np.arange(256) / 255.0 * photons
    cumulative = pdtr(np.arange(_most(photons)), rates[:, None])
    starts = np.stack([np.searchsorted(row, np.arange(256) / 256) for row in cumulative])
    return cumulative, starts.astype(np.uint16)
