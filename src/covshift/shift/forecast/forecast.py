"""`Forecast`: the errors to expect on images without labels, how sure that is, and what to do about it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from covshift.shift.distance import Distance

Action = Literal["nothing", "adapt", "label"]


class Prediction(NamedTuple):
    """A predicted error, from 0 to 1, and an interval that should hold it 19 times out of 20."""

    error: float
    low: float
    high: float


class ClassMix(NamedTuple):
    """The share of each class among some images, as far as a model's answers tell.

    Attributes:
        shares: the estimated share of each class, which sum to 1.
        usual: the share of each class among the clean images that were learned from.
        skewed: whether the two differ by more than chance and a shift of the images explain.
    """

    shares: tuple[float, ...]
    usual: tuple[float, ...]
    skewed: bool


class DistanceScale(NamedTuple):
    """What to compare distances with.

    Attributes:
        chance: the distance that as many clean images have by chance, per layer and averaged.
        below: the share of calibration conditions in which each layer has moved less, by path.
        share: the share of calibration conditions whose average distance is less.
    """

    chance: Distance
    below: Mapping[str, float]
    share: float


class Advice(NamedTuple):
    """What to do about a shift.

    Attributes:
        action: "nothing", "adapt" or "label": label some images to find out.
        reason: a sentence that says why.
        label: with "label", the positions of the images to label, the most telling first; else empty.
    """

    action: Action
    reason: str
    label: tuple[int, ...] = ()


NO_ADVICE = Advice("nothing", "")
"""The advice where nothing was asked."""


@dataclass(frozen=True)
class Forecast:
    """The predicted errors on shifted images, without and with adaptation.

    A forecast that is not sure names its best guess as the error, and an interval from 0 to 1: the images are unlike
    all that the predictor was calibrated on, and the guess may be off by any amount.

    Attributes:
        plain: the error of the model as it is.
        adapted: the error of the model fully adapted to these images; that of the model as it is where there is
            nothing to adapt.
        distance: the normalised Wasserstein distance from the source, per layer and averaged.
        images: the number of images that this was measured on.
        sure: whether the predictions can be relied on; if not, the answer is "cannot tell".
        why: the reason for not being sure, in words; empty otherwise.
        classes: the classes that the images show; None where that is not known.
        advice: what to do.
        scale: what to compare the distance with; None where that is not known.
    """

    plain: Prediction
    adapted: Prediction
    distance: Distance
    images: int
    sure: bool = True
    why: str = ""
    classes: ClassMix | None = None
    advice: Advice = NO_ADVICE
    scale: DistanceScale | None = None
