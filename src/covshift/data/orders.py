"""Orders in which the images of a set come: shuffled, or in runs of a class, as cameras see them."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from covshift.data.readable import Labels
from covshift.support.checks import brief
from covshift.support.errors import CovshiftError, unknown

Order = str
"""The name of an order: shuffled, label, source, dirichlet:0.1 or runs:20."""

PLAIN = ("shuffled", "label", "source")
"""Orders without a number."""

ORDERS = (*PLAIN, "dirichlet:0.1", "runs:20")
"""All orders, with examples of the numbers that two of them take."""


class OrderRule(NamedTuple):
    """An order by its name and its number, if it takes one."""

    name: str
    number: float = 0

    def __str__(self) -> str:
        return f"{self.name}:{self.number:g}" if self.number else self.name


def parse_order(text: object) -> OrderRule:
    """Return the order that a text names.

    >>> parse_order("dirichlet:0.10"), str(parse_order("runs:20"))
    (OrderRule(name='dirichlet', number=0.1), 'runs:20')
    """
    if not isinstance(text, str):
        raise unknown("order", brief(text), ORDERS)
    name, _, written = text.partition(":")
    if f"{name}:" not in ("dirichlet:", "runs:"):
        if text not in PLAIN:
            raise unknown("order", text, ORDERS)
        return OrderRule(name)
    try:
        number = float(written)
    except ValueError:
        number = math.nan
    if name == "runs" and not (number >= 1 and number.is_integer()):
        raise CovshiftError(f"expected the length of a run as a whole number from 1, such as runs:20, got {text!r}")
    if not 0 < number < math.inf:
        raise CovshiftError(f"expected a concentration above 0, such as dirichlet:0.1, got {text!r}")
    return OrderRule(name, number)


def arrange(indices: NDArray[np.intp], labels: Labels, order: Order, seed: list[int]) -> NDArray[np.intp]:
    """Return shuffled indices in an order.

    - label: sorted by class; source: as the data set has them.
    - dirichlet:γ: each class is split over as many slots as there are classes, in shares drawn from Dirichlet(γ); the
      slots come in turn, and in a slot one class after the other. The smaller γ, the longer a class lasts.
    - runs:LENGTH: every class in runs of this length, the runs shuffled.

    Args:
        indices: the images, shuffled.
        labels: the classes of all images of the data set.
        order: the name of the order.
        seed: the seed of what is drawn.
    """
    rule = parse_order(order)
    if rule.name == "shuffled":
        return indices
    if rule.name in ("label", "source"):
        in_order = np.sort(indices)
        return in_order if rule.name == "source" else in_order[np.argsort(labels[in_order], kind="stable")]
    rng = np.random.default_rng(seed)
    classes = [indices[labels[indices] == label] for label in np.unique(labels[indices])]
    pieces = _in_slots(classes, rule.number, rng) if rule.name == "dirichlet" else _in_runs(classes, rule.number, rng)
    return np.concatenate([*pieces, indices[:0]])


def arrange_again(indices: list[int], labels: Labels, order: Order, seed: int, time: int) -> list[int]:
    """Return the same images in the same order, drawn anew, for when all were shown and a stream goes on.

    Args:
        indices: the images in the order of the first time.
        labels: the classes of all images of the data set.
        order: the name of the order.
        seed: the seed of the first time.
        time: how many times all images were shown; the first order is that of time 0.
    """
    if time == 0:
        return indices
    shuffled = np.random.default_rng([seed, time]).permutation(np.sort(np.asarray(indices, np.intp)))
    return [int(index) for index in arrange(shuffled, labels, order, [seed, time, 1])]


def _in_slots(
    classes: list[NDArray[np.intp]], concentration: float, rng: np.random.Generator
) -> list[NDArray[np.intp]]:
    """Return pieces of classes, those of the first slot first."""
    slots: list[list[NDArray[np.intp]]] = [[] for _ in classes]
    for images in classes:
        shares = rng.dirichlet([concentration] * len(slots))
        for slot, piece in zip(slots, np.split(images, _cuts(shares, len(images))), strict=True):
            slot.append(piece)
    return [slot[place] for slot in slots for place in rng.permutation(len(slot))]


def _cuts(shares: NDArray[np.float64], images: int) -> NDArray[np.intp]:
    cuts: NDArray[np.intp] = np.rint(shares.cumsum()[:-1] * images).astype(np.intp)
    return cuts


def _in_runs(classes: list[NDArray[np.intp]], length: float, rng: np.random.Generator) -> list[NDArray[np.intp]]:
    """Return runs of classes in a random order."""
    size = int(length)
    runs = [images[start : start + size] for images in classes for start in range(0, len(images), size)]
    return [runs[place] for place in rng.permutation(len(runs))]
