"""`repair`: look at images of a new domain, say whether adapting to them is right, and if so do it for good."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import Tensor

from covshift.core.estimate import estimate
from covshift.core.identity import digest
from covshift.core.places import holds_statistics
from covshift.core.source import Source
from covshift.core.statistics import Prior, Statistics
from covshift.core.wrappers import AnyModel, unwrap, unwrap_eval
from covshift.data import Data
from covshift.models.base import Model
from covshift.repairs.batches import as_batches, spread
from covshift.repairs.card import Card
from covshift.repairs.folder import write_folder
from covshift.repairs.sample import Sample, take_samples
from covshift.repairs.verdict import Verdict, judge
from covshift.shift.forecast.assess import learn
from covshift.shift.forecast.forecast import Forecast
from covshift.shift.forecast.observe import Observation, answer_adapted, observe
from covshift.shift.forecast.predictor import Predictor
from covshift.support.checks import check_flags, check_kind
from covshift.support.classes import select
from covshift.support.errors import CovshiftError

_MOST_EXACT = 2000
"""Number of images that are looked at, and up to which statistics are those of one giant batch; beyond, batches are
measured one by one."""


@dataclass(frozen=True)
class Repair:
    """What was seen of some images, the verdict on them, and the correction, if there is one.

    Attributes:
        verdict: whether a repair is right, and why.
        patch: the statistics of the images; None where nothing was repaired.
        forecast: the predicted errors; None without a source.
        card: all that was measured, as plain values.
        samples: some of the images, with the answers before and after.
        model: the model that was given, which is as it was.
        class_names: the name of each class, "" where it is not known; empty where none is.
    """

    verdict: Verdict
    patch: Statistics | None
    forecast: Forecast | None
    card: Card
    samples: tuple[Sample, ...]
    model: AnyModel = field(repr=False)
    class_names: tuple[str, ...] = field(default=(), repr=False)

    def apply(self, model: AnyModel) -> None:
        """Write the correction into a model, which stays an ordinary eval-mode model."""
        self._correction().apply(model)

    def save(self, folder: str | os.PathLike[str]) -> Card:
        """Write patch, weights, card and samples to a new folder, which appears when all of it is there.

        Returns:
            the card, with the digests of patch and weights.
        """
        return write_folder(folder, self._correction(), self.model, self.card, self.samples, self.class_names)

    def _correction(self) -> Statistics:
        """Return the patch, or raise a `CovshiftError` where nothing was repaired."""
        if self.patch is None:
            raise CovshiftError(f"nothing was repaired: {self.verdict.reason}; use `force=True` to do it anyway")
        return self.patch


def repair(
    model: AnyModel,
    target: Iterable[Any] | Tensor | Data,
    *,
    source: Data | Predictor | None = None,
    force: bool = False,
    limit: int | None = None,
    skip_broken: bool = False,
    progress: bool = True,
) -> Repair:
    """Repair a model for images of a new domain, which need no labels, where that is right.

    The model itself stays as it is: `apply` or `save` what is returned.

    Args:
        model: what `open_model` returns, or any classifier in eval mode; one without layers that hold statistics
            needs a `source`.
        target: images of the new domain: a loader of the model's input that gives the same images each time, uint8
            images, or what `open_data` returns.
        source: clean labelled images, as `open_data` returns them, or a `Predictor` that was fitted on such: the errors
            before and after are then predicted. Without them the verdict rests on the model's confidence.
        force: whether to repair whatever the verdict is.
        limit: the number of images to take of data; by default all.
        skip_broken: whether to leave out pictures of data that cannot be read.
        progress: whether to show a progress bar when this takes long.
    """
    check_flags(force=force, skip_broken=skip_broken, progress=progress)
    batches = as_batches(model, target, limit, skip_broken)
    learned = _learn(model, source, limit, skip_broken, progress)
    known = None if learned is None else learned.knowledge
    among = target.among if isinstance(target, Data) else None
    some = spread(batches, _MOST_EXACT)
    answers = look_at(model, some, learned)
    restricted = answers if among is None else answers.among(among)
    verdict, forecast = judge_answers(restricted, learned)
    exact = some is batches and len(restricted.half) <= _MOST_EXACT
    anchor = None if learned is None else learned.source
    prior: Prior = "auto" if exact and anchor is not None and anchor.spread else 0
    layers = _first_half(model, anchor) if verdict.half else None
    patch = None
    if verdict.good or force:
        patch = estimate(model, batches, source=anchor, exact=exact, prior=prior, layers=layers, progress=progress)
    card = Card.of(
        verdict=verdict,
        seen=restricted.seen,
        half=restricted.half,
        forecast=forecast,
        patch=patch,
        model=getattr(model, "uri", type(unwrap(model)).__name__),
        weights=digest(model),
        target=target if isinstance(target, Data) else None,
        source=source if isinstance(source, Data) else None,
        source_images=None if known is None else known.images,
        method=_method(exact, prior, verdict.half),
        forced=force and not verdict.good,
    )
    after = answers.half if verdict.half else answers.seen.adapted
    samples = take_samples(model, some, answers.seen.plain, after, among)
    return Repair(verdict, patch, forecast, card, samples, model, _class_names(after.shape[1], source, target))


class Answers(NamedTuple):
    """What a model answers to some images: as it is, adapted, and with the first half of its layers adapted."""

    seen: Observation
    half: Tensor

    def among(self, classes: Sequence[int]) -> "Answers":
        """Return the answers restricted to these classes."""
        return Answers(self.seen.among(classes), select(self.half, classes))


def judge_answers(answers: Answers, learned: Predictor | None) -> tuple[Verdict, Forecast | None]:
    """Return the verdict on some answers, and the errors that are predicted from them where there is a predictor."""
    seen, half = answers
    if learned is None:
        return judge(seen, half), None
    forecast = learned.predict_observed(seen)
    usual = None if learned.knowledge is None else learned.knowledge.usual
    if usual is not None and seen.classes is not None:
        usual = usual[list(seen.classes)]
    clean, has_statistics = learned.conditions[0].plain, learned.source is None
    return judge(seen, half, forecast, clean=clean, usual=usual, has_statistics=has_statistics), forecast


def _method(exact: bool, prior: Prior, half: bool) -> str:
    """Return how statistics are taken, in words."""
    taken = "statistics of one giant batch" if exact else "statistics of batches, merged"
    taken += ", as far as chance does not explain them" if prior == "auto" else ""
    return taken + (", first half of the layers" if half else "")


def _class_names(classes: int, *data: object) -> tuple[str, ...]:
    """Return the names of the model's classes by the first data that have as many of them, and names."""
    labelled = [each for each in data if isinstance(each, Data) and each.labelled]
    return next((each.class_names for each in labelled if each.class_names and each.classes == classes), ())


