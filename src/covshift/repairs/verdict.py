"""`judge`: whether a model should be repaired for some images, and why; all rules are here."""

import math
from typing import Literal, NamedTuple

import numpy as np
from torch import Tensor

from covshift.shift.forecast.forecast import Forecast
from covshift.shift.forecast.observe import Observation
from covshift.support.arrays import Array
from covshift.support.checks import check_kind, check_number
from covshift.support.errors import CovshiftError

Word = Literal["repair", "nothing to repair", "cannot help"]

FEWEST = 32
"""Number of images below which their statistics are mostly chance."""

_FEW, _UNEVEN, _LEFT_UNEVEN = 0.7, 0.95, 0.85
"""Parts of the effective classes that chance leaves at least, below which answers are of few classes, or uneven, so
that only the first half of the layers is adapted; and uneven after a shift that was undone in part."""

_UNDONE = 1.5
"""Factor by which adapting the first half of the layers makes the answers those of more classes, where a shift had
confused the model."""

_CHANGED = 0.03
"""Share of answers that adapting must change, where no error is predicted; an error cannot fall by more."""

_WORTH = 0.01
"""Smallest fall of the predicted error that is worth a repair."""

_USUAL = 0.03
"""Difference of a predicted error from that on clean images that says nothing: predictions are off by as much."""

_MIXED = "the images seem to be of few classes, or of some much more than of others"


class Verdict(NamedTuple):
    """A decision in words.

    Attributes:
        word: "repair", "nothing to repair" or "cannot help".
        reason: the sentence that says why.
        uneven: whether the images seem to be of some classes more than of others, so that only the first half of the
            layers, which knows little of classes, is adapted.
    """

    word: Word
    reason: str
    uneven: bool = False

    @property
    def good(self) -> bool:
        """Whether a repair is advised."""
        return self.word == "repair"


def check_enough(images: int) -> None:
    """Raise a `CovshiftError` if there are too few images to take statistics of."""
    if images < FEWEST:
        raise CovshiftError(
            f"expected at least {FEWEST} images to take statistics of, got {images}; add more of the same kind"
        )


def judge(
    seen: Observation,
    half: Tensor,
    forecast: Forecast | None = None,
    *,
    clean: float = 0.0,
    usual: Tensor | None = None,
) -> Verdict:
    """Return whether adapting to some images is right.

    Images of few classes have the statistics of these classes, and adapting to them makes a model worse. A model
    gives few answers also where a shift confuses it; but the first half of its layers knows little of classes, so that
    adapting these alone undoes much of a shift, and leaves few classes few. Where the answers are then still uneven,
    more is not adapted. The predicted errors decide or, without errors that can be relied on, whether the adapted model
    is surer, or was confused before: without a shift it is less sure.

    Args:
        seen: the answers of the model as it is and adapted, without labels.
        half: the logits of the model with the first half of its layers adapted.
        forecast: the errors that are predicted; None where there was nothing to learn that from.
        clean: the error on clean images, for a forecast to be compared with.
        usual: the share of each class among clean images; None for all classes alike.
    """
    check_kind(seen, Observation, "seen", "an Observation")
    check_kind(half, Tensor, "half", "a tensor of logits")
    check_kind(forecast, Forecast | None, "forecast", "a Forecast")
    check_number(clean, "clean", 0)
    check_kind(usual, Tensor | None, "usual", "a tensor with the share of each class")
    if half.shape != seen.plain.shape or (usual is not None and usual.shape != half.shape[1:]):
        raise CovshiftError("expected half, and usual if given, for the images and classes of seen, got other shapes")
    images = len(half)
    check_enough(images)
    expected = _left_by_chance(images, np.ones(half.shape[1]) if usual is None else usual.double().numpy())
    mix = effective_classes(half) / expected
    confused = effective_classes(half) >= _UNDONE * effective_classes(seen.plain) and (
        mix >= _UNEVEN or _change_of_confidence(seen) >= 0
    )
    uneven = mix < (_LEFT_UNEVEN if confused else _UNEVEN)
    skewed = forecast is not None and forecast.classes is not None and forecast.classes.skewed
    if mix < _FEW or skewed:
        return Verdict(
            "cannot help",
            f"{_MIXED} ({_top(half):.0%} of the answers are the same one), and their statistics those of the classes "
            "and not of a shift",
            uneven=True,
        )
    adapted = half if uneven else seen.adapted
    if forecast is not None and forecast.sure:
        verdict = _by_errors(forecast, images, clean, _sure(seen.plain, adapted))
        if not verdict.good or not uneven:  # the predicted error is that of all layers adapted
            return verdict._replace(uneven=uneven)
    word, reason, _ = _by_confidence(seen, adapted, uneven=uneven, confused=confused)
    doubt = "" if forecast is None or forecast.sure else f"; this goes without the predicted errors: {forecast.why}"
    return Verdict(word, reason + doubt, uneven)


