"""`Predictor`: the error on images without labels, of the model as it is and of the adapted one."""

import json
import os
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from safetensors.torch import save as to_safetensors
from torch import Tensor, nn

from covshift.core.calling import check_loader
from covshift.core.identity import digest
from covshift.core.places import holds_statistics
from covshift.core.source import Source
from covshift.core.statistics import Statistics
from covshift.core.wrappers import AnyModel, module_of
from covshift.corruptions import category, names
from covshift.corruptions.apply import check_severity
from covshift.models.base import preprocess_of
from covshift.shift.forecast.calibrate import Cell, Setting, calibrate, measure_anchor
from covshift.shift.forecast.doubt import Doubt
from covshift.shift.forecast.follow import Follower
from covshift.shift.forecast.forecast import Forecast, Prediction
from covshift.shift.forecast.imitations import IMITATIONS
from covshift.shift.forecast.judgement import judge_images
from covshift.shift.forecast.knowledge import Knowledge
from covshift.shift.forecast.observe import (
    Batches,
    LabelsLike,
    Observation,
    WhichModel,
    as_labels,
    check_takes_pixels,
    crop_for_model,
    observe,
)
from covshift.shift.forecast.regression import Calibration, Line, check_measured, fit_line
from covshift.shift.forecast.signals import METHODS, PredictionMethod, Scale, signal, signals_of
from covshift.shift.forecast.stored import pack_knowledge, pack_source, unpack_knowledge, unpack_source
from covshift.support.checks import (
    check_choice,
    check_flags,
    check_kind,
    check_list,
    check_number,
    check_path,
    check_seed,
)
from covshift.support.errors import CovshiftError, plural
from covshift.support.files import replacing
from covshift.support.pixels import Images, MakeInput, is_pixels
from covshift.support.tensors import reading

_FORMAT = "covshift predictor 1"
_HELD = "held"  # in the metadata: the source is for classes only, and the model is adapted by what it holds
_IMITATED = (3, 5)  # severities that imitations are made at, where these are asked for


