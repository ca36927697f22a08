"""What `covshift shift` does with its arguments."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
from covshift.shift.forecast.predictor import Forecast, Prediction, Predictor
from covshift.support.device import choose_device
from covshift.support.errors import CovshiftError

_BATCH = 64
_LAYERS = 5  # shown in text


@dataclass(frozen=True)
class Told:
    """How far the target is from the source, and the forecast where there was something to learn it from."""

    distance: Distance
    images: int
    forecast: Forecast | None

    def as_json(self) -> str:
        """All of it, for programs."""
        told: dict[str, Any] = {
            "images": self.images,
            "distance": self.distance.average,
            "layers": self.distance.layers,
        }
        if self.forecast is not None:
            told |= {"plain": self.forecast.plain._asdict(), "adapted": self.forecast.adapted._asdict()}
        return json.dumps(told, indent=2)

    def as_text(self) -> str:
        """The most of it, for people."""
        far = sorted(self.distance.layers.items(), key=lambda item: -item[1])[:_LAYERS]
        lines = [f"normalised distance {self.distance.average:.2f} over {self.images} images, most of it in"]
        lines += [f"  {path}  {value:.2f}" for path, value in far]
        if self.forecast is None:
            return "\n".join([*lines, "with --source, clean labelled images, covshift also predicts the error"])
        plain, adapted = self.forecast.plain, self.forecast.adapted
        lines.append(f"predicted error {_say(plain)}")
        verb = "lower" if adapted.error <= plain.error else "raise"
        return "\n".join([*lines, f"adapting would {verb} it to {_say(adapted)}"])

    def above(self, alarm: float | None) -> bool:
        """Whether the predicted error of the model as it is is above the alarm."""
        return alarm is not None and self.forecast is not None and self.forecast.plain.error > alarm


def tell(
    model: str, target: str, source: str | None, condition: str, images: int, predictor: Path | None, device: str
) -> Told:
    """Open model and data, and look at the target; with a source or a predictor, predict its error."""
    wanted = parse_condition(condition)
    kept = predictor if predictor is not None and predictor.exists() else None
    if predictor is not None and source is None and kept is None:
        raise CovshiftError(f"there is no predictor at {predictor}; say --source, clean labelled images, to learn one")
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
        return Told(distance, len(shown), None)
    forecast = learned.estimate(shown, among=unlabelled.among)
    return Told(forecast.distance, forecast.images, forecast)


def _learn(model: Model, data: Data, images: int) -> Predictor:
    model.check_classes(data.classes, data.uri)
    if data.among is not None:
        raise CovshiftError(
            f"expected clean images of all classes of the model to learn from, got {data.uri}, whose answers are "
            f"compared among {len(data.among)} of them; say e.g. --source imagenet:DIR"
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
        raise CovshiftError(f"{data.uri} has no images in condition {condition}; name one with --condition")
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


def _say(prediction: Prediction) -> str:
    error, low, high = (f"{100 * value:.1f}" for value in prediction)
    return f"{error} % ({low} to {high})"
