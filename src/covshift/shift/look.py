"""A `Look` at images without labels: what the plain and the adapted model answer, and how far statistics have moved."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from covshift.errors import CovshiftError
from covshift.full import call_model, estimate
from covshift.shift.distance import Distance, wasserstein
from covshift.statistics import Statistics

Which = Literal["plain", "adapted"]
Images = NDArray[np.uint8] | Tensor
Preprocess = Callable[[Tensor], Tensor]


class Look(NamedTuple):
    """What can be seen of some images without labels: logits [images, classes] of both models, and the shift."""

    plain: Tensor
    adapted: Tensor
    distance: Distance

    def logits(self, which: Which) -> Tensor:
        """Those of the plain or of the adapted model."""
        return self.plain if which == "plain" else self.adapted


def look(model: nn.Module, batches: Iterable[Any]) -> Look:
    """Run `model` on the images, as it is and fully adapted to them."""
    with torch.inference_mode():
        plain = [_check_logits(call_model(model, batch)).cpu() for batch in batches]
    found: dict[int, Tensor] = {}

    def keep(position: int, logits: Tensor) -> None:
        found[position] = logits.cpu()

    source = Statistics.of(model)
    target = estimate(model, batches, collect=keep, progress=False)
    adapted = [found[position] for position in sorted(found)]
    return Look(torch.cat(plain).float(), torch.cat(adapted).float(), wasserstein(source, target, normalized=True))


class Batches:
    """Images as batches of the model's input, made one at a time, as often as they are asked for."""

    def __init__(self, images: Images, preprocess: Preprocess | None, size: int) -> None:
        if not isinstance(images, np.ndarray | Tensor) or images.ndim != 4:
            got = f"shape {tuple(images.shape)}" if hasattr(images, "shape") else type(images).__name__
            raise CovshiftError(f"expected a batch of images, NumPy NHWC or torch NCHW, got {got}")
        if len(images) < 2 or not (torch.as_tensor(images[1:]) != torch.as_tensor(images[:1])).any():
            raise CovshiftError("expected several different images, got the same one over and over, or none")
        self._images = images
        self._preprocess = preprocess
        self._size = size

    def __len__(self) -> int:
        return -(-len(self._images) // self._size)

    def __iter__(self) -> Iterator[Tensor]:
        for start in range(0, len(self._images), self._size):
            part = self._images[start : start + self._size]
            batch = part if isinstance(part, Tensor) else torch.from_numpy(np.moveaxis(part, -1, 1).copy())
            yield batch if self._preprocess is None else self._preprocess(batch)


def _check_logits(logits: object) -> Tensor:
    if not isinstance(logits, Tensor) or logits.ndim != 2 or logits.shape[1] < 2:
        got = f"shape {tuple(logits.shape)}" if isinstance(logits, Tensor) else type(logits).__name__
        raise CovshiftError(f"expected the model to give logits [images, classes], got {got}")
    return logits
