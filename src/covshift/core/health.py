"""`Health`: what an adapter does at the moment, and why."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from covshift.core.forecasting import StreamForecast

State = Literal["following", "holding", "reset"]
"""What an adapter does: it follows a shift, leaves the model as it is, or has just started anew."""

_SLIGHT = 0.02  # of the way to what was seen, in the mean of the places: not worth to be called following


@dataclass(frozen=True)
class Health:
    """What an adapter does at the moment, and why.

    Attributes:
        state: "following" a shift, "holding" the model as it is, or "reset" after a sudden change.
        why: the reason, in words.
        images: the number of images that count.
        trust: how much of what each place has seen is followed, from 0 to 1, by path.
        shift: how far each place is from its source, in standard deviations, by path.
        classes: the share of each class in what is remembered, as the model says; empty where that is not known.
        forecast: the errors to expect of the model as it is and as it is adapted now, or that these cannot be told;
            None without a predictor, or without images.
    """

    state: State
    why: str
    images: float
    trust: Mapping[str, float] = field(repr=False)
    shift: Mapping[str, float] = field(repr=False)
    classes: tuple[float, ...] = field(default=(), repr=False)
    forecast: StreamForecast | None = field(default=None, repr=False)


def judge(
    images: float, trust: Mapping[str, float], shift: Mapping[str, float], *, classes: tuple[float, ...], reset: bool
) -> Health:
    """Return the health of an adapter that has seen so many images and trusts its places so much."""
    state: State = "following" if sum(trust.values()) > _SLIGHT * len(trust) else "holding"
    if reset:
        state, why = "reset", "the images changed suddenly; what was remembered of those before is forgotten"
    elif not images:
        why = "no images were seen yet"
    elif state == "holding":
        why = "the images differ from the source by no more than chance and their classes explain"
    else:
        why = "the images differ from the source by more than chance and their classes explain"
    return Health(state, why, images, trust, shift, classes)
