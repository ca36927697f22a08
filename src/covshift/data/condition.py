"""`Condition`: the state of the images, which is clean, one corruption at one severity, or a mixture of all."""

from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from covshift.corruptions import category, names
from covshift.corruptions.apply import check_severity
from covshift.support.checks import check_kind, check_number
from covshift.support.errors import CovshiftError


class _Fields(NamedTuple):
    corruption: str
    severity: int


class Condition(_Fields):
    """A corruption at a severity; `CLEAN` and `MIXED` have severity 0.

    >>> str(Condition("fog", 3)), str(CLEAN)
    ('fog/3', 'clean/0')
    """

    __slots__ = ()

    def __new__(cls, corruption: str, severity: int) -> Self:
        """Check the types of both; whether the corruption is known is checked where images are made."""
        check_kind(corruption, str, "corruption", "a name such as 'fog'")
        check_number(severity, "severity", 0, whole=True)
        return super().__new__(cls, corruption, severity)

    def __str__(self) -> str:
        return f"{self.corruption}/{self.severity}"


CLEAN = Condition("clean", 0)
MIXED = Condition("mixed", 0)
"""The condition in which every image has a corruption of its own: the paper's control, where adapting must not help."""

SEQUENCE = Condition("sequence", 0)
"""A stream that goes through several conditions, one after the other; see `covshift.data.sequences`."""

SEVERITIES = (1, 2, 3, 4, 5)
TEST = tuple(Condition(name, severity) for name in names("test") for severity in SEVERITIES)


def parse_condition(text: str) -> Condition:
    """Return the condition that a text such as "fog/3", "clean" or "mixed" names.

    >>> parse_condition("fog/3"), parse_condition("clean")
    (Condition(corruption='fog', severity=3), Condition(corruption='clean', severity=0))
    """
    check_kind(text, str, "condition", "a text such as 'fog/3'")
    for condition in (CLEAN, MIXED):
        if text in (str(condition), condition.corruption):
            return condition
    name, _, level = text.partition("/")
    category(name)
    if not level.isdigit():
        raise CovshiftError(f"expected a condition such as fog/3, got {text!r}")
    return Condition(name, check_severity(int(level)))


def draw_mixed(images: int, among: tuple[Condition, ...], seed: int) -> NDArray[np.intp]:
    """Draw the condition that each image gets in `MIXED`; conditions get equally many images, give or take one.

    >>> sorted(draw_mixed(4, TEST[:2], seed=0).tolist())
    [0, 0, 1, 1]
    """
    places = np.arange(images) % len(among)
    return np.random.default_rng([seed, images]).permutation(places)
