"""`check`: the errors of a repaired model, and of the model before, on images with labels."""

import hashlib
import os
from typing import NamedTuple

import torch

from covshift.core.statistics import Statistics
from covshift.data import Data
from covshift.models import Model, open_model
from covshift.repairs.card import Card
from covshift.repairs.folder import CARD, PATCH
from covshift.support.checks import check_kind, check_path
from covshift.support.classes import restrict
from covshift.support.device import choose_device
from covshift.support.errors import CovshiftError


class Check(NamedTuple):
    """Errors from 0 to 1, counted with labels.

    Attributes:
        before: the error of the model as it was.
        after: the error of the repaired model.
        images: the number of images.
    """

    before: float
    after: float
    images: int


def check(folder: str | os.PathLike[str], labelled: Data, *, device: str = "auto", limit: int | None = None) -> Check:
    """Count the errors of a repaired model, and of the model before.

    Args:
        folder: the folder that `Repair.save` or `covshift repair` wrote.
        labelled: images of the same domain with labels, as `open_data` returns them.
        device: the device to compute on: auto, cpu, cuda or mps.
        limit: the number of images to take; by default all.
    """
    root = check_path(folder, "folder")
    check_kind(labelled, Data, "labelled", "labelled images, as open_data returns them")
    card = Card.load(root / CARD)
    patch = Statistics.load(root / PATCH)
    if hashlib.sha256((root / PATCH).read_bytes()).hexdigest() != card.files.get(PATCH):
        raise CovshiftError(f"{root / PATCH} is not the patch that its card describes; repair the model again")
    model = open_model(card.model)
    if model.digest != card.weights:
        raise CovshiftError(f"{card.model} has other weights than those that were repaired; open the same ones")
    model.check_classes(labelled.classes, labelled.uri)
    model.module.to(choose_device(device))
    before, images = _error(model, labelled, limit)
    patch.apply(model)
    return Check(before, _error(model, labelled, limit)[0], images)


def _error(model: Model, data: Data, limit: int | None) -> tuple[float, int]:
    wrong = images = 0
    with torch.inference_mode():
        for batch, labels in data.loader(model, limit=limit):
            logits = model(batch).cpu()
            wrong += int((restrict(logits, data.among).argmax(1) != labels).sum())
            images += len(labels)
    return wrong / images, images
