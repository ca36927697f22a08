"""`Predictor`: the error on images without labels, of the model as it is and of the adapted one."""

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from safetensors.torch import save as to_safetensors
from torch import Tensor

from covshift.core.identity import digest, fingerprint
from covshift.core.packing import pack, unpack
from covshift.core.places import holds_statistics
from covshift.core.source import Source
from covshift.core.statistics import Statistics
from covshift.core.wrappers import AnyModel, module_of
from covshift.corruptions import category, corrupt, names
from covshift.corruptions.apply import check_severity
from covshift.models.base import preprocess_of
from covshift.shift.distance import Distance
from covshift.shift.forecast.observe import (
    Batches,
    LabelsLike,
    Observation,
    WhichModel,
    as_labels,
    crop_for_model,
    observe,
)
from covshift.shift.forecast.regression import Calibration, Line, check_measured, fit_line
from covshift.shift.forecast.signals import METHODS, SIGNALS, PredictionMethod, Scale, fit_scale, signal, signals_of
from covshift.support.checks import check_choice, check_flags, check_kind, check_list, check_number, check_path
from covshift.support.errors import CovshiftError, plural
from covshift.support.files import replacing
from covshift.support.pixels import Images, MakeInput
from covshift.support.progress import progress_bar
from covshift.support.tensors import reading

_FORMAT = "covshift predictor 1"
_SOURCE = "source "  # before the names of the tensors of a measured source


class Prediction(NamedTuple):
    """A predicted error, from 0 to 1, and an interval that should hold it 19 times out of 20."""

    error: float
    low: float
    high: float


@dataclass(frozen=True)
class Forecast:
    """The predicted errors on shifted images, without and with adaptation.

    Attributes:
        plain: the error of the model as it is.
        adapted: the error of the model fully adapted to these images.
        distance: the normalised Wasserstein distance from the source, per layer and averaged.
        images: the number of images that this was measured on.
    """

    plain: Prediction
    adapted: Prediction
    distance: Distance
    images: int