def look_at(model: AnyModel, batches: Iterable[Any], learned: Predictor | None) -> Answers:
    """Return the answers to some images before and after, and those with the first half of the layers adapted."""
    module = unwrap_eval(model)
    seen = observe(module, batches) if learned is None else learned.observe(batches)
    anchor = None if learned is None else learned.source
    half, _ = answer_adapted(module, batches, source=anchor, layers=_first_half(module, anchor))
    return Answers(seen, half)


def _first_half(model: AnyModel, anchor: Source | None) -> list[str]:
    """Return the paths of the first half of the layers that can be adapted."""
    layers = list(Statistics.of(model) if anchor is None else anchor.statistics)
    return layers[: (len(layers) + 1) // 2]


def _learn(
    model: AnyModel, source: Data | Predictor | None, limit: int | None, skip_broken: bool, progress: bool
) -> Predictor | None:
    """Return a predictor of errors, where there is a source to learn it from."""
    if source is None:
        if not any(map(holds_statistics, unwrap(model).modules())):
            raise CovshiftError(
                "the model holds no statistics of its training data; name clean labelled images to measure them on, "
                "such as `source=folder:val`"
            )
        return None
    if isinstance(source, Predictor):
        if source.model is not unwrap(model) and digest(source.model) != digest(model):
            raise CovshiftError("the predictor was fitted on another model or on other weights; fit it on this one")
        return source
    check_kind(source, Data, "source", "clean labelled images, as open_data returns them, or a Predictor")
    check_kind(model, Model, "model", "what open_model returns, with a source of clean images")
    assert isinstance(model, Model)
    return learn(model, source, limit, skip_broken=skip_broken, progress=progress)
