"""The source of the training loop's batches; the content of a batch follows from its indices and its generator."""

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from covshift.data.cifar10 import CifarImages
from covshift.support.arrays import Array
from covshift.support.errors import CovshiftError
from covshift.training.augment import AUGMENTS, Augment

CIFAR_MEAN = (0.4914, 0.4822, 0.4465)
CIFAR_STD = (0.2470, 0.2435, 0.2616)


class TrainingBatch(NamedTuple):
    """Normalised images N x 3 x H x W and labels; with v views of each image there are v times as many images.

    Labels are classes or, where images are blended, the share of each class.
    """

    images: Tensor
    labels: Tensor


class Feed(Protocol):
    """Training and test images, however they are stored."""

    classes: int
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __len__(self) -> int:
        """Return the number of training images."""

    def train(self, indices: Array, rng: np.random.Generator) -> TrainingBatch:
        """Return these training images, augmented."""

    def test(self, size: int) -> Iterator[TrainingBatch]:
        """Yield all test images in order, in batches of `size`."""


class ArrayFeed:
    """Images that fit in memory, as uint8 NHWC."""

    def __init__(
        self,
        train: CifarImages,
        test: CifarImages,
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

    def train(self, indices: Array, rng: np.random.Generator) -> TrainingBatch:
        """Return these training images, augmented."""
        views = self._augment(self._train.images[indices], rng)
        return TrainingBatch(
            normalise(np.concatenate(views), self.mean, self.std), torch.from_numpy(self._train.labels[indices])
        )

    def test(self, size: int) -> Iterator[TrainingBatch]:
        """Yield all test images in order, in batches of `size`."""
        for start in range(0, len(self._test.labels), size):
            images = np.asarray(self._test.images[start : start + size], np.float32)
            yield TrainingBatch(
                normalise(images, self.mean, self.std), torch.tensor(self._test.labels[start : start + size])
            )


def normalise(images: Array, mean: tuple[float, ...], std: tuple[float, ...]) -> Tensor:
    """Normalise float NHWC in [0, 255] to N x C x H x W, still NHWC in memory, which is fastest on a CPU."""
    shift, scale = 255 * np.asarray(mean, np.float32), 255 * np.asarray(std, np.float32)
    return torch.from_numpy((images - shift) / scale).permute(0, 3, 1, 2)
