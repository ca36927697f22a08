"""A change of domain that shows while a pass lasts, in time to answer its images without what was remembered.

A batch whose mean differs from the remembered ones at the first places by far more than chance and its classes explain
is of a new domain. Corrected by the old one it would be answered worse than by the model as it is.
"""

from covshift.core.live.order import FIRST
from covshift.core.policies import Memory

CHANGE = 4.0
"""How many times chance images must differ from those remembered to be taken for those of a new domain."""

_TIMES = 2  # as much as after a pass, since a batch of one class differs from those before it without a change, too

_PLACES = 3  # of the first ones, before a change is believed: a single one may be of a few channels

_NAME = "arrival"


def meet(memory: Memory, path: str, surprise: float) -> None:
    """Note how far the images of this pass are from those remembered at a place, where 1 is what is expected."""
    surprises: dict[str, float] = memory.derived.setdefault(_NAME, {})
    if path in surprises or len(surprises) < FIRST:
        surprises[path] = surprise


def has_changed(memory: Memory) -> bool:
    """Return whether the images of this pass are those of a new domain, by the places that they have passed so far."""
    surprises = memory.derived.get(_NAME, {})
    return len(surprises) >= _PLACES and sum(surprises.values()) > _TIMES * CHANGE * len(surprises)