class Predictor:
    """A predictor of a model's error without labels; made by `fit` or `load`.

    Attributes:
        conditions: the corruptions of calibration, with the errors and the signals measured on them.
        source: what clean images look like inside of the model; None for the statistics that the model holds.
        anchor: a source that knows what classes do to the activations; None where none could be measured.
        knowledge: what tells whether a prediction can be relied on; None of a predictor of an older version.
    """

    def __init__(
        self,
        model: AnyModel,
        conditions: Sequence[Calibration],
        scale: Scale,
        preprocess: MakeInput | None = None,
        batch_size: int = 100,
        source: Source | None = None,
        anchor: Source | None = None,
        knowledge: Knowledge | None = None,
    ) -> None:
        check_number(batch_size, "batch_size", 1, whole=True, of="images")
        self.conditions = tuple(conditions)
        self.source = source
        self.anchor = anchor
        self.knowledge = knowledge
        self._model = module_of(model)
        self._scale = scale
        self._preprocess = preprocess_of(model, preprocess)
        self._batch_size = batch_size

    def __repr__(self) -> str:
        return f"Predictor({type(self._model).__name__}, {plural(len(self.conditions), 'calibration condition')})"

    @property
    def model(self) -> nn.Module:
        """The module whose errors are predicted."""
        return self._model

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
        imitations: Sequence[str] = IMITATIONS,
        seed: int = 0,
        batch_size: int = 100,
        source: Source | None = None,
        progress: bool = True,
    ) -> Self:
        """Learn how a model's error depends on what can be measured without labels, on shifts made of clean images.

        Takes two passes over the images for every condition: 86 with the defaults. About 1,000 images will do; of more,
        every condition is shown another 1,000, so that more images make predictions better and hardly cost more time.

        Args:
            model: what `open_model` returned, or any classifier in eval mode.
            images: clean images that the model was not trained on; uint8, NumPy NHWC or torch NCHW.
            labels: the classes of the images.
            preprocess: a `covshift.models.Preprocess`, or a function that makes the model's input of a batch of uint8
                images, torch NCHW; by default the model's own, and a bare module gets the uint8 images themselves.
            corruptions: the corruptions to learn on; by default the four that ImageNet-C holds out for this.
            severities: the severities of the corruptions.
            imitations: other shifts to imitate, at severities 3 and 5 of those given: drawings, silhouettes, other
                views and styles. They show how far off a prediction may be on shifts that are no corruptions.
            seed: the seed of the noise.
            batch_size: the number of images to run at a time.
            source: what clean images look like inside of the model, to adapt it by. By default the statistics that it
                holds and, of a network that holds none, a source that is measured on these images.
            progress: whether to show a progress bar when this takes long.
        """
        check_flags(progress=progress)
        check_number(batch_size, "batch_size", 1, whole=True, of="images")
        check_seed(seed)
        check_kind(source, Source | None, "source", "a Source")
        corrupted, imitated = _cells(corruptions, severities, imitations)
        truth = as_labels(labels, images)
        module, make_input = module_of(model), preprocess_of(model, preprocess)
        clean = crop_for_model(images, make_input)
        batches = Batches(clean, make_input, batch_size)
        if make_input is None:
            check_takes_pixels(module, clean)
        anchor = source if source is not None and source.measured else None
        if anchor is None:
            anchor = measure_anchor(module, batches, len(truth))
        if source is None and not any(map(holds_statistics, module.modules())):
            source = anchor
        setting = Setting(module, clean, truth, make_input, batch_size, source, anchor, seed)
        found = calibrate(setting, corrupted, imitated, progress=progress)
        return cls(model, found.conditions, found.scale, preprocess, batch_size, source, anchor, found.knowledge)

    def predict(
        self,
        images: Images | Iterable[Any],
        *,
        method: PredictionMethod = "best",
        kind: str | None = None,
        among: Sequence[int] | None = None,
    ) -> Forecast:
        """Predict the error on images without labels, of the model as it is and of the model adapted to them.

        Takes two passes and a half over the images.

        Args:
            images: uint8, NumPy NHWC or torch NCHW; or a loader of the model's input, as `Data.loader` gives, which
                is read up to three times. Some hundred images at least: the adapted model is adapted to these.
            method: the signal to predict from: "best" (what both models believe of each answer, minding the classes),
                "judge" (what the adapted model believes), "agreement", "distance" (the paper's), "confidence",
                "difference" (of confidences), "threshold" (of confidence), or "combined" (three of these).
            kind: "noise", "blur", "weather" or "digital" to learn from the holdout corruption of that kind alone, as
                the paper does.
            among: the classes that can be the answer, where it is known that these are not all, as in ImageNet-R.
        """
        check_choice(method, "method", METHODS)
        classes = None if among is None else check_list(among, "among", "classes")
        batches: Iterable[Any] = images
        if isinstance(images, np.ndarray | Tensor):
            batches = Batches(crop_for_model(images, self._preprocess), self._preprocess, self._batch_size)
            if self._preprocess is None and is_pixels(images):
                check_takes_pixels(self._model, images)
        elif not isinstance(images, Iterable) or iter(images) is images:
            raise CovshiftError("expected images, or a loader that can be gone through twice")
        seen = self.observe(batches)
        return self.predict_observed(seen if classes is None else seen.among(classes), method=method, kind=kind)

    def observe(self, batches: Iterable[Any]) -> Observation:
        """Return what is seen of images without labels, for `predict_observed`; goes through `batches` three times."""
        return observe(self._model, check_loader(batches, self._batch_size), self.source, self.anchor)

    def predict_observed(
        self, seen: Observation, *, method: PredictionMethod = "best", kind: str | None = None
    ) -> Forecast:
        """Predict the errors from what `observe` has seen of the images."""
        check_kind(seen, Observation, "seen", "what observe() returned")
        check_choice(method, "method", METHODS)
        judgement = judge_images(seen, self.knowledge, self._doubt, self._scale.temperature)
        if method == "best" and kind is None and judgement.plain is not None and judgement.adapted is not None:
            plain, adapted = judgement.plain, judgement.adapted
        else:
            chosen: PredictionMethod = "judge" if method == "best" else method
            plain, adapted = (self._by_line(which, chosen, kind, seen) for which in ("plain", "adapted"))
        return judgement.forecast(plain, adapted, seen)

    def follow(self, memory: float = 200) -> Follower:
        """Return what forecasts the errors on running streams, from an adapter's answers and statistics.

        Make it before the model is adapted: where there is no source, streams are compared with what the model holds.

        Args:
            memory: the number of images that are remembered, as `Live` has it.
        """
        check_number(memory, "memory", 1, of="images")
        if self.knowledge is None:
            raise CovshiftError("a predictor that an older version has saved cannot follow a stream; fit it again")
        held = any(map(holds_statistics, self._model.modules()))
        origin = Statistics.of(self._model) if self.source is None and held else None
        if self.source is not None:
            origin = self.source.statistics
        return Follower(self.knowledge, self._scale.temperature, origin, memory)

    @cached_property
    def _doubt(self) -> Doubt | None:
        return None if self.knowledge is None else self.knowledge.doubt()

    def _by_line(self, which: WhichModel, method: PredictionMethod, kind: str | None, seen: Observation) -> Prediction:
        signals = [signal(name, which, seen, self._scale) for name in signals_of(method)]
        error, margin = self.line(which, method, kind).at(signals, seen.different)
        return Prediction(error, max(0.0, error - margin), min(1.0, error + margin))

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
        held, anchors = pack_source(self.anchor if self.source is None else self.source)
        metadata = {
            "format": _FORMAT,
            "weights": digest(self._model),
            "scale": json.dumps(self._scale),
            "signals": json.dumps(methods),
            "conditions": json.dumps([(each.corruption, each.severity) for each in self.conditions]),
            **anchors,
            **pack_knowledge(self.knowledge),
            **({_HELD: "yes"} if self.source is None else {}),
        }
        tensors = {"measured": torch.tensor(rows, dtype=torch.float64), **held}
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
            anchor, knowledge = unpack_source(file, metadata, model), unpack_knowledge(metadata)
            conditions = [
                Calibration(name, level, plain, adapted, dict(zip(methods, values, strict=True)))
                for (name, level), (plain, adapted, *values) in zip(cells, measured.tolist(), strict=True)
            ]
            check_measured(conditions, scale)
        if weights != digest(module_of(model)):
            raise CovshiftError(f"{path} was fitted on another model or on other weights; fit it on this one")
        source = None if _HELD in metadata else anchor
        return cls(model, conditions, scale, preprocess, batch_size, source, anchor, knowledge)


def _cells(
    corruptions: Sequence[str] | None, severities: Sequence[int], imitations: Sequence[str]
) -> tuple[list[Cell], list[Cell]]:
    """Return the corruptions and the imitations to learn on, with their severities, or raise a `CovshiftError`."""
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
    others = list(dict.fromkeys(check_list(imitations, "imitations", "names")))
    for name in others:
        check_choice(name, "imitation", IMITATIONS)
    some = [level for level in _IMITATED if level in levels] or levels[-1:]
    return [(name, s) for name in chosen for s in levels], [(name, s) for name in others for s in some]
