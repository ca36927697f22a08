"""`judge`: whether a model should be repaired for some images, and why; all rules are here."""

import math
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from covshift.shift.forecast.forecast import Forecast
from covshift.shift.forecast.judgement import FEWEST
from covshift.shift.forecast.observe import Observation
from covshift.support.arrays import Array
from covshift.support.checks import check_kind, check_number
from covshift.support.errors import CovshiftError

Word = Literal["repair", "nothing to repair", "cannot help"]

_EVEN = 0.95
"""Part of the effective classes that chance leaves at least, from which answers are even."""

_UNDONE = 1.5
"""Factor by which adapting the first half of the layers makes the answers those of more classes, where a shift had
confused the model."""

_USUAL = 0.03
"""Difference of a predicted error from that on clean images that says nothing: predictions are off by as much."""

_WORTH = 0.01
"""Smallest fall of the predicted error that is worth a repair by itself."""

_CHANGED = 0.03
"""Share of the answers that adapting must change: the error cannot fall by more."""

_CLEAR = 1.64
"""Number of standard errors that chance exceeds to one side one time out of 20."""


class Verdict(NamedTuple):
    """A decision in words.

    Attributes:
        word: "repair", "nothing to repair" or "cannot help".
        reason: the sentence that says why.
        half: whether only the first half of the layers, which knows little of classes, is to be adapted.
    """

    word: Word
    reason: str
    half: bool = False

    @property
    def good(self) -> bool:
        """Whether a repair is advised."""
        return self.word == "repair"


def check_enough(different: int, shown: int | None = None) -> None:
    """Raise a `CovshiftError` if there are too few images to take statistics of.

    Args:
        different: the number of different images.
        shown: the number with repeats; None where no repeats are known of.
    """
    if different < FEWEST:
        which, repeats = "", ""
        if shown is not None and different < shown:
            which, repeats = "different ", f" among {shown}, the others being exact repeats"
        raise CovshiftError(
            f"expected at least {FEWEST} {which}images to take statistics of, got {different}{repeats}; add more of "
            "the same kind"
        )


class Gain(NamedTuple):
    """By how much the error falls from one model to another, as both together believe.

    Attributes:
        fall: the mean over the images.
        uncertainty: its standard error.
    """

    fall: float
    uncertainty: float

    def is_sure(self, *, clearly: bool = False) -> bool:
        """Return whether the error falls by more than a standard error; or clearly, as chance does 1 time out of 20."""
        return self.fall > (_CLEAR if clearly else 1) * self.uncertainty

    @property
    def possible(self) -> bool:
        """Whether it does not rise by more than a standard error."""
        return self.fall >= -self.uncertainty


def believed_gain(before: Tensor, after: Tensor, repeats: float = 1.0) -> Gain:
    """Return by how much the error falls from one model to another, if both are believed alike.

    Each class is taken to be as likely as the two models think on average. What they agree on cancels out.

    Args:
        before: the logits of the one model.
        after: the logits of the other one, for the same images.
        repeats: how often each different image was shown, which makes none of it more certain.

    >>> import torch
    >>> one, other = torch.tensor([[2.0, 0.0], [2.0, 0.0]]), torch.tensor([[9.0, 0.0], [0.0, 9.0]])
    >>> believed_gain(one, other).fall > 0 > believed_gain(other, one).fall
    True
    """
    return _gain_by((before.double().softmax(1) + after.double().softmax(1)) / 2, before, after, repeats)


def _gain_by(beliefs: Tensor, before: Tensor, after: Tensor, repeats: float) -> Gain:
    """Return by how much the error falls from one model to another, by the chances of each class, [images, classes]."""
    old, new = (beliefs.gather(1, logits.argmax(1, keepdim=True)) for logits in (before, after))
    return _mean_gain(new - old, repeats)


def _mean_gain(each: Tensor, repeats: float) -> Gain:
    """Return the mean of the gains of each image, with its standard error."""
    return Gain(each.mean().item(), each.std().item() * math.sqrt(repeats / len(each)))


