"""The answers of a cell, image by image, and the blocks of bytes that they are kept as.

A block is a gzip member with a safetensors file in it: named columns, each with its type, of one cell. Members follow
each other in one file, so that a block is added by appending it, and half a block is noticed and cut off.
"""

import gzip
import json
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from covshift.support.errors import CovshiftError

_LEVEL = 6
_CELL, _IMAGES = "cell", "images"
_BETWEEN = "\0"  # names, which may hold any other character
_STEPS = 255  # of a confidence in 8 bits


class Answers(NamedTuple):
    """What a model answered to each image of a cell.

    Attributes:
        indices: the indices of the images in their data set.
        classes: the class that the model found most likely.
        in_top5: whether the true class is among the five most likely ones.
        confidence: the probability that the model gave its answer, from 0 to 255.
    """

    indices: NDArray[np.int64]
    classes: NDArray[np.int64]
    in_top5: NDArray[np.bool_]
    confidence: NDArray[np.uint8]

    @classmethod
    def join(cls, parts: "list[Answers]") -> "Answers":
        """Return the answers of several batches as those of one."""
        return cls(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

    @property
    def probability(self) -> NDArray[np.float64]:
        """The confidence from 0 to 1."""
        return self.confidence / _STEPS


def in_steps(probability: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Return probabilities in 8 bits.

    >>> in_steps(np.array([0.0, 0.5, 1.0], np.float32))
    array([  0, 128, 255], dtype=uint8)
    """
    return np.rint(probability * _STEPS).astype(np.uint8)


class ImageTable(NamedTuple):
    """The images of a run, in the order in which it shows them: index in the data set, true class, and name.

    `class_names` are those of the classes, as far as the data set knows them.
    """

    indices: NDArray[np.int64]
    labels: NDArray[np.int64]
    names: tuple[str, ...]
    class_names: tuple[str, ...] = ()

    def same_as(self, other: "ImageTable") -> bool:
        """Return whether the other table is of the same images in the same order."""
        alike = all(np.array_equal(mine, theirs) for mine, theirs in zip(self[:2], other[:2], strict=True))
        return alike and self.names == other.names

    def places(self, indices: NDArray[np.int64]) -> NDArray[np.intp]:
        """Return the places in the table of images that are given by their index."""
        if np.array_equal(self.indices, indices):  # as in almost all cells
            return np.arange(len(indices))
        order = np.argsort(self.indices)
        found: NDArray[np.intp] = order[np.searchsorted(self.indices, indices, sorter=order).clip(max=len(order) - 1)]
        if not np.array_equal(self.indices[found], indices):
            raise CovshiftError("expected answers to images of the run, got others")
        return found

    def to_block(self) -> bytes:
        """Return the table as a block."""
        columns = {"index": _small(self.indices), "label": _small(self.labels), "name": _written(self.names)}
        return _pack(columns | ({"class": _written(self.class_names)} if self.class_names else {}), {_IMAGES: "1"})

    @classmethod
    def from_block(cls, content: bytes, where: str) -> "ImageTable":
        """Return the table of a block; `where` names the file for errors."""
        columns, notes = _unpack(content, where)
        with _explained(where):
            names, classes = _words(columns["name"]), _words(columns["class"]) if "class" in columns else ()
            table = cls(columns["index"].astype(np.int64), columns["label"].astype(np.int64), names, classes)
        if _IMAGES not in notes or not len(table.indices) == len(table.labels) == len(names):
            raise CovshiftError(f"{where} does not begin with the images of its run")
        return table


def to_block(cell: str, answers: Answers, images: ImageTable) -> bytes:
    """Return the answers of a cell as a block, in the order of the images of the run."""
    places = images.places(answers.indices)
    order = np.argsort(places)
    columns = {
        "answer": _small(answers.classes[order]),
        "top5": np.packbits(answers.in_top5[order]),
        "confidence": answers.confidence[order],
    }
    if len(places) < len(images.indices):  # pictures that could not be read
        seen = np.zeros(len(images.indices), np.bool_)
        seen[places] = True
        columns["seen"] = np.packbits(seen)
    return _pack(columns, {_CELL: cell})


def from_block(content: bytes, cell: str, images: ImageTable, where: str) -> Answers:
    """Return the answers of a block, which must be those of this cell; `where` names the file for errors."""
    columns, notes = _unpack(content, where)
    if notes.get(_CELL) != cell:
        raise CovshiftError(f"expected the answers of {cell} in {where}, got those of {notes.get(_CELL)}")
    with _explained(where):
        total = len(images.indices)
        seen = np.unpackbits(columns["seen"], count=total).astype(np.bool_) if "seen" in columns else np.s_[:]
        indices = images.indices[seen]
        top5 = np.unpackbits(columns["top5"], count=len(indices)).astype(np.bool_)
        answers = Answers(indices, columns["answer"].astype(np.int64), top5, columns["confidence"])
    if len({len(column) for column in answers}) != 1 or answers.confidence.dtype != np.uint8:
        raise CovshiftError(f"the answers of {cell} in {where} are not all of the same {len(indices)} images")
    return answers


def _written(words: tuple[str, ...]) -> NDArray[np.uint8]:
    return np.frombuffer(_BETWEEN.join(words).encode(errors="surrogateescape"), np.uint8)


def _words(column: NDArray[np.uint8]) -> tuple[str, ...]:
    return tuple(column.tobytes().decode(errors="surrogateescape").split(_BETWEEN))


def _pack(columns: Mapping[str, NDArray[Any]], notes: dict[str, str]) -> bytes:
    return gzip.compress(save(dict(columns), notes), _LEVEL, mtime=0)


def _unpack(content: bytes, where: str) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """Return the columns and the notes of a block."""
    with _explained(where):
        plain = gzip.decompress(content)
        header = json.loads(plain[8 : 8 + int.from_bytes(plain[:8], "little")])
        return load(plain), dict(header.get("__metadata__", {}))


@contextmanager
def _explained(where: str) -> Iterator[None]:
    """Turn what a damaged block makes its readers raise into a `CovshiftError`."""
    try:
        yield
    except (OSError, EOFError, ValueError, KeyError, TypeError, IndexError, zlib.error, SafetensorError) as error:
        raise CovshiftError(f"{where} is damaged ({type(error).__name__}: {error}); put a whole copy back") from error


def _small(numbers: NDArray[np.int64]) -> NDArray[Any]:
    """Return numbers from 0 in the smallest type that holds all of them."""
    return numbers.astype(np.min_scalar_type(int(numbers.max(initial=0))))
