"""`repair`: look at images of a new domain, say whether adapting to them is right, and if so do it for good."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Subset

from covshift.core.calling import logits_of
from covshift.core.estimate import estimate
from covshift.core.identity import digest
from covshift.core.statistics import Prior, Statistics
from covshift.core.wrappers import AnyModel, unwrap
from covshift.data import Data
from covshift.data.loader import Prepared
from covshift.data.orders import Order
from covshift.data.video import Video
from covshift.models.base import Model
from covshift.repairs.card import Card
from covshift.repairs.folder import write_folder
from covshift.repairs.sample import Sample, take_samples
from covshift.repairs.verdict import Verdict, check_enough, judge
from covshift.shift.forecast.forecast import Forecast
from covshift.shift.forecast.observe import Batches, Observation, observe
from covshift.shift.forecast.predictor import Predictor
from covshift.support.checks import check_dense, check_flags, check_kind, check_number
from covshift.support.classes import select
from covshift.support.errors import CovshiftError
from covshift.support.pixels import is_pixels

_BATCH = 64
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

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write patch, weights, card and samples to a new folder, which appears when all of it is there."""
        write_folder(folder, self._correction(), self.model, self.card, self.samples, self.class_names)

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
    if limit is not None:
        check_number(limit, "limit", 1, whole=True, of="images")
    batches = _batches(model, target, limit, skip_broken)
    learned = _learn(model, source, limit, skip_broken, progress)
    known = None if learned is None else learned.knowledge
    among = target.among if isinstance(target, Data) else None
    some = _some(batches)
    seen, half = look_at(model, some, learned)
    samples = take_samples(model, some, seen, among)
    class_names = _class_names(seen.plain.shape[1], source, target)
    usual = None if known is None else known.usual
    if among is not None:
        seen, half = seen.among(among), select(half, among)
        usual = None if usual is None else usual[list(among)]
    forecast = None if learned is None else learned.predict_observed(seen)
    clean = 0.0 if learned is None else learned.conditions[0].plain
    verdict = judge(seen, half, forecast, clean=clean, usual=usual)
    exact = some is batches and len(seen.plain) <= _MOST_EXACT
    anchor = None if learned is None else learned.source
    prior: Prior = "auto" if exact and anchor is not None and anchor.spread else 0
    repairing = verdict.good or force
    patch = estimate(model, batches, source=anchor, exact=exact, prior=prior, progress=progress) if repairing else None
    card = Card.of(
        verdict=verdict,
        seen=seen,
        half=half,
        forecast=forecast,
        patch=patch,
        model=getattr(model, "uri", type(unwrap(model)).__name__),
        weights=digest(model),
        target=target if isinstance(target, Data) else None,
        source=source if isinstance(source, Data) else None,
        source_images=None if known is None else known.images,
        method=_method(exact, prior),
        forced=force and not verdict.good,
    )
    return Repair(verdict, patch, forecast, card, samples, model, class_names)


def _method(exact: bool, prior: Prior) -> str:
    """Return how statistics are taken, in words."""
    if not exact:
        return "statistics of batches, merged"
    return "statistics of one giant batch" + (", as far as chance does not explain them" if prior == "auto" else "")


def _class_names(classes: int, *data: object) -> tuple[str, ...]:
    """Return the names of the model's classes by the first data that have as many of them, and names."""
    labelled = [each for each in data if isinstance(each, Data) and each.labelled]
    return next((each.class_names for each in labelled if each.class_names and each.classes == classes), ())


def _batches(model: AnyModel, target: Any, limit: int | None, skip_broken: bool) -> Iterable[Any]:
    """Return the images as batches that can be gone through several times."""
    if isinstance(target, Data):
        check_enough(min(len(target), limit or len(target)))
        # A folder is sorted by class, and a batch of one class has the statistics of that class; a video is read as it
        # runs.
        order: Order = "source" if isinstance(target, Video) else "shuffled"
        return target.loader(model, batch_size=_BATCH, limit=limit, order=order, skip_broken=skip_broken)
    if limit is not None or skip_broken:
        raise CovshiftError("expected limit= and skip_broken= with data that open_data returns, got other images")
    if isinstance(target, Tensor):
        check_dense(target, "the images")
    if is_pixels(target) or isinstance(target, Tensor):
        return Batches(target, model.preprocess if isinstance(model, Model) else None, _BATCH)
    if isinstance(target, str | bytes | Mapping) or not isinstance(target, Iterable) or iter(target) is target:
        raise CovshiftError("expected images, or a loader that can be gone through several times")
    return target


def _some(batches: Iterable[Any]) -> Iterable[Any]:
    """Return as many images as are looked at, spread evenly, of a loader of data; other batches as they are."""
    if not isinstance(batches, DataLoader) or not isinstance(batches.dataset, Prepared):
        return batches
    images = len(batches.dataset)
    if images <= _MOST_EXACT:
        return batches
    part = Subset(batches.dataset, range(0, images, -(-images // _MOST_EXACT)))
    return DataLoader(part, batches.batch_size, collate_fn=batches.collate_fn)


def look_at(model: AnyModel, batches: Iterable[Any], learned: Predictor | None) -> tuple[Observation, Tensor]:
    """Return the answers to some images before and after, and those with the first half of the layers adapted."""
    module = unwrap(model)
    if module.training:
        raise CovshiftError("the model is in training mode; call model.eval() first")
    seen = observe(module, batches) if learned is None else learned.observe(batches)
    anchor = None if learned is None else learned.source
    layers = list(Statistics.of(module) if anchor is None else anchor.statistics)
    answers: dict[int, Tensor] = {}

    def keep(position: int, output: Any) -> None:
        answers[position] = logits_of(output).float().cpu()

    first = layers[: (len(layers) + 1) // 2]
    estimate(module, batches, source=anchor, layers=first, collect=keep, progress=False)
    return seen, torch.cat([answers[position] for position in sorted(answers)])


def _learn(
    model: AnyModel, source: Data | Predictor | None, limit: int | None, skip_broken: bool, progress: bool
) -> Predictor | None:
    """Return a predictor of errors, where there is a source to learn it from."""
    if source is None:
        return None
    if isinstance(source, Predictor):
        if source.model is not unwrap(model) and digest(source.model) != digest(model):
            raise CovshiftError("the predictor was fitted on another model or on other weights; fit it on this one")
        return source
    check_kind(source, Data, "source", "clean labelled images, as open_data returns them, or a Predictor")
    check_kind(model, Model, "model", "what open_model returns, with a source of clean images")
    assert isinstance(model, Model)
    model.check_classes(source.classes, source.uri)
    clean = source.pixels(model, limit=limit, skip_broken=skip_broken)
    assert clean.labels is not None
    return Predictor.fit(model, clean.images, clean.labels, batch_size=_BATCH, progress=progress)