def judge(
    seen: Observation,
    half: Tensor,
    forecast: Forecast | None = None,
    *,
    clean: float = 0.0,
    usual: Tensor | None = None,
    has_statistics: bool = True,
) -> Verdict:
    """Return whether adapting to some images is right, and of how many layers.

    Where the model as it is and the adapted one disagree, neither is to be trusted alone: "repair" needs an error that
    falls if both are believed alike. Images of few classes have the statistics of these classes; adapting all layers
    to them makes a model worse, and its answers less sure. The first half of the layers knows little of classes, so
    that adapting these alone undoes much of a shift, and leaves few classes few: it is what the evenness of the answers
    is judged by.

    Even answers speak for a shift where those of the model as it is are of few classes: that one is confused, and is
    not believed. So do even answers that get surer by adapting all layers, since without a shift they get less sure:
    then it is enough that the error is not believed to rise. But a network without BatchNorm may know of classes in all
    of its layers, as a transformer does, and answer evenly when it is adapted to a single class. So even answers speak
    for nothing where the forecast finds few classes nor, of such a network, where the model that is adapted to what the
    classes do not explain contradicts.

    A forecast that can be relied on and finds no few classes knows more than what is believed, since networks differ in
    how sure they are of wrong answers: where it promises a clear fall of the error, all layers are adapted. All rules,
    in words: docs/howto/repair.md.

    Args:
        seen: the answers of the model as it is and adapted, without labels.
        half: the logits of the model with the first half of its layers adapted.
        forecast: the errors that are predicted; None where there was nothing to learn that from.
        clean: the error on clean images, for a forecast to be compared with.
        usual: the share of each class among clean images; None for all classes alike.
        has_statistics: whether the model holds statistics of its own, as those with BatchNorm do.
    """
    check_kind(seen, Observation, "seen", "an Observation")
    check_kind(half, Tensor, "half", "a tensor of logits")
    check_kind(forecast, Forecast | None, "forecast", "a Forecast")
    check_number(clean, "clean", 0)
    check_kind(usual, Tensor | None, "usual", "a tensor with the share of each class")
    if half.shape != seen.plain.shape or (usual is not None and usual.shape != half.shape[1:]):
        raise CovshiftError("expected half, and usual if given, for the images and classes of seen, got other shapes")
    images = seen.different
    check_enough(images, len(half))
    few = _is_skewed(forecast) is True
    classes, mix = effective_classes(half), torch.ones(half.shape[1]) if usual is None else usual
    even = not few and classes >= _EVEN * _left_by_chance(images, mix)
    further = believed_gain(half, seen.adapted, seen.repeats)
    reliable = forecast if forecast is not None and forecast.sure else None
    high = reliable is not None and reliable.plain.error > clean + max(_chance(clean, images), _USUAL)
    promised = reliable is not None and high and _is_skewed(reliable) is False and _predicted_fall(reliable) > _USUAL
    in_part = not (promised or (further.possible if even else further.is_sure(clearly=few)))
    after = half if in_part else seen.adapted
    gain, changed = believed_gain(seen.plain, after, seen.repeats), _changed(seen.plain, after)
    contradicted = _is_contradicted(seen, after)
    confused = even and classes >= _UNDONE * effective_classes(seen.plain)
    unclear = confused and contradicted and not has_statistics
    surer = even and not in_part and _is_surer(seen)
    believed = (
        (gain.is_sure(clearly=few) and not (few and contradicted))
        or (confused and not unclear)
        or (surer and gain.possible and not contradicted)
    )
    words = f"{_in_words(gain)}{', and answers get surer' if surer else ''}{_predicted(forecast, clean)}"
    words += (
        "; this prediction is more reliable than what the models believe"
        if promised and not unclear and not gain.is_sure()
        else ""
    )
    reason = f"adapting changes {changed:.1%} of the answers, and {words}"
    right = (promised and not unclear) or _is_right(gain, believed, None if in_part else reliable, high)
    if changed >= _CHANGED and right:
        layers = "only the first half of the layers is adapted, " if in_part else ""
        return Verdict("repair", f"the images have moved by {seen.distance.average:.2f}, {layers}{reason}", in_part)
    if not even:
        mixed = "the images seem to be of few classes, or of some much more than of others"
        mixed += f" ({_top(half):.0%} of the answers are the same one), whose statistics are no shift"
        return Verdict("cannot help", f"{mixed}; {reason}", in_part)
    if unclear:
        either = "the images are of few classes, or a strong shift has confused the model, which cannot be told apart"
        return Verdict("cannot help", f"{either}; {reason}", in_part)
    return Verdict("cannot help" if high else "nothing to repair", reason, in_part)


