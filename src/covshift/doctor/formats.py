"""The format of images that a model was trained on: mean and std, order of channels, size; two kinds of evidence.

Errors count on labels. The first normalisation layer needs none: it knows the scale of its inputs. A std that is twice
too large is far off for the layer and may cost few errors; swapped channels are the other way round. So errors decide
where they are sure, both together where they are nearly so, and the layer alone where labels are of no use. And where
all formats have many errors, labels may be in a wrong order, and are read in the way that is best for each of them.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from covshift.doctor.case import Case
from covshift.doctor.finding import Level
from covshift.doctor.trial import SURE, InputFormat, Trial, better
from covshift.models import Preprocess
from covshift.models.preprocess import Colour


class Colours(NamedTuple):
    """A mean and a std that models are trained with."""

    name: str
    mean: Colour
    std: Colour


COMMON = (
    Colours("ImageNet", (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    Colours("CIFAR-10", (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    Colours("-1 to 1", (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    Colours("0 to 1", (0, 0, 0), (1, 1, 1)),
    Colours("0 to 255", (0, 0, 0), (1 / 255, 1 / 255, 1 / 255)),
    Colours("0 to 255 around ImageNet's mean", (0.485, 0.456, 0.406), (1 / 255, 1 / 255, 1 / 255)),
)

_FAR = 0.4  # σ; images as in training are nearer than this, see `Fit`
_NEARER = 0.5  # how much nearer another format has to be
_PUBLISHED = (32, 64, 224, 299)  # pixels
_HOPELESS = 1.5  # times as far as what is declared: not worth a pass through the model
_DOUBTFUL = 0.5  # of the error of guessing: with more errors than that, labels may be the reason
_NEARLY_SURE = 0.1  # probability that fewer errors are chance, where the layer agrees


class Verdict(NamedTuple):
    """The judgement on two formats; where all is well, the format stays as it was."""

    level: Level
    before: InputFormat
    after: InputFormat


def normalised(case: Case) -> Verdict:
    """Find the mean and std that fit the weights."""
    before = case.declared
    others = [form for form in (with_colours(before, each) for each in COMMON) if form != before]
    far = _HOPELESS * distance(case, before)
    formats = [before, *(form for form in others if distance(case, form) <= far)]
    trials = judged(case, formats)
    if not any(trial.sees(case.model.classes) for trial in trials.values()):
        nearest = min(formats, key=lambda form: distance(case, form))
        return _verdict("problem" if _nearer(case, before, nearest) else "ok", before, nearest)
    best = min(formats, key=lambda form: trials[form].error)
    # Means and stds that are much the same have the same errors; of these, the one that the layer knows.
    alike = [form for form in formats if not better(trials[form], trials[best], _NEARLY_SURE)]
    nearest = min(alike, key=lambda form: distance(case, form))
    for after in (nearest, best):
        if better(trials[before], trials[after], _NEARLY_SURE if _nearer(case, before, after) else SURE):
            return Verdict("problem", before, after)
    unsure = _nearer(case, before, nearest) and trials[nearest].error <= trials[before].error
    return _verdict("warning" if unsure else "ok", before, nearest)


def ordered(case: Case) -> Verdict:
    """Find the order of channels, RGB or BGR, with the mean and std that fit."""
    before = _mended(normalised(case))
    after = replace(before, swapped=True)
    trials = judged(case, [before, after])
    nearer = distance(case, after) < distance(case, before)
    sure = better(trials[before], trials[after], _NEARLY_SURE / 2 if nearer else SURE)
    return _verdict("problem" if sure else "ok", before, after)


def judged(case: Case, formats: Sequence[InputFormat]) -> dict[InputFormat, Trial]:
    """Return a trial of each format, with labels as they are or, where nothing fits them, read in its best way."""
    trials = {form: case.trial(form) for form in formats}
    if min(trial.error for trial in trials.values()) < _DOUBTFUL * (1 - 1 / case.model.classes):
        return trials
    return {form: case.explained(form) for form in formats}


def sized(case: Case) -> Verdict:
    """Find whether images are resized as declared or, where all are squares of one size, taken as they are stored.

    A warning where it costs no errors for sure, but images become larger, or have the size of published sets, which
    have been resized and cropped once.
    """
    before = _mended(ordered(case))
    side = case.sizes[0][0]
    times = enlargement(before.preprocess, side, side)
    if set(case.sizes) != {(side, side)} or times == 1:
        return Verdict("ok", before, before)
    after = replace(before, preprocess=before.preprocess.with_(size=side, resize=0))
    try:
        sure = better(case.trial(before), case.trial(after))
    except (RuntimeError, ValueError, AssertionError):
        after, sure = before, False  # the model takes images of one size only
    return _verdict("problem" if sure else "warning" if times > 1 or side in _PUBLISHED else "ok", before, after)


def right(case: Case) -> InputFormat:
    """Return the declared format, but for what was found to be wrong: what all other checks use."""
    return _mended(sized(case))


def enlargement(preprocess: Preprocess, width: int, height: int) -> float:
    """Return how many times as large a picture becomes before it is cropped.

    >>> from covshift.models import IMAGENET
    >>> enlargement(IMAGENET, 224, 224), enlargement(IMAGENET, 512, 640), enlargement(IMAGENET, 32, 32)
    (1.0, 0.5, 8.0)
    """
    short = min(width, height)
    if (width, height) == (preprocess.size, preprocess.size):
        return 1.0
    return (preprocess.resize or max(preprocess.size or 0, short)) / short


def _mended(verdict: Verdict) -> InputFormat:
    return verdict.after if verdict.level == "problem" else verdict.before


def with_colours(form: InputFormat, colours: Colours) -> InputFormat:
    """Return the format with another mean and std."""
    return replace(form, preprocess=form.preprocess.with_(mean=colours.mean, std=colours.std))


def distance(case: Case, form: InputFormat) -> float:
    """Return how far the first normalisation layer is from its training, 0 where there is none."""
    fit = case.fit(form)
    return 0.0 if fit is None else fit.distance


def _nearer(case: Case, before: InputFormat, after: InputFormat) -> bool:
    far = distance(case, before)
    return far > _FAR and distance(case, after) < _NEARER * far


def _verdict(level: Level, before: InputFormat, after: InputFormat) -> Verdict:
    return Verdict(level, before, before if level == "ok" else after)
