"""`Readable`: images that can be read by their indices, which is all that a selection of them needs."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from covshift.data.condition import CLEAN, MIXED, TEST, Condition
from covshift.support.errors import CovshiftError, plural

Pixels = NDArray[np.uint8]
Labels = NDArray[np.int64]
Preparing = Callable[[Image.Image], Pixels]
"""A function that resizes and crops a picture to the size of a model's input, uint8 HWC."""


class Readable(ABC):
    """Images, each identified by its index; a subclass defines where they are, and how they are read.

    Attributes:
        uri: the URI that it was opened by.
        labelled: whether the classes of the images are known.
        labels: the class of each image. Unlabelled data have none: reading them raises a `CovshiftError`.
        classes: the number of classes that a model must distinguish; raises an error where `labels` does.
        class_names: the name of each class, "" where it is not known; empty where none is.
        stored: the conditions that are on disk. Others are made of the clean images when they are asked for.
        imagenet: whether these are all of ImageNet's classes, so that AlexNet's errors are a yardstick.
        digest: a text that changes when the images change.
        among: the classes that a model's logits are compared among, where not all count.
        remark: a note for users on these images.
        caution: a warning for users who adapt to these images.
    """

    uri: str
    labelled: bool = True
    labels: Labels
    classes: int
    class_names: tuple[str, ...] = ()
    stored: frozenset[Condition] = frozenset([CLEAN])
    imagenet: bool = False
    digest: str
    among: tuple[int, ...] | None = None
    remark: str = ""
    caution: str = ""

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        of = f"of {plural(self.classes, 'class')}" if self.labelled else "without labels"
        return f"{type(self).__name__}({self.uri!r}, {plural(len(self), 'image')} {of})"

    def has(self, condition: Condition) -> bool:
        """Return whether images in this condition are stored or can be made."""
        if condition == MIXED:
            return any(self.has(each) for each in TEST)
        return condition in self.stored or CLEAN in self.stored

    def image_name(self, index: int) -> str:
        """Return the name of an image, such as the path of its file; by default its index."""
        return str(index)

    @abstractmethod
    def read(
        self, condition: Condition, indices: Sequence[int], prepare: Preparing
    ) -> Sequence[Pixels | CovshiftError]:
        """Read images in a stored condition; each is uint8 HWC, or the error that reading it gave."""
