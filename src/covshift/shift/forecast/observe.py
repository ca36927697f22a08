"""A `Look` at images without labels: what the plain and the adapted model answer, and how far statistics have moved."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from covshift.core.estimate import call_model, estimate
from covshift.core.statistics import Statistics
from covshift.shift.distance import Distance, wasserstein
from covshift.support.classes import select
from covshift.support.errors import CovshiftError

Which = Literal["plain", "adapted"]
Images = NDArray[np.uint8] | Tensor
Labels = Sequence[int] | NDArray[Any] | Tensor
Preprocess = Callable[[Tensor], Tensor]


class Look(NamedTuple):
    """What can be seen of some images without labels: logits [images, classes] of both models, and the shift."""

    plain: Tensor
    adapted: Tensor
    distance: Distance

    def logits(self, which: Which) -> Tensor:
        """Those of the plain or of the adapted model."""
        return self.plain if which == "plain" else self.adapted

    def among(self, classes: Sequence[int]) -> "Look":
        """The same where only these classes can be the answer."""
        return self._replace(plain=select(self.plain, classes), adapted=select(self.adapted, classes))


def look(model: nn.Module, batches: Iterable[Any]) -> Look:
    """Run `model` on the images, as it is and fully adapted to them; goes through `batches` twice."""
    sums, answers = [], []
    with torch.inference_mode():
        for batch in batches:
            sums.append(_sums(batch))
            answers.append(check_logits(call_model(model, batch)))

    def again() -> Iterator[Any]:
        # The two models' answers to an image are compared, so that a loader that shuffles would spoil everything.
        for position, batch in enumerate(batches):
            if position >= len(sums) or not torch.equal(_sums(batch), sums[position]):
                raise CovshiftError(
                    "expected a loader that gives the same images in the same order each time, got others the second "
                    "time; turn off shuffling and random augmentation"
                )
            yield batch

    found: dict[int, Tensor] = {}

    def keep(position: int, logits: Tensor) -> None:
        found[position] = check_logits(logits)

    source = Statistics.of(model)
    target = estimate(model, again(), collect=keep, progress=False)
    plain, adapted = torch.cat(answers).float(), torch.cat([found[position] for position in sorted(found)]).float()
    if len(plain) < 2 or bool((plain == plain[0]).all()):
        raise _same()
    return Look(plain, adapted, wasserstein(source, target, normalized=True))


class Batches:
    """Images as batches of the model's input, made one at a time, as often as they are asked for."""

    def __init__(self, images: Images, preprocess: Preprocess | None, size: int) -> None:
        if not isinstance(images, np.ndarray | Tensor) or images.ndim != 4:
            got = f"shape {tuple(images.shape)}" if hasattr(images, "shape") else type(images).__name__
            raise CovshiftError(f"expected a batch of images, NumPy NHWC or torch NCHW, got {got}")
        if len(images) < 2 or not (torch.as_tensor(images[1:]) != torch.as_tensor(images[:1])).any():
            raise _same()
        if size < 1:
            raise CovshiftError(f"expected at least 1 image at a time, got batch={size}")
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


def check_labels(labels: Labels, images: Images) -> Tensor:
    """The labels as whole numbers, one for each image; else an error."""
    found = torch.as_tensor(labels)
    if found.shape != (len(images),):
        raise CovshiftError(f"expected one label for each of {len(images)} images, got shape {tuple(found.shape)}")
    if found.is_floating_point() or bool((found < 0).any()):
        raise CovshiftError(
            f"expected labels to be classes, whole numbers from 0, got {found.dtype} from {found.min()}"
        )
    return found.long().cpu()


def check_logits(logits: object) -> Tensor:
    """The logits, on the CPU, where they are finite and one row for each image; else an error."""
    if not isinstance(logits, Tensor) or logits.ndim != 2 or logits.shape[1] < 2:
        got = f"shape {tuple(logits.shape)}" if isinstance(logits, Tensor) else type(logits).__name__
        raise CovshiftError(f"expected the model to give logits [images, classes], got {got}")
    if not logits.isfinite().all():
        raise CovshiftError("the model's logits are NaN or infinite; check the images, its weights and its precision")
    return logits.cpu()


def _sums(batch: Any) -> Tensor:
    """A number for each image of a batch, to know it again by."""
    images = next(iter(batch.values()), None) if isinstance(batch, Mapping) else batch
    images = images[0] if isinstance(images, tuple | list) and images else images
    if not isinstance(images, Tensor) or images.ndim < 2:
        raise CovshiftError(f"expected a loader of batches of images as tensors, got {type(images).__name__}")
    return images.flatten(1).float().sum(1).nan_to_num().cpu()


def _same() -> CovshiftError:
    return CovshiftError("expected several different images, got the same one over and over, or none")
