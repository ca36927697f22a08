"""Where the training loop gets its batches from; what a batch holds follows from its indices and its generator."""

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from covshift.corruptions.seeding import Array
from covshift.data.cifar10 import Images
from covshift.errors import CovshiftError
from covshift.recipes.augment import AUGMENTS, Augment

CIFAR_MEAN = (0.4914, 0.4822, 0.4465)
CIFAR_STD = (0.2470, 0.2435, 0.2616)


class Batch(NamedTuple):
    """Normalised images N x 3 x H x W and labels; with v views of each image there are v times as many images."""

    images: Tensor
    labels: Tensor


class Feed(Protocol):
    """Training and test images, whatever they are kept in."""

    classes: int
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __len__(self) -> int:
        """How many training images there are."""

    def train(self, indices: Array, rng: np.random.Generator) -> Batch:
        """These training images, augmented."""

    def test(self, size: int) -> Iterator[Batch]:
        """All test images in order, so many at a time."""


class ArrayFeed:
    """Images that fit in memory, as uint8 NHWC."""

    def __init__(
        self,
        train: Images,
        test: Images,
        augment: Augment,
        *,
        mean: tuple[float, ...] = CIFAR_MEAN,
        std: tuple[float, ...] = CIFAR_STD,
        classes: int = 10,
    ) -> None:
        if not len(train.labels) or not len(test.labels):
            raise CovshiftError(
                f"expected images, got {len(train.labels)} for training, {len(test.labels)} for testing"
            )
        self._train, self._test, self._augment = train, test, AUGMENTS[augment]
        self.mean, self.std, self.classes = mean, std, classes

    def __len__(self) -> int:
        return len(self._train.labels)

    def train(self, indices: Array, rng: np.random.Generator) -> Batch:
        """These training images, augmented."""
        views = self._augment(self._train.images[indices], rng)
        return Batch(self._normalise(np.concatenate(views)), torch.from_numpy(self._train.labels[indices]))

    def test(self, size: int) -> Iterator[Batch]:
        """All test images in order, so many at a time."""
        for start in range(0, len(self._test.labels), size):
            images = np.asarray(self._test.images[start : start + size], np.float32)
            yield Batch(self._normalise(images), torch.tensor(self._test.labels[start : start + size]))

    def _normalise(self, images: Array) -> Tensor:
        """NHWC in memory, NCHW to look at: the layout in which convolutions are fastest on a CPU."""
        mean, std = np.asarray(self.mean, np.float32), np.asarray(self.std, np.float32)
        return torch.from_numpy((images - 255 * mean) / (255 * std)).permute(0, 3, 1, 2)
