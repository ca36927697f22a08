"""Damage to files, from a seed: bytes changed, cut off, doubled, swapped, or set to what parsers stumble over."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from covshift.support.errors import CovshiftError

FACTOR = float(os.environ.get("COVSHIFT_FUZZ", "1"))
"""Multiplies the numbers of attempts."""

_ODD = (b"\x00" * 4, b"\xff" * 8, b"\x80\x00\x00\x00", b"\x7f\xff\xff\xff", b"NaN", b"-1", b"1e999", b'"', b"{")


def damaged(whole: bytes, rng: np.random.Generator, head: int | None = None) -> bytes:
    """Return content with none to eight kinds of damage; half of it within the first `head` bytes."""
    content = bytearray(whole)
    for _ in range(rng.choice([0, 1, 1, 2, 4, 8])):
        reach = min(head, len(content)) if head and rng.random() < 0.5 else len(content)
        place = int(rng.integers(0, max(1, reach)))
        kind = rng.integers(0, 6)
        if kind <= 1 and content:
            content[place] = int(rng.integers(0, 256))
        elif kind == 2 and content:
            content[place] ^= 1 << int(rng.integers(0, 8))
        elif kind == 3:
            odd = _ODD[rng.integers(0, len(_ODD))]
            content[place : place + len(odd)] = odd
        elif kind == 4 and rng.random() < 0.3:
            del content[place:]
        elif kind == 5 and rng.random() < 0.3:
            length = int(rng.integers(1, 64))
            content[place:place] = content[place : place + length]
    return bytes(content)


def attempt(
    number: int, seed: int, folder: Path, suffix: str, samples: list[bytes], use: Callable[[Path], object], head: int
) -> tuple[int, int]:
    """Use damaged files; return how many were taken and how many refused. Only a `CovshiftError` may come out."""
    rng, taken, refused = np.random.default_rng(seed), 0, 0
    for count in range(int(number * FACTOR)):
        content = damaged(samples[count % len(samples)], rng, head)
        path = folder / f"{count}{suffix}"
        path.write_bytes(content)
        try:
            use(path)
            taken += 1
        except CovshiftError:
            refused += 1
        except BaseException as error:
            raise AssertionError(f"attempt {count} of seed {seed}: {type(error).__name__}: {error}") from error
        path.unlink()
    return taken, refused
