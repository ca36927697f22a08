"""Advice: nothing, adapt, or label some images; and which of them to label."""

import math

import torch
from torch import Tensor

from covshift.shift.forecast.doubt import Band
from covshift.shift.forecast.forecast import Advice

WORTH = 0.01
"""Smallest fall of the error that is worth adapting for."""

_USUAL = 0.05  # rise of the error above that on clean images that needs nothing to be done
_WITHIN = 0.1  # points of error that the labels should settle it to
_SIGMAS = 1.96
_FEWEST = 20


def advise(plain: float, gain: Band, clean: float, chances: Tensor, firsts: Tensor) -> Advice:
    """Return what to do about images on which the errors are known well enough.

    Args:
        plain: the predicted error of the model as it is.
        gain: the predicted fall of the error by adapting.
        clean: the error on clean images.
        chances: the chance of each answer to be wrong.
        firsts: the positions of the images that are not repeats of earlier ones.
    """
    if gain.low > WORTH:
        low, high = 100 * gain.low, 100 * gain.high
        return Advice("adapt", f"adapting should lower the error by {low:.1f} to {high:.1f} points")
    if plain <= clean + _USUAL:
        return Advice("nothing", f"the error is about that on clean images, {100 * clean:.1f} %")
    if gain.high < WORTH:
        return Advice("nothing", "adapting would not lower the error")
    return label_some("whether adapting would lower the error is not certain", plain, chances, firsts)


def label_some(reason: str, error: float, chances: Tensor, firsts: Tensor) -> Advice:
    """Return the advice to label as many images as settle the error to 10 points, spread from sure to unsure ones.

    Args:
        reason: the sentence that says why.
        error: the error that is thought likely; 0.5 needs most labels.
        chances: the chance of each answer to be wrong.
        firsts: the positions of the images that are not repeats of earlier ones.
    """
    wanted = math.ceil(error * (1 - error) * (_SIGMAS / _WITHIN) ** 2)
    number = min(len(firsts), max(_FEWEST, wanted))
    ranks = ((torch.arange(number, dtype=torch.float64) + 0.5) * len(firsts) / number).long()
    chosen = firsts[torch.argsort(chances[firsts], stable=True)[ranks]]
    return Advice("label", reason, tuple(chosen.tolist()))
