"""Predicted errors of cameras, by a saved `Predictor`."""

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from torch import Tensor

from covshift.core.fleet import Camera
from covshift.core.forecasting import MEMORY, Forecaster
from covshift.core.policies import Policy
from covshift.core.seen import images_in
from covshift.models.base import Model
from covshift.serve.events import Predicted
from covshift.serve.service import Predict
from covshift.shift.forecast.predictor import Predictor

EVERY = 8
"""Number of new images of a camera after which its error is predicted anew, since that takes a while."""


@dataclass
class _Recent:
    """What is remembered of the last answers of a camera, and the prediction made from them."""

    answers: Any = None
    images: int = 0  # since the prediction
    predicted: Predicted | None = None


def open_predictor(path: str | Path, model: Model, policy: Policy) -> Predict:
    """Return what predicts the errors of cameras, from a file that `Predictor.save` wrote for this model.

    Call this before the model is adapted.
    """
    return make_predict(Predictor.load(path, model).follow(getattr(policy, "memory", MEMORY)), carries=policy.carries)


def make_predict(forecaster: Forecaster, *, carries: bool = True) -> Predict:
    """Return what predicts the errors of cameras; None where these cannot be told.

    Args:
        forecaster: what `Predictor.follow` returned.
        carries: whether the policy carries what it has seen from batch to batch.
    """
    cameras: WeakKeyDictionary[Camera, _Recent] = WeakKeyDictionary()
    predicting = threading.Lock()  # passes of different cameras run at once

    def predict(camera: Camera, logits: Tensor) -> Predicted | None:
        with predicting:
            return update(camera, logits)

    def update(camera: Camera, logits: Tensor) -> Predicted | None:
        seen = camera.memory.seen
        recent = cameras.get(camera)
        anew = carries and not camera.frozen and images_in(seen) <= len(logits)  # it remembers no more than this
        if recent is None or anew:
            recent = cameras[camera] = _Recent()
        if not logits.isfinite().all():
            return recent.predicted
        recent.answers = forecaster.remember(recent.answers, logits)
        recent.images += len(logits)
        if recent.images >= EVERY:
            outlook = forecaster.forecast(recent.answers, seen)
            error = outlook.adapted
            recent.predicted = Predicted(error.error, error.low, error.high) if outlook.sure else None
            recent.images = 0
        return recent.predicted

    return predict
