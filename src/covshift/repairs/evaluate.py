"""`check`: the errors of a repaired model, and of the model before, on images with labels."""

import os
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch

from covshift.core.statistics import Statistics
from covshift.data import Data
from covshift.models import Model, open_model
from covshift.repairs.batches import spread
from covshift.repairs.card import Card
from covshift.repairs.folder import CARD, PATCH
from covshift.support.cache import checksum
from covshift.support.checks import check_flags, check_kind, check_number, check_path
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


def check(
    folder: str | os.PathLike[str],
    labelled: Data,
    *,
    device: str = "auto",
    limit: int | None = None,
    skip_broken: bool = False,
) -> Check:
    """Count the errors of a repaired model, and of the model before.

    Args:
        folder: the folder that `Repair.save` or `covshift repair` wrote.
        labelled: images of the same domain with labels, as `open_data` returns them.
        device: the device to compute on: auto, cpu, cuda or mps.
        limit: the number of images to take; by default all.
        skip_broken: whether to leave out pictures that cannot be read.
    """
    check_flags(skip_broken=skip_broken)
    if limit is not None:
        check_number(limit, "limit", 1, whole=True, of="images")
    root = check_path(folder, "folder")
    check_kind(labelled, Data, "labelled", "labelled images, as open_data returns them")
    card = Card.load(root / CARD)
    patch = Statistics.load(root / PATCH)
    for name, digest in card.files.items():
        if (file := root / name).exists() and checksum(file, "SHA-256") != digest:
            raise CovshiftError(f"{file} is not the file that its card describes; repair the model again")
    if PATCH not in card.files:
        raise CovshiftError(f"the card of {root} describes no patch; repair the model again")
    if ":" not in card.model:
        raise CovshiftError(
            f"{root} was made of a {card.model} in Python, which cannot be opened by name; apply its {PATCH} to that "
            "model, and count the errors there"
        )
    model = open_model(card.model)
    if model.digest != card.weights:
        raise CovshiftError(f"{card.model} has other weights than those that were repaired; open the same ones")
    model.check_classes(labelled.classes, labelled.uri)
    model.module.to(choose_device(device))
    loader = spread(labelled.loader(model, order="shuffled", skip_broken=skip_broken), limit)
    before, images = _error(model, loader, labelled.among)
    patch.apply(model)
    return Check(before, _error(model, loader, labelled.among)[0], images)


def _error(model: Model, loader: Iterable[Any], among: Sequence[int] | None) -> tuple[float, int]:
    """Return the error and the number of images that it was counted on."""
    wrong = images = 0
    with torch.inference_mode():
        for batch, labels in loader:
            wrong += int((restrict(model(batch).cpu(), among).argmax(1) != labels).sum())
            images += len(labels)
    if not images:
        raise CovshiftError("expected labelled pictures that can be read, got none")
    return wrong / images, images
