"""How far one clean image is from the source at each place, by which chance is measured."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from covshift.core.places import Place
from covshift.core.policies import Numbers
from covshift.core.source import Source


class Spreads(NamedTuple):
    """How far one clean image is from the source at some places, in variances of clean images.

    Counted are its mean and its standard deviation. Classes are taken to explain the same share of both.

    Attributes:
        image: how far any image is, [places].
        known: how far one is whose class is known.
        factor: by how much mean and standard deviation are more than the mean alone.
    """

    image: Numbers
    known: Numbers
    factor: Numbers

    @classmethod
    def of(cls, places: Sequence[Place], source: Source) -> "Spreads":
        """Return the spreads at some places, which are kept with the source."""
        name = tuple(place.path for place in places)
        if name not in source.derived:
            source.derived[name] = cls._of(places, source)
        found: Spreads = source.derived[name]
        return found

    @classmethod
    def _of(cls, places: Sequence[Place], source: Source) -> "Spreads":
        slopes = {} if source.classes is None else source.classes.slopes
        means = np.array([place.relative("spread", source.spread[place.path]) for place in places])
        deviations = np.array([place.relative("spread of std", source.spread_std[place.path]) for place in places])
        left = [
            place.relative("unexplained", slopes[place.path].unexplained) if place.path in slopes else each
            for place, each in zip(places, means, strict=True)
        ]
        factor = 1 + np.divide(deviations, means, out=np.zeros_like(means), where=means > 0)
        return cls(means + deviations, np.array(left) * factor, factor)
