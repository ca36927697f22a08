"""Sequences of conditions that images come in one after the other, as a camera drifts from one domain to the next."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from covshift.corruptions import category
from covshift.corruptions.apply import check_severity
from covshift.data.condition import CLEAN, MIXED, Condition
from covshift.data.orders import Order, arrange_again
from covshift.data.readable import Labels
from covshift.support.errors import CovshiftError, unknown

NAMES = ("continual", "gradual", "mixed", "recurring")
"""The sequences that have a name."""

EXAMPLE = "clean,fog/5:200,clean"
_PIECE = re.compile(r"(?:([\w-]+)/(\d)|(clean))(?:[:\s]\s*(\d+))?")


class Domain(NamedTuple):
    """A part of a sequence: its condition, and the places of its first image and of the one after its last."""

    condition: Condition
    start: int
    stop: int


class Shown(NamedTuple):
    """One image of a stream: its index in the data set, and the condition that it is in."""

    image: int
    condition: Condition


class Piece(NamedTuple):
    """A condition and the number of images that come in it; None for all images of the run."""

    condition: Condition
    images: int | None = None

    def __str__(self) -> str:
        name = str(self.condition) if self.condition != CLEAN else CLEAN.corruption
        return name if self.images is None else f"{name}:{self.images}"


def read_sequence(words: Sequence[str], *, known: bool = True) -> tuple[str, ...]:
    """Return a sequence as it is stored: its name, or its pieces one by one.

    Args:
        words: a name; pieces such as fog/5 or fog/5:200, the latter with its number of images; or the path of a file
            with a piece on each line.
        known: whether to refuse corruptions that are not registered here.

    >>> read_sequence(["clean", "fog/5 200"])
    ('clean', 'fog/5:200')
    """
    if len(words) == 1 and words[0] in NAMES:
        return (words[0],)
    if len(words) == 1 and not _PIECE.fullmatch(words[0]):
        words = _lines(words[0])
    pieces = [_piece(word) for word in words]
    for piece in pieces if known else ():
        if piece.condition != CLEAN:
            category(piece.condition.corruption)
    return tuple(map(str, pieces))


def _lines(path: str) -> list[str]:
    if not Path(path).is_file():
        error = unknown("sequence", path, NAMES)
        raise CovshiftError(f"{error}; or give pieces such as {EXAMPLE}, or a file with one on each line")
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CovshiftError(f"cannot read the sequence {path}: {error}") from error
    lines = [line.partition("#")[0].strip() for line in text.splitlines()]
    if not any(lines):
        raise CovshiftError(f"expected pieces of a sequence such as fog/5 in {path}, one on each line, got none")
    return [line for line in lines if line]


def _piece(word: str) -> Piece:
    match = _PIECE.fullmatch(word.strip())
    if match is None or match[4] in ("0", "00"):
        raise CovshiftError(f"expected a piece of a sequence such as clean, fog/5 or fog/5:200, got {word!r}")
    images = int(match[4]) if match[4] else None
    return Piece(CLEAN if match[3] else Condition(match[1], check_severity(int(match[2]))), images)


def pieces(sequence: Sequence[str], corruptions: Sequence[str], severities: Sequence[int]) -> list[Piece]:
    """Return the pieces of a stored sequence.

    - continual: every corruption at the given severities, one after the other.
    - gradual: for every corruption the severities upwards and down again.
    - recurring: the clean images before, between and after the corruptions.
    - mixed: the conditions of `continual`, which `stream` then shuffles over the images.

    Args:
        sequence: what `read_sequence` returns.
        corruptions: the corruptions of a named sequence, in their order.
        severities: the severities of a named sequence.

    >>> [str(piece) for piece in pieces(["gradual"], ["fog"], [1, 3, 5])]
    ['fog/1', 'fog/3', 'fog/5', 'fog/3', 'fog/1']
    """
    if tuple(sequence) not in [(name,) for name in NAMES]:
        return [_piece(word) for word in sequence]
    (name,) = sequence
    up = sorted(severities)
    if name == "gradual" and len(up) < 2:
        raise CovshiftError(
            f"expected two severities or more for a gradual sequence, got {up}; name others: severities="
        )
    levels = [*up, *up[-2::-1]] if name == "gradual" else up
    found = [Piece(Condition(corruption, level)) for corruption in corruptions for level in levels]
    if name == "recurring":
        return [Piece(CLEAN), *(each for piece in found for each in (piece, Piece(CLEAN)))]
    return found


def domains(sequence: Sequence[str], parts: Sequence[Piece], images: int) -> list[Domain]:
    """Return the domains of a stream in which `images` images are shown for each piece without a number of its own."""
    sizes = [images if part.images is None else part.images for part in parts]
    if tuple(sequence) == (MIXED.corruption,):
        return [Domain(MIXED, 0, sum(sizes))]
    ends = np.cumsum(sizes).tolist()
    return [Domain(part.condition, end - size, end) for part, size, end in zip(parts, sizes, ends, strict=True) if size]


def time_pieces(parts: Sequence[Domain], most: int = 50) -> list[Domain]:
    """Return domains cut into pieces of at most `most` images, in which errors over time are counted."""
    return [
        Domain(condition, begin, min(begin + most, stop))
        for condition, start, stop in parts
        for begin in range(start, stop, most)
    ]


def stream(
    sequence: Sequence[str], parts: Sequence[Piece], indices: list[int], labels: Labels, order: Order, seed: int
) -> list[Shown]:
    """Return the images of a sequence one by one; when all were shown, they come again in the order, drawn anew.

    Args:
        sequence: what `read_sequence` returns.
        parts: its pieces.
        indices: the images of the run in their order.
        labels: the classes of all images of the data set.
        order: the name of the order.
        seed: the seed of the orders, and of the conditions of a mixed sequence.
    """
    if tuple(sequence) == (MIXED.corruption,):
        return list(_mixed([part.condition for part in parts], indices, labels, order, seed))
    conditions = [d.condition for d in domains(sequence, parts, len(indices)) for _ in range(d.start, d.stop)]
    times = -(-len(conditions) // len(indices))
    images = [index for time in range(times) for index in arrange_again(indices, labels, order, seed, time)]
    return [Shown(*pair) for pair in zip(images, conditions, strict=False)]


def _mixed(
    conditions: Sequence[Condition], indices: list[int], labels: Labels, order: Order, seed: int
) -> Iterator[Shown]:
    """Yield every image in every condition, once each; which comes first is drawn for each image by itself."""
    rng = np.random.default_rng([seed, len(conditions), len(indices)])
    drawn = dict(
        zip(indices, rng.permuted(np.tile(np.arange(len(conditions)), (len(indices), 1)), axis=1), strict=True)
    )
    for time in range(len(conditions)):
        for index in arrange_again(indices, labels, order, seed, time):
            yield Shown(index, conditions[drawn[index][time]])
