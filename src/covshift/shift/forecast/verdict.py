"""A verdict on unlabelled images: how far they are from what a model was trained on, and what that costs."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from covshift.core.estimate import estimate
from covshift.core.statistics import Statistics
from covshift.corruptions import category, corrupt
from covshift.corruptions.apply import check_severity
from covshift.data import CLEAN, Condition, Data, open_data, open_unlabelled
from covshift.models import Model, open_model
from covshift.shift.distance import Distance, wasserstein
from covshift.shift.forecast.observe import Batches, Preprocess
from covshift.shift.forecast.predictor import Forecast, Predictor
from covshift.support.device import choose_device
from covshift.support.errors import CovshiftError

_BATCH = 64


@dataclass(frozen=True)
class Verdict:
    """How far the target is from the source, and the forecast where there was something to learn it from."""

    distance: Distance
    images: int
    forecast: Forecast | None

    def above(self, alarm: float | None) -> bool:
        """Return whether the predicted error of the model without adaptation is above the alarm."""
        return alarm is not None and self.forecast is not None and self.forecast.plain.error > alarm


def judge(
    model: str, target: str, source: str | None, condition: str, images: int, predictor: Path | None, device: str
) -> Verdict:
    """Return how far a target is from the source; with a source or a predictor, also what error to expect.

    Args:
        model: URI of the model.
        target: URI of images, whose labels are not looked at.
        source: URI of clean labelled images to learn from.
        condition: of the target, e.g. `fog/3`.
        images: number of images to take of each set, spread evenly.
        predictor: a file to keep what was learned, and to use it next time.
        device: auto, cpu, cuda or mps.
    """
    wanted = parse_condition(condition)
    kept = predictor if predictor is not None and predictor.exists() else None
    if predictor is not None and source is None and kept is None:
        raise CovshiftError(f"there is no predictor at {predictor}; name a source, clean labelled images, to learn one")
    opened = open_model(model)
    opened.module.to(choose_device(device))
    unlabelled = open_unlabelled(target)
    shown = _read(opened, unlabelled, wanted, images)
    preprocess = preprocess_of(opened)
    if kept is not None:
        learned = Predictor.load(kept, opened.module, preprocess=preprocess, batch=_BATCH)
    elif source is not None:
        learned = _learn(opened, open_data(source), images)
        if predictor is not None:
            learned.save(predictor)
    else:
        found = estimate(opened.module, Batches(shown, preprocess, _BATCH))
        distance = wasserstein(Statistics.of(opened.module), found, normalized=True)
        return Verdict(distance, len(shown), None)
    forecast = learned.estimate(shown, among=unlabelled.among)
    return Verdict(forecast.distance, forecast.images, forecast)


def _learn(model: Model, data: Data, images: int) -> Predictor:
    model.check_classes(data.classes, data.uri)
    if data.among is not None:
        raise CovshiftError(
            f"expected clean images of all classes of the model to learn from, got {data.uri}, whose answers are "
            f"compared among {len(data.among)} of them; name all of them, e.g. imagenet:DIR"
        )
    clean, labels = _read(model, data, CLEAN, images), data.labels[_spread(len(data), images)]
    return Predictor.fit(model.module, clean, labels, preprocess=preprocess_of(model), batch=_BATCH)


def preprocess_of(model: Model) -> Preprocess:
    """What makes the model's input of uint8 images, torch NCHW."""
    return lambda batch: model.preprocess.tensor(batch.permute(0, 2, 3, 1).contiguous().numpy())


def parse_condition(text: str) -> Condition:
    """A corruption at a severity.

    >>> parse_condition("fog/3")
    Condition(corruption='fog', severity=3)
    """
    name, _, level = text.partition("/")
    if text == str(CLEAN):
        return CLEAN
    category(name)
    if not level.isdigit():
        raise CovshiftError(f"expected a condition such as fog/3, got {text!r}")
    return Condition(name, check_severity(int(level)))


def _read(model: Model, data: Data, condition: Condition, images: int) -> NDArray[np.uint8]:
    indices = _spread(len(data), images)
    stored = condition if condition in data.stored else CLEAN
    if stored not in data.stored:
        raise CovshiftError(
            f"{data.uri} has no images in condition {condition}; name one that it has, e.g. {next(iter(data.stored))}"
        )
    pictures = []
    for picture in data.read(stored, indices.tolist(), model.preprocess.picture):
        if isinstance(picture, CovshiftError):
            raise picture
        pictures.append(picture)
    if len({picture.shape for picture in pictures}) > 1:
        raise CovshiftError(f"expected images of one size, got several in {data.uri}; give the model's URI ?size=")
    batch = np.stack(pictures)
    return batch if stored == condition else corrupt(batch, *condition, indices=indices.tolist())


def _spread(total: int, wanted: int) -> NDArray[np.intp]:
    """Indices spread evenly: files are often sorted by class."""
    return np.linspace(0, total - 1, min(total, wanted)).round().astype(np.intp)