class Predictor:
    """A predictor of a model's error without labels; made by `fit` or `load`.

    Attributes:
        conditions: the calibration conditions, with the errors and the signals measured on them.
        source: what clean images look like inside of the model; None for the statistics that the model holds.
    """

    def __init__(
        self,
        model: AnyModel,
        conditions: Sequence[Calibration],
        scale: Scale,
        preprocess: MakeInput | None = None,
        batch_size: int = 100,
        source: Source | None = None,
    ) -> None:
        check_number(batch_size, "batch_size", 1, whole=True, of="images")
        self.conditions = tuple(conditions)
        self.source = source
        self._model = module_of(model)
        self._scale = scale
        self._preprocess = preprocess_of(model, preprocess)
        self._batch_size = batch_size

    def __repr__(self) -> str:
        return f"Predictor({type(self._model).__name__}, {plural(len(self.conditions), 'calibration condition')})"

    @classmethod
    def fit(
        cls,
        model: AnyModel,
        images: Images,
        labels: LabelsLike,
        *,
        preprocess: MakeInput | None = None,
        corruptions: Sequence[str] | None = None,
        severities: Sequence[int] = (1, 2, 3, 4, 5),
        seed: int = 0,
        batch_size: int = 100,
        source: Source | None = None,
        progress: bool = True,
    ) -> Self:
        """Learn how a model's error depends on what can be measured without labels, on corruptions of clean images.

        Takes two passes over the images for every condition: 42 with the defaults. About 1,000 images will do.

        Args:
            model: what `open_model` returned, or any classifier in eval mode.
            images: clean images that the model was not trained on; uint8, NumPy NHWC or torch NCHW.
            labels: the classes of the images.
            preprocess: a `covshift.models.Preprocess`, or a function that makes the model's input of a batch of uint8
                images, torch NCHW; by default the model's own, and a bare module gets the uint8 images themselves.
            corruptions: the corruptions to learn on; by default the four that ImageNet-C holds out for this.
            severities: the severities of the corruptions.
            seed: the seed of the noise.
            batch_size: the number of images to run at a time.
            source: what clean images look like inside of the model, to adapt it by. By default the statistics that it
                holds and, of a network that holds none, a source that is measured on these images.
            progress: whether to show a progress bar when this takes long.
        """
        check_flags(progress=progress)
        check_number(batch_size, "batch_size", 1, whole=True, of="images")
        levels = [check_severity(level) for level in check_list(severities, "severities", "numbers from 1 to 5")]
        given = names("holdout") if corruptions is None else check_list(corruptions, "corruptions", "names")
        for name in given:
            category(name)  # complains about a name that nobody knows
        chosen = tuple(dict.fromkeys(given))
        if len(chosen) < 2:
            raise CovshiftError(
                f"expected at least 2 holdout corruptions to fit on, got {len(chosen)}; one alone does not show how "
                "far off the prediction is on another"
            )
        if not levels:
            raise CovshiftError("expected at least one severity to fit on, got none")
        truth = as_labels(labels, images)
        module, make_input = module_of(model), preprocess_of(model, preprocess)
        clean = crop_for_model(images, make_input)
        if source is None and not any(map(holds_statistics, module.modules())):
            source = Source.measure(module, Batches(clean, make_input, batch_size), progress=False)
        cells: list[tuple[str, int]] = [("clean", 0), *((name, level) for name in chosen for level in levels)]
        seen = []
        with progress_bar("calibrating", len(cells), enabled=progress) as advance:
            for name, level in cells:
                corrupted = clean if name == "clean" else corrupt(clean, name, level, seed=seed)
                seen.append(observe(module, Batches(corrupted, make_input, batch_size), source))
                if (highest := int(truth.max())) >= (classes := seen[-1].plain.shape[1]):
                    raise CovshiftError(f"expected labels below {classes}, the model's classes, got {highest}")
                advance(1)
        scale = fit_scale(seen[0], seen, truth)
        conditions = [_calibration(*cell, each, scale, truth) for cell, each in zip(cells, seen, strict=True)]
        return cls(model, conditions, scale, preprocess, batch_size, source)

    def predict(
        self,
        images: Images | Iterable[Any],
        *,
        method: PredictionMethod = "judge",
        kind: str | None = None,
        among: Sequence[int] | None = None,
    ) -> Forecast:
        """Predict the error on images without labels, of the model as it is and of the model adapted to them.

        Args:
            images: uint8, NumPy NHWC or torch NCHW; or a loader of the model's input, as `Data.loader` gives, which
                is read twice. Some hundred images at least: the adapted model is adapted to these.
            method: the signal to predict from: "judge" (best in our tests), "agreement", "distance" (the paper's),
                "confidence", "difference" (of confidences), "threshold" (of confidence), or "combined" (the first
                three).
            kind: "noise", "blur", "weather" or "digital" to learn from the holdout corruption of that kind alone, as
                the paper does.
            among: the classes that can be the answer, where it is known that these are not all, as in ImageNet-R.
        """
        check_choice(method, "method", METHODS)
        classes = None if among is None else check_list(among, "among", "classes")
        batches: Iterable[Any] = images
        if isinstance(images, np.ndarray | Tensor):
            batches = Batches(crop_for_model(images, self._preprocess), self._preprocess, self._batch_size)
        elif not isinstance(images, Iterable) or iter(images) is images:
            raise CovshiftError("expected images, or a loader that can be gone through twice")
        seen = observe(self._model, batches, self.source)
        return self.predict_observed(seen if classes is None else seen.among(classes), method=method, kind=kind)

    def predict_observed(
        self, seen: Observation, *, method: PredictionMethod = "judge", kind: str | None = None
    ) -> Forecast:
        """Predict the errors from what `observe` has seen of the images."""

        def predict(which: WhichModel) -> Prediction:
            signals = [signal(name, which, seen, self._scale) for name in signals_of(method)]
            error, margin = self.line(which, method, kind).at(signals, len(seen.plain))
            return Prediction(error, max(0.0, error - margin), min(1.0, error + margin))

        return Forecast(predict("plain"), predict("adapted"), seen.distance, len(seen.plain))

    def line(self, which: WhichModel, method: PredictionMethod = "judge", kind: str | None = None) -> Line:
        """Return the line from a signal to the error of the plain or adapted model, on the calibration conditions."""
        check_choice(which, "model", ("plain", "adapted"))
        check_choice(method, "method", METHODS)
        if kind is not None:
            check_kind(kind, str, "kind", "a kind of corruption such as 'noise'")
        return fit_line(self.conditions, which, method, kind)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all that was learned to one safetensors file; the model is not in it."""
        target = check_path(path, "path")
        methods = list(self.conditions[0].signals)
        rows = [[each.plain, each.adapted, *(each.signals[name] for name in methods)] for each in self.conditions]
        metadata = {
            "format": _FORMAT,
            "weights": digest(self._model),
            "scale": json.dumps(self._scale),
            "signals": json.dumps(methods),
            "conditions": json.dumps([(each.corruption, each.severity) for each in self.conditions]),
        }
        tensors = {"measured": torch.tensor(rows, dtype=torch.float64)}
        if self.source is not None and self.source.measured:
            tensors |= pack(self.source.statistics, _SOURCE)
            metadata["places"] = json.dumps(list(self.source.statistics))
        with replacing(target) as file:
            file.write_bytes(to_safetensors(tensors, metadata))

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        model: AnyModel,
        *,
        preprocess: MakeInput | None = None,
        batch_size: int = 100,
    ) -> Self:
        """Read a predictor that `save` wrote, for the model that it was fitted on.

        Args:
            path: the file.
            model: the same model with the same weights and statistics.
            preprocess: as for `fit`.
            batch_size: the number of images to run at a time.
        """
        path = check_path(path, "path")
        with reading(path, _FORMAT, "predictor", again="fit and save it again") as (file, metadata):
            methods, cells = json.loads(metadata["signals"]), json.loads(metadata["conditions"])
            scale = Scale(*map(float, json.loads(metadata["scale"])))
            measured, weights = file.get_tensor("measured"), metadata["weights"]
            anchors = unpack(file, json.loads(metadata["places"]), _SOURCE) if "places" in metadata else None
            conditions = [
                Calibration(name, level, plain, adapted, dict(zip(methods, values, strict=True)))
                for (name, level), (plain, adapted, *values) in zip(cells, measured.tolist(), strict=True)
            ]
            check_measured(conditions, scale)
        if weights != digest(module_of(model)):
            raise CovshiftError(f"{path} was fitted on another model or on other weights; fit it on this one")
        source = None
        if anchors is not None:
            statistics = Statistics(anchors, fingerprint(module_of(model)))
            statistics.check_values()
            source = Source(statistics, {}, weights, measured=True)
        return cls(model, conditions, scale, preprocess, batch_size, source)


def _calibration(corruption: str, severity: int, seen: Observation, scale: Scale, truth: Tensor) -> Calibration:
    def error(which: WhichModel) -> float:
        return (seen.logits(which).argmax(1) != truth).double().mean().item()

    sides: tuple[WhichModel, ...] = ("plain", "adapted")
    signals = {f"{which} {method}": signal(method, which, seen, scale) for which in sides for method in SIGNALS}
    return Calibration(corruption, severity, error("plain"), error("adapted"), signals)