def _is_right(gain: Gain, believed: bool, forecast: Forecast | None, high: bool) -> bool:
    """Return whether the error can be expected to fall.

    Args:
        gain: what the models believe.
        believed: whether their answers speak for a repair.
        forecast: the errors that are predicted for the same models; None where they cannot be relied on.
        high: whether the predicted error exceeds that on clean images.
    """
    if forecast is None:
        return believed
    fall = _predicted_fall(forecast)
    return fall > 0 if believed else high and fall > _WORTH and gain.fall > 0


def _is_skewed(forecast: Forecast | None) -> bool | None:
    """Return whether a forecast finds the images to be of few classes; None where it does not know."""
    return None if forecast is None or forecast.classes is None else forecast.classes.skewed


def _predicted_fall(forecast: Forecast) -> float:
    """Return by how much adapting all layers is predicted to lower the error."""
    return forecast.plain.error - forecast.adapted.error


def _is_surer(seen: Observation) -> bool:
    """Return whether the adapted model is surer of its answers by more than a standard error."""
    plain, adapted = (logits.double().softmax(1).amax(1) for logits in (seen.plain, seen.adapted))
    return _mean_gain(adapted - plain, seen.repeats).is_sure()


def _is_contradicted(seen: Observation, after: Tensor) -> bool:
    """Return whether the model that is adapted to what classes do not explain believes that the error rises."""
    if seen.conditional is None:
        return False
    rows, logits = seen.conditional
    different = len(rows) if seen.firsts is None else max(1, int(torch.isin(rows, seen.firsts.to(rows)).sum()))
    gain = _gain_by(logits.double().softmax(1), seen.plain[rows], after[rows], len(rows) / different)
    return not gain.possible


def _in_words(gain: Gain) -> str:
    change = "falls" if gain.fall > 0 else "rises"
    return f"the error {change} by {abs(gain.fall):.1%} ± {gain.uncertainty:.1%} if both models are believed alike"


def _predicted(forecast: Forecast | None, clean: float) -> str:
    """Return the predicted errors as the end of a sentence."""
    if forecast is None:
        return ""
    if not forecast.sure:
        return f"; errors cannot be predicted: {forecast.why}"
    plain, adapted = forecast.plain.error, forecast.adapted.error
    return (
        f"; the predicted error is {plain:.1%}, {adapted:.1%} with all layers adapted, and {clean:.1%} on clean images"
    )


def _chance(error: float, images: int) -> float:
    """Return two standard errors of an error that is counted on so many images."""
    return 2 * math.sqrt(error * (1 - error) / images)


def _changed(before: Tensor, after: Tensor) -> float:
    """Return the share of the answers that differ."""
    return (before.argmax(1) != after.argmax(1)).double().mean().item()


def _left_by_chance(images: int, mix: Tensor) -> float:
    """Return the effective classes that so many images of a mix have at least, 99 times out of 100."""
    shares = mix.double().numpy()
    drawn = np.random.default_rng(0).multinomial(images, shares / shares.sum(), size=1000)
    return float(np.quantile(np.exp(_entropy(drawn)), 0.01))


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
    return math.exp(_entropy(_counts(logits)))


def _counts(logits: Tensor) -> Array:
    """Return how often each class is the answer."""
    return logits.argmax(1).bincount(minlength=logits.shape[1]).numpy()


def _entropy(counts: Array) -> Array:
    """Return the entropy of counts along their last axis."""
    from scipy.special import entr  # all of scipy.stats would take half as long to import as torch

    entropy: Array = entr(counts / counts.sum(axis=-1, keepdims=True)).sum(axis=-1)
    return entropy
