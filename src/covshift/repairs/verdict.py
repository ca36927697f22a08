"""`judge`: whether a model should be repaired for some images, and why; all rules are here."""

from typing import Literal, NamedTuple

from torch import Tensor

from covshift.shift.forecast.observe import Observation
from covshift.shift.forecast.predictor import Forecast

Word = Literal["repair", "nothing to repair", "cannot help"]

FEWEST = 32
"""Number of images below which their statistics are mostly chance."""

_FEW, _UNEVEN = 0.7, 0.9
"""Shares of the expected classes below which a mix of answers is one of few classes, or an uneven one."""

_LESS_SURE = 0.015
"""Loss of confidence, from 0 to 1, that adapting to clean images costs and to shifted ones does not."""

_CHANGED = 0.03
"""Share of answers that adapting changes also where there is no shift."""

_WORTH = 0.01
"""Smallest fall of the predicted error that is worth a repair."""

_USUAL = 0.03
"""Difference of a predicted error from that on clean images that says nothing."""


class Verdict(NamedTuple):
    """A decision in words.

    Attributes:
        word: "repair", "nothing to repair" or "cannot help".
        reason: the sentence that says why.
    """

    word: Word
    reason: str

    @property
    def good(self) -> bool:
        """Whether a repair is advised."""
        return self.word == "repair"


_USUAL = 0.03
"""Difference of a predicted error from that on clean images that says nothing."""


def judge(
    seen: Observation,
    half: Tensor,
    forecast: Forecast | None = None,
    *,
    clean: float | None = None,
    usual: Tensor | None = None,
) -> Verdict:
    """Return whether adapting to some images is right.

    Images of few classes have the statistics of these classes, and adapting to them makes a model worse. A model
    gives few answers also where a shift confuses it; but the first half of its layers knows little of classes, so that
    adapting these alone undoes much of a shift, and leaves few classes few. Among the rest, the predicted errors
    decide or, without these, whether the adapted model is surer.

    Args:
        seen: the answers of the model as it is and adapted, without labels.
        half: the logits of the model with the first half of its layers adapted.
        forecast: the errors that are predicted; None where there was nothing to learn that from.
        clean: the error on clean images, where there is a forecast.
        usual: the logits of the model on clean images, for the usual mix of classes; None for all classes alike.
    """
    images, classes = half.shape
    if images < FEWEST:
        return Verdict("cannot help", f"{images} images are too few, and their statistics mostly chance")
    before, after = confidence(seen.plain), confidence(seen.adapted)
    sure = f"adapting changes the model's average confidence from {before:.0%} to {after:.0%}"
    expected = min(float(classes), images / 2) if usual is None else effective_classes(usual)
    mix, confused = effective_classes(half) / expected, effective_classes(seen.plain) < _FEW * expected
    if mix < _FEW or (mix < _UNEVEN and after < before - 2 * _LESS_SURE):
        return Verdict(
            "cannot help",
            f"the images seem to be of few classes, or of some much more than of others ({_top(half):.0%} of the "
            "answers are the same one), and their statistics those of the classes and not of a shift",
        )
    if forecast is not None:
        plain, adapted = forecast.plain.error, forecast.adapted.error
        change = f"the predicted error is {plain:.1%}, and {adapted:.1%} adapted"
        if adapted < plain - _WORTH:
            return Verdict("repair", change)
        if clean is not None and plain > clean + _USUAL:
            return Verdict("cannot help", f"{change}; it is {clean:.1%} on clean images")
        return Verdict("nothing to repair", f"{change}; {sure}")
    changed = (seen.plain.argmax(1) != seen.adapted.argmax(1)).double().mean().item()
    if changed < _CHANGED:
        return Verdict("nothing to repair", f"adapting changes {changed:.1%} of the answers")
    if after <= before - _LESS_SURE and not confused:
        return Verdict("nothing to repair", f"{sure}, as it does without a shift")
    return Verdict("repair", f"the images have moved by {seen.distance.average:.2f}, and {sure}")


def _top(logits: Tensor) -> float:
    return logits.argmax(1).bincount().max().item() / len(logits)


def confidence(logits: Tensor) -> float:
    """Return the average probability of the answers.

    >>> import torch
    >>> confidence(torch.zeros(3, 4))
    0.25
    """
    return logits.double().softmax(1).amax(1).mean().item()


def effective_classes(logits: Tensor) -> float:
    """Return the number of equally frequent classes that a mix of answers is worth: exp of its entropy.

    >>> import torch
    >>> effective_classes(torch.eye(4))
    4.0
    """
    shares = logits.argmax(1).bincount().double() / len(logits)
    return shares[shares > 0].log().neg().mul(shares[shares > 0]).sum().exp().item()
