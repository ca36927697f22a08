"""What the classes of the images at hand probably are, before the model has answered.

A shift hardly changes from one batch to the next. What the mean of a batch differs by from the images that are
remembered is therefore taken for its classes, as far as it lies in the directions that classes differ in: at each
place a Bayesian linear regression, whose prior is what the order of the stream lets expect.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from covshift.core.classes import LEAST, Classes
from covshift.core.live.order import RECENT, Order
from covshift.core.moments import Moments, widen
from covshift.core.places import Place
from covshift.core.reading import Reader

_SETTLING = 4.0  # times chance: what is remembered was seen while the layers before were still settling


class Outlook(NamedTuple):
    """What is expected of the classes of the images at hand.

    Attributes:
        remembered: the mean embedding of the images that are remembered, from the source's.
        coming: that of the images at hand.
        share: the share of these in what is remembered after them.
        doubt: the share of what classes do that is not known of them.
        belief: how far the answers by which they are known are believed.
        spread: how far their mean embedding may be from that, in variances of the classes; 0 if it is not to be read.
        chance: the variance by chance of how their mean differs, in variances of the mean of one image.
        settled: whether enough is remembered to notice a change of domain.
    """

    remembered: Tensor
    coming: Tensor
    share: float
    doubt: float
    belief: float
    spread: float
    chance: float
    settled: bool

    @classmethod
    def of(cls, order: Order, classes: Classes, images: int, share: float, belief: float = 1.0) -> "Outlook":
        """Return the outlook on so many images, given what the stream has shown, and how far that is believed."""
        spread = chance = 0.0
        doubt = order.doubt
        # Where classes share directions, these are also directions of what a shift does.
        if classes.separate and images > 1:
            if not order.images:
                doubt = 1.0  # the last answers, by which they are known, are those of another domain
            elif order.batches > 1:
                of_one_class = float(classes.covariance.trace())
                spread = min(1.0, max(1 / images, order.length / of_one_class)) * doubt
                chance = 1 / images + _SETTLING / order.images
        mix, expected = order.mix * belief, order.expected * belief
        return cls(mix, expected, share, doubt, belief, spread, chance, order.images > 2 * RECENT)

    @property
    def offset(self) -> Tensor:
        """The mean embedding of what is remembered after these images, from the source's."""
        return self.remembered * (1 - self.share) + self.coming * self.share

    def difference(self, place: Place, before: Moments, batch: Tensor, classes: Classes) -> Tensor:
        """Return how far the images at hand are from what is expected of them, given those that are remembered.

        Args:
            place: the place.
            before: what is remembered there.
            batch: the mean of the images at hand.
            classes: what classes do.
        """
        slopes = classes.slopes[place.path]
        mean, var = place.wide_clean
        class_mean = mean + self.remembered @ slopes.mean
        class_var = var + mean.square() + self.remembered @ slopes.second - class_mean.square()
        # The shift may have shrunk or stretched what classes do.
        stretch = ((widen(before.var) + place.eps) / (torch.maximum(class_var, LEAST * var) + place.eps)).sqrt()
        expected = (self.coming - self.remembered) @ slopes.mean
        return (widen(batch) - widen(before.mean)) / stretch - expected

    def read(self, difference: Tensor, reader: Reader) -> Tensor:
        """Return the mean embedding of the images at hand that a difference shows, from the source's."""
        return self.coming + reader.read(difference, self.spread, self.chance)

    def surprise(self, difference: Tensor, reader: Reader) -> float:
        """Return how large a difference is, where 1 is what chance and classes make it in the mean."""
        return reader.surprise(difference, self.spread, self.chance)
