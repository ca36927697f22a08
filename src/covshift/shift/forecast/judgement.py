"""`judge_images`: the errors to expect on some images, whether that can be relied on, and if not, why not."""

from dataclasses import dataclass

import torch

from covshift.shift.distance import Distance
from covshift.shift.forecast.advice import advise, label_some
from covshift.shift.forecast.beliefs import wrong_answers
from covshift.shift.forecast.cases import FEATURES, PLACES
from covshift.shift.forecast.doubt import Band, Doubt
from covshift.shift.forecast.forecast import NO_ADVICE, Advice, ClassMix, DistanceScale, Forecast, Prediction
from covshift.shift.forecast.knowledge import Knowledge
from covshift.shift.forecast.mix import estimate_mix, unusual
from covshift.shift.forecast.observe import Observation
from covshift.shift.forecast.skew import Skewed, look_skewed
from covshift.support.errors import plural

FEWEST = 32
"""Number of images below which what they show is mostly chance."""

MIX = 0.25
"""Total variation of the classes from the usual ones, beyond chance, that shifts alone do not cause, where the answers
to these are all that is known."""

_NOTHING_KNOWN = "the predictor was saved by an older version, which cannot tell; fit it again"


@dataclass(frozen=True)
class Judgement:
    """What is thought of some images.

    Attributes:
        plain, adapted: the predicted errors; None where the predictor knows too little.
        why: the reason why they cannot be relied on; empty where they can.
        classes: the mix of classes; None where that is not known.
        advice: what to do.
        scale: what to compare distances with; None where that is not known.
    """

    plain: Prediction | None = None
    adapted: Prediction | None = None
    why: str = ""
    classes: ClassMix | None = None
    advice: Advice = NO_ADVICE
    scale: DistanceScale | None = None

    def forecast(self, plain: Prediction, adapted: Prediction, seen: Observation) -> Forecast:
        """Return the forecast with these predictions, which hold nothing where they cannot be relied on."""
        if self.why:
            plain, adapted = (each._replace(low=0.0, high=1.0) for each in (plain, adapted))
        return Forecast(
            plain,
            adapted,
            seen.distance,
            len(seen.plain),
            sure=not self.why,
            why=self.why,
            classes=self.classes,
            advice=self.advice,
            scale=self.scale,
        )


def judge_images(seen: Observation, known: Knowledge | None, doubt: Doubt | None, temperature: float) -> Judgement:
    """Return what is thought of some images.

    Args:
        seen: what was seen of them.
        known: what the predictor knows; None of an older one.
        doubt: how far its predictions may be off; None of an older one.
        temperature: divides the logits, so that probabilities are about right.
    """
    if known is None or doubt is None:
        return Judgement(why=_NOTHING_KNOWN)
    images = seen.different
    chances = wrong_answers(seen, "plain", known.beliefs, temperature)
    firsts = torch.arange(len(chances)) if seen.firsts is None else seen.firsts
    outlook = doubt.at(known.look(seen, temperature), images)
    past, skews = look_skewed(seen, temperature), known.skews
    classes = _classes(seen, past, known, temperature)
    skewed = classes.skewed
    adaptable = bool(seen.distance.layers)
    plain, adapted, why = outlook.plain, outlook.adapted if adaptable else outlook.plain, ""
    if images < FEWEST:
        why = too_few(images, len(seen.plain))
    elif skewed and past is not None and skews is not None and seen.classes is None and skews.unmoved(past):
        plain, adapted = skews.at(past)
    elif skewed:
        why = few_classes(classes)
    elif outlook.novelty > doubt.outside:
        why = f"the images are unlike all that the predictor was calibrated on, most of all in {_feature(outlook.odd)}"
    clean = known.cases[0].plain
    if why:
        advice = label_some(why, 0.5, chances, firsts)
    elif skewed:
        advice = Advice("nothing", "the images are of few classes, which adapting would take for a shift")
    elif not adaptable:
        advice = advise(plain.value, Band(0.0, 0.0, 0.0), clean, chances, firsts)
    else:
        advice = advise(plain.value, outlook.gain, clean, chances, firsts)
    after = interval_of(adapted)
    if skewed:
        after = after._replace(low=0.0, high=1.0)  # what adapting to classes does differs from class to class
    return Judgement(interval_of(plain), after, why, classes, advice, _scale(seen, known, doubt))


def _classes(seen: Observation, past: Skewed | None, known: Knowledge, temperature: float) -> ClassMix:
    """Return the mix of classes by the answers of the model that is to be believed."""
    possible = torch.arange(len(known.usual)) if seen.classes is None else torch.tensor(seen.classes)
    usual = known.usual[possible] / known.usual[possible].sum()
    shares = estimate_mix(seen.adapted, temperature, usual)
    mix = unusual(shares, usual, seen.different)
    skewed = mix > MIX if past is None or known.skews is None else known.skews.suspects(past, mix)
    if skewed and seen.conditional is not None:
        shares = estimate_mix(seen.conditional.logits, temperature, usual)
    found, wanted = (torch.zeros_like(known.usual).index_copy(0, possible, each) for each in (shares, usual))
    return ClassMix(tuple(found.tolist()), tuple(wanted.tolist()), skewed)


def few_classes(classes: ClassMix) -> str:
    """Return why no error can be named on images of few classes."""
    share, name = max((share, name) for name, share in enumerate(classes.shares))
    return f"the images seem to be of few classes (class {name} has {share:.0%}), and may have moved besides"


def too_few(different: int, shown: int) -> str:
    """Return why no error can be named on this number of different images, of those that were shown.

    >>> too_few(10, 400)
    'only 10 of the 400 images differ, the others being exact repeats; at least 32 different ones are needed'
    """
    if different < shown:
        repeats = f"only {different} of the {shown} images differ, the others being exact repeats"
        return f"{repeats}; at least {FEWEST} different ones are needed"
    return f"there are only {plural(shown, 'image')}; at least {FEWEST} are needed"


def _feature(position: int) -> str:
    names = (*(f"the {name}" for name in FEATURES), *(f"how far {place} have moved" for place in PLACES))
    return names[position]


def _scale(seen: Observation, known: Knowledge, doubt: Doubt) -> DistanceScale | None:
    layers = list(seen.distance.layers)
    if not layers or len(layers) != len(known.cases[0].distance):
        return None
    *below, share = doubt.below(list(seen.distance.layers.values()))
    chance: Distance = known.by_chance(layers, seen.different)
    return DistanceScale(chance, dict(zip(layers, below, strict=True)), share)


def interval_of(band: Band, *, sure: bool = True) -> Prediction:
    """Return a predicted value with its interval; with one from 0 to 1 if it cannot be relied on.

    >>> interval_of(Band(0.25, -0.25, 0.75))
    Prediction(error=0.25, low=0.0, high=0.75)
    """
    value, low, high = band if sure else (band.value, 0.0, 1.0)
    return Prediction(value, max(0.0, low), min(1.0, high))
