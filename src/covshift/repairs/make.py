"""`repair`: look at images of a new domain, say whether adapting to them is right, and if so do it for good."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from covshift.core.calling import logits_of
from covshift.core.estimate import estimate
from covshift.core.identity import digest
from covshift.core.source import Source
from covshift.core.statistics import Statistics
from covshift.core.wrappers import AnyModel, unwrap
from covshift.data import Data
from covshift.models.base import Model
from covshift.repairs.card import Card
from covshift.repairs.folder import write_folder
from covshift.repairs.sample import Sample, take_samples
from covshift.repairs.verdict import FEWEST, Verdict, judge
from covshift.shift.forecast.observe import Batches, Observation, observe
from covshift.shift.forecast.predictor import Forecast, Predictor
from covshift.support.checks import check_flags, check_kind
from covshift.support.classes import select
from covshift.support.errors import CovshiftError
from covshift.support.pixels import is_pixels

_BATCH = 64
_MOST_EXACT = 2000
"""Number of images up to which statistics are those of one giant batch; beyond, batches are measured one by one."""


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
    """

    verdict: Verdict
    patch: Statistics | None
    forecast: Forecast | None
    card: Card
    samples: tuple[Sample, ...]
    model: AnyModel = field(repr=False)

    def apply(self, model: AnyModel) -> None:
        """Write the correction into a model, which stays an ordinary eval-mode model."""
        self.correction().apply(model)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write patch, weights, card and samples to a new folder, which appears when all of it is there."""
        write_folder(folder, self.correction(), self.model, self.card, self.samples)

    def correction(self) -> Statistics:
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
    batches = _batches(model, target, limit, skip_broken)
    learned, usual = _learn(model, source, limit, skip_broken, progress)
    anchor = None if learned is None else learned.source
    seen, half = _look(model, batches, anchor)
    samples = take_samples(model, batches, seen)
    if isinstance(target, Data) and target.among is not None:
        seen, half = seen.among(target.among), select(half, target.among)
    forecast = None if learned is None else learned.predict_observed(seen)
    clean = None if learned is None else learned.conditions[0].plain
    verdict = judge(seen, half, forecast, clean=clean, usual=usual)
    images = len(seen.plain)
    exact = images <= _MOST_EXACT
    repairing = verdict.good or force
    patch = estimate(model, batches, source=anchor, exact=exact, progress=progress) if repairing else None
    card = Card.of(
        verdict=verdict,
        seen=seen,
        forecast=forecast,
        patch=patch,
        model=getattr(model, "uri", type(unwrap(model)).__name__),
        weights=digest(model),
        target=target if isinstance(target, Data) else None,
        source=source if isinstance(source, Data) else None,
        exact=exact,
        forced=force and not verdict.good,
    )
    return Repair(verdict, patch, forecast, card, samples, model)


def _batches(model: AnyModel, target: Any, limit: int | None, skip_broken: bool) -> Iterable[Any]:
    """Return the images as batches that can be gone through several times."""
    if isinstance(target, Data):
        _check_enough(min(len(target), limit or len(target)))
        return target.loader(model, batch_size=_BATCH, limit=limit, skip_broken=skip_broken)
    if limit is not None or skip_broken:
        raise CovshiftError("expected limit= and skip_broken= with data that open_data returns, got other images")
    if is_pixels(target) or isinstance(target, Tensor):
        return Batches(target, model.preprocess if isinstance(model, Model) else None, _BATCH)
    if isinstance(target, str | bytes | Mapping) or not isinstance(target, Iterable) or iter(target) is target:
        raise CovshiftError("expected images, or a loader that can be gone through several times")
    return target


def _look(model: AnyModel, batches: Iterable[Any], anchor: Source | None) -> tuple[Observation, Tensor]:
    """Return the answers to the target before and after, and those with the first half of the layers adapted."""
    module = unwrap(model)
    if module.training:
        raise CovshiftError("the model is in training mode; call model.eval() first")
    seen = observe(module, batches, anchor)
    _check_enough(len(seen.plain))
    layers = list(Statistics.of(module) if anchor is None else anchor.statistics)
    answers: dict[int, Tensor] = {}

    def keep(position: int, output: Any) -> None:
        answers[position] = logits_of(output).float().cpu()

    first = layers[: (len(layers) + 1) // 2]
    estimate(module, batches, source=anchor, layers=first, collect=keep, progress=False)
    return seen, torch.cat([answers[position] for position in sorted(answers)])


def _check_enough(images: int) -> None:
    if images < FEWEST:
        raise CovshiftError(
            f"expected at least {FEWEST} images to take statistics of, got {images}; add more of the same kind"
        )


def _learn(
    model: AnyModel, source: Data | Predictor | None, limit: int | None, skip_broken: bool, progress: bool
) -> tuple[Predictor | None, Tensor | None]:
    """Return a predictor of errors, and the model's logits on clean images, as far as the source gives these."""
    if source is None or isinstance(source, Predictor):
        return source, None
    check_kind(source, Data, "source", "clean labelled images, as open_data returns them, or a Predictor")
    check_kind(model, Model, "model", "what open_model returns, with a source of clean images")
    assert isinstance(model, Model)
    model.check_classes(source.classes, source.uri)
    clean = source.pixels(model, limit=limit, skip_broken=skip_broken)
    assert clean.labels is not None
    learned = Predictor.fit(model, clean.images, clean.labels, batch_size=_BATCH, progress=progress)
    with torch.inference_mode():
        usual = torch.cat([model(some).float().cpu() for some in Batches(clean.images, model.preprocess, _BATCH)])
    return learned, usual
