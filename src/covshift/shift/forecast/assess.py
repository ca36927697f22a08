"""`assess`: how far images have moved, what that costs, and what adapting would buy, without their labels."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from covshift.core.estimate import estimate
from covshift.core.places import holds_statistics
from covshift.core.statistics import Statistics
from covshift.data import CLEAN, Condition, Data, open_data, open_unlabelled, parse_condition
from covshift.data.loader import check_condition
from covshift.data.selection import ImageBatch, Selection
from covshift.models import Model, open_model
from covshift.shift.distance import Distance, wasserstein
from covshift.shift.forecast.forecast import Forecast
from covshift.shift.forecast.observe import Batches
from covshift.shift.forecast.predictor import Predictor
from covshift.shift.forecast.words import distances, figures, verdict
from covshift.support.device import choose_device
from covshift.support.errors import CovshiftError

_BATCH = 64
_LAYERS = 5  # listed in text
_OF_SOURCE = 3  # times as many images: what those of calibration are harder by than they look is in every forecast


@dataclass(frozen=True)
class Assessment:
    """The distance of the target from the source, and the errors that are predicted from it.

    Attributes:
        distance: the normalised Wasserstein distance, per layer and averaged.
        images: the number of images that this was seen on.
        forecast: the predicted errors; None where there was nothing to learn them from.
        names: the names of these images, such as the paths of their files.
    """

    distance: Distance
    images: int
    forecast: Forecast | None
    names: tuple[str, ...] = ()

    def as_json(self) -> str:
        """Return all figures as a dictionary, for programs."""
        return json.dumps(figures(self.distance, self.images, self.forecast, self.names), indent=2)

    def as_text(self) -> str:
        """Return the verdict in words and the main figures, for people."""
        moved = distances(self.distance, self.images, self.forecast, _LAYERS)
        return "\n".join([*verdict(self.forecast, self.names), *moved])

    def above(self, alarm: float | None) -> bool:
        """Return whether the predicted error of the model as it is exceeds the alarm, and can be relied on."""
        if alarm is None or self.forecast is None:
            return False
        return self.forecast.sure and self.forecast.plain.error > alarm

    def unknown(self, alarm: float | None) -> bool:
        """Return whether there is an alarm, and nothing to compare it with: the error cannot be told."""
        return alarm is not None and self.forecast is not None and not self.forecast.sure


def assess(
    model: str,
    target: str,
    source: str | None,
    condition: str,
    images: int,
    predictor: Path | None,
    device: str,
    *,
    skip_broken: bool = False,
) -> Assessment:
    """Open a model and data, measure how far the target has moved and, where possible, predict the error on it.

    Args:
        model: the URI of the model, as for `open_model`.
        target: the URI of the images, as for `open_data`; `folder:DIR` means all pictures under it, in any folder.
        source: clean labelled images to learn the prediction from.
        condition: the condition of the target, such as "fog/3".
        images: the number of images to take from the target, spread evenly; three times as many from the source.
        predictor: a file that keeps what is learned from the source; where it exists, no source is needed.
        device: the device to compute on: auto, cpu, cuda or mps.
        skip_broken: leave out pictures that cannot be read; by default the first one raises.
    """
    wanted = parse_condition(condition)
    check_source(source, predictor)
    opened = open_model(model)
    opened.module.to(choose_device(device))
    unlabelled = open_unlabelled(target)
    taken = _read(opened, unlabelled, wanted, images, skip_broken)
    pixels, names = taken.images, tuple(unlabelled.image_name(index) for index in taken.indices.tolist())
    learned = predictor_for(opened, source, predictor, _OF_SOURCE * images, skip_broken=skip_broken)
    if learned is None:
        if not any(map(holds_statistics, opened.module.modules())):
            raise CovshiftError(
                f"{opened.uri} holds no statistics of its training data to compare with; name a source, clean labelled "
                "images, to measure them on"
            )
        statistics = estimate(opened.module, Batches(pixels, opened.preprocess, _BATCH))
        distance = wasserstein(Statistics.of(opened.module), statistics, normalized=True)
        return Assessment(distance, len(pixels), None, names)
    forecast = learned.predict(pixels, among=unlabelled.among)
    return Assessment(forecast.distance, forecast.images, forecast, names)


def check_source(source: str | None, file: Path | None) -> None:
    """Raise a `CovshiftError` if a file is to hold a predictor, and there is nothing to learn one from."""
    if file is not None and source is None and not file.exists():
        raise CovshiftError(f"there is no predictor at {file}; name a source, clean labelled images, to learn one from")


def predictor_for(
    model: Model, source: str | None, file: Path | None, limit: int, *, skip_broken: bool = False
) -> Predictor | None:
    """Return the predictor that a file keeps, or else one that is learned from a source; None without both.

    Args:
        model: what `open_model` returns.
        source: the URI of clean labelled images.
        file: where the predictor is kept, and is written to once it is learned.
        limit: the number of images to learn from, spread evenly.
        skip_broken: whether to leave out pictures that cannot be read; by default the first one raises.
    """
    check_source(source, file)
    if file is not None and file.exists():
        return Predictor.load(file, model, batch_size=_BATCH)
    if source is None:
        return None
    learned = learn(model, open_data(source), limit, skip_broken=skip_broken)
    if file is not None:
        learned.save(file)
    return learned


def learn(
    model: Model, data: Data, limit: int | None, *, skip_broken: bool = False, progress: bool = True
) -> Predictor:
    """Return a predictor that is fitted on clean labelled images of all classes of a model.

    Args:
        model: what `open_model` returns.
        data: the images.
        limit: the number of images to take, spread evenly; None for all.
        skip_broken: whether to leave out pictures that cannot be read; by default the first one raises.
        progress: whether to show a progress bar when this takes long.
    """
    model.check_classes(data.classes, data.uri)
    if data.among is not None:
        raise CovshiftError(
            f"expected clean images of all classes of the model to learn from, got {data.uri}, whose answers are "
            f"compared among {len(data.among)} of them; take a source with all classes, such as imagenet:DIR"
        )
    clean = _read(model, data, CLEAN, len(data) if limit is None else limit, skip_broken)
    return Predictor.fit(model, clean.images, clean.labels, batch_size=_BATCH, progress=progress)


def _read(model: Model, data: Data, condition: Condition, images: int, skip_broken: bool) -> ImageBatch:
    wanted = check_condition(data, condition)
    indices = _spread(len(data), images).tolist()
    selection = Selection(data, indices, model.preprocess.picture, memory=0, skip_broken=skip_broken)
    batches = list(selection.make(wanted))
    if not batches:
        raise CovshiftError(f"expected pictures that can be read in {data.uri}, got none among {len(indices)}")
    return ImageBatch(*(np.concatenate(parts) for parts in zip(*batches, strict=True)))


def _spread(total: int, wanted: int) -> NDArray[np.intp]:
    """Return indices spread evenly: files are often sorted by class."""
    return np.linspace(0, total - 1, min(total, wanted)).round().astype(np.intp)