def _by_errors(forecast: Forecast, images: int, clean: float, sure: str) -> Verdict:
    """Return the verdict on images of the usual classes by the errors that are predicted for them."""
    plain, adapted = forecast.plain.error, forecast.adapted.error
    change = f"the predicted error is {plain:.1%}, and {adapted:.1%} adapted; it is {clean:.1%} on clean images"
    chance = 2 * math.sqrt(clean * (1 - clean) / images)  # two standard errors of a share
    if adapted < plain - _WORTH and plain > clean + chance:
        doubt = f"; {forecast.advice.reason}" if forecast.advice.action == "label" else ""
        return Verdict("repair", change + doubt)
    if plain <= clean + max(chance, _USUAL):
        return Verdict("nothing to repair", f"{change}, and {sure}")
    return Verdict("cannot help", change)


def _by_confidence(seen: Observation, adapted: Tensor, *, uneven: bool, confused: bool) -> Verdict:
    """Return the verdict by the answers of the model as it is, and adapted as far as the mix of classes allows."""
    changed = (seen.plain.argmax(1) != adapted.argmax(1)).double().mean().item()
    if changed < _CHANGED:
        return Verdict("nothing to repair", f"adapting changes {changed:.1%} of the answers")
    sure = _sure(seen.plain, adapted)
    if confidence(adapted) < confidence(seen.plain) and not confused:
        if uneven:
            return Verdict("cannot help", f"{_MIXED}, and {sure}, though only in the first half of its layers")
        return Verdict("nothing to repair", f"{sure}, as it does without a shift")
    moved = f"the images have moved by {seen.distance.average:.2f}, and {sure}"
    return Verdict(
        "repair", f"{moved}; {_MIXED}, and only the first half of the layers is adapted" if uneven else moved
    )


def _change_of_confidence(seen: Observation) -> float:
    """Return by how much the fully adapted model is surer, with a standard error in its favour."""
    change = _sureness(seen.adapted) - _sureness(seen.plain)
    return (change.mean() + change.std() / math.sqrt(len(change))).item()


def _sure(plain: Tensor, adapted: Tensor) -> str:
    return f"adapting changes the model's average confidence from {confidence(plain):.0%} to {confidence(adapted):.0%}"


def _left_by_chance(images: int, mix: Array) -> float:
    """Return the effective classes that so many images of a mix have at least, 99 times out of 100."""
    drawn = np.random.default_rng(0).multinomial(images, mix / mix.sum(), size=1000)
    return float(np.quantile(np.exp(_entropy(drawn)), 0.01))


def _top(logits: Tensor) -> float:
    return logits.argmax(1).bincount().max().item() / len(logits)


def confidence(logits: Tensor) -> float:
    """Return the average probability of the answers.

    >>> import torch
    >>> confidence(torch.zeros(3, 4))
    0.25
    """
    return _sureness(logits).mean().item()


def _sureness(logits: Tensor) -> Tensor:
    return logits.double().softmax(1).amax(1)


def effective_classes(logits: Tensor) -> float:
    """Return the number of equally frequent classes that a mix of answers is worth: exp of its entropy.

    >>> import torch
    >>> effective_classes(torch.eye(4))
    4.0
    """
    return math.exp(_entropy(_counts(logits)))


def _counts(logits: Tensor) -> Array:
    """Return how often each class is the answer."""
    return logits.argmax(1).bincount(minlength=logits.shape[1]).numpy()


def _entropy(counts: Array) -> Array:
    """Return the entropy of counts along their last axis."""
    from scipy.special import entr  # all of scipy.stats would take half as long to import as torch

    entropy: Array = entr(counts / counts.sum(axis=-1, keepdims=True)).sum(axis=-1)
    return entropy
