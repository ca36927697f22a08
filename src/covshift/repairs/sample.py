"""Some images of the target, as the model sees them, with its answers before and after."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from covshift.core.wrappers import AnyModel
from covshift.models.base import Model
from covshift.support.arrays import Array
from covshift.support.classes import restrict

_MOST = 8


class Sample(NamedTuple):
    """An image of the target.

    Attributes:
        pixels: the image as uint8 HWC, resized and cropped; None for a model whose preprocessing is not known.
        plain: the class that the model answers as it is.
        adapted: the class that it answers once it is adapted.
    """

    pixels: Array | None
    plain: int
    adapted: int


def take_samples(
    model: AnyModel, batches: Iterable[Any], plain: Tensor, adapted: Tensor, among: Sequence[int] | None = None
) -> tuple[Sample, ...]:
    """Return up to eight images of the first batch, those first whose answer changes.

    Args:
        model: the model; only what `open_model` returns can make pixels of its input again.
        batches: batches of its input.
        plain: the logits of the model as it is.
        adapted: the logits of the adapted model.
        among: the classes that can be the answer; None for all of them.
    """
    first: Any = next(iter(batches), None)
    images = first[0] if isinstance(first, tuple | list) else first
    if not isinstance(images, Tensor):
        return ()
    before, after = (restrict(logits[: len(images)], among).argmax(1) for logits in (plain, adapted))
    chosen = torch.argsort((before == after).int(), stable=True)[:_MOST]
    return tuple(
        Sample(_pixels(model, images[place]), int(before[place]), int(after[place])) for place in chosen.tolist()
    )


def _pixels(model: AnyModel, image: Tensor) -> Array | None:
    if not isinstance(model, Model) or image.shape[0] != 3 or not image.is_floating_point():
        return None
    std, mean = (torch.tensor(values).view(3, 1, 1) for values in (model.preprocess.std, model.preprocess.mean))
    pixels = (image.cpu() * std + mean) * 255
    return np.ascontiguousarray(pixels.round().clamp(0, 255).byte().permute(1, 2, 0).numpy())
