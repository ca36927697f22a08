"""How a picture becomes a model's input: resized, cropped to the middle, normalised."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from covshift.core.calling import to_device
from covshift.support.checks import brief, check_flags, check_kind, check_number
from covshift.support.errors import CovshiftError, is_number, unknown
from covshift.support.images import middle, rgb, short_side
from covshift.support.pixels import Images, check_pixels, to_nhwc

Colour = tuple[float, float, float]
FILTERS = {resampling.name.lower(): resampling for resampling in Image.Resampling}


@dataclass(frozen=True)
class Preprocess:
    """The preprocessing that the weights of a model expect.

    A picture that is `size` x `size` px already is taken as it is: the published 224-px files have been resized and
    cropped once, and doing it again would shift every result. Any other picture is resized and cropped as torchvision
    does it. Without `resize`, a picture smaller than the crop is enlarged until it fills it.

    Attributes:
        resize: the length of the shorter side before the crop; None for no resizing.
        size: the side of the crop from the middle; None to leave pictures as large as they are.
        interpolation: the filter of Pillow: nearest, bilinear, bicubic, lanczos, box or hamming.
        mean: the mean of red, green and blue, with pixels from 0 to 1.
        std: the standard deviation of red, green and blue.
        squash: whether both sides are resized to `resize`, whatever the shape of the picture.

    >>> IMAGENET.picture(Image.new("RGB", (500, 375))).shape
    (224, 224, 3)
    >>> IMAGENET.with_(size=299)
    Preprocess(342, 299, 'bilinear', (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    """

    resize: int | None
    size: int | None
    interpolation: str
    mean: Colour
    std: Colour
    squash: bool = False

    def __post_init__(self) -> None:
        # Frozen, but lists of a JSON file should become what the type says.
        object.__setattr__(self, "mean", _colour("mean", self.mean))
        object.__setattr__(self, "std", _colour("std", self.std))
        for name in ("size", "resize"):
            value = getattr(self, name)
            if value is not None and (not is_number(value, whole=True) or isinstance(value, bool) or value < 1):
                raise CovshiftError(f"expected {name} to be a number of pixels from 1 on, or None, got {value!r}")
        if not all(0 <= value <= 1 for value in self.mean):
            raise CovshiftError(f"expected mean from 0 to 1, got {_listed(self.mean)}; divide mean and std by 255")
        if not all(value > 0 for value in self.std):
            raise CovshiftError(f"expected std above 0, got {_listed(self.std)}")
        if not isinstance(self.interpolation, str) or self.interpolation not in FILTERS:
            raise unknown("interpolation", self.interpolation, FILTERS)
        check_flags(squash=self.squash)
        if self.squash and self.size is None:
            raise CovshiftError("expected a size to squash pictures to, got None; give size=")

    def __repr__(self) -> str:
        """Return the fields on one line: resize, size, interpolation, mean, std, and squash where it is set."""
        sides, colours = f"{self.resize}, {self.size}", f"({_listed(self.mean)}), ({_listed(self.std)})"
        return f"Preprocess({sides}, {self.interpolation!r}, {colours}{', squash=True' if self.squash else ''})"

    def with_(
        self,
        *,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        size: int | None = None,
        resize: int | None = None,
        interpolation: str | None = None,
    ) -> "Preprocess":
        """Return a copy with some fields replaced; None leaves a field as it is.

        `size` alone keeps the share of the picture that the crop shows: `resize` grows in proportion. `size=0` and
        `resize=0` turn that step off.
        """
        for name, value in (("size", size), ("resize", resize)):
            if value is not None:
                check_number(value, name, 0, whole=True, of="pixels")
        given: dict[str, Any] = {"mean": mean, "std": std, "interpolation": interpolation}
        given = {name: value for name, value in given.items() if value is not None}
        if size is not None:
            given["size"] = None if size == 0 else size
            if self.size and self.resize and size and is_number(size):
                given["resize"] = round(self.resize * size / self.size)
        if resize is not None:
            given["resize"] = None if resize == 0 else resize
        return replace(self, **given)

    def picture(self, image: Image.Image) -> NDArray[np.uint8]:
        """Return a picture as RGB pixels, HWC, resized and cropped, not yet normalised: corruptions apply to this."""
        check_kind(image, Image.Image, "image", "a picture of Pillow")
        image = rgb(image)
        resample = FILTERS[self.interpolation]
        if self.size is None:
            # Without a crop there is nothing that says which shape a picture should have.
            sides = image.size if self.resize is None else short_side(image, self.resize)
            return np.asarray(image.resize(sides, resample))
        if image.size == (self.size, self.size):
            return np.asarray(image)
        if self.squash:
            short = self.resize or self.size
            image = image.resize((short, short), resample)
        else:
            short = self.resize or max(self.size, min(image.size))
        return np.asarray(middle(image, short, self.size, resample))

    def pixels(self, images: Images) -> NDArray[np.uint8]:
        """Return uint8 images as a NumPy array, NHWC, resized and cropped where they do not have the right size yet.

        >>> IMAGENET.pixels(torch.zeros(2, 3, 300, 400, dtype=torch.uint8)).shape
        (2, 224, 224, 3)
        """
        batch = to_nhwc(images)
        if (self.size is None and self.resize is None) or batch.shape[1:3] == (self.size, self.size):
            return batch
        return np.stack([self.picture(Image.fromarray(image)) for image in batch])

    def __call__(self, images: Images) -> Tensor:
        """Return the model's input for uint8 images, NumPy NHWC or torch NCHW.

        >>> IMAGENET(np.zeros((2, 300, 400, 3), np.uint8)).shape
        torch.Size([2, 3, 224, 224])
        """
        return self.tensor(self.pixels(images))

    def tensor(self, images: NDArray[np.uint8], device: torch.device | str = "cpu") -> Tensor:
        """Return a batch of pixels, NHWC, as float32 NCHW in channels_last layout: (x / 255 - mean) / std.

        >>> IMAGENET.tensor(np.zeros((2, 8, 8, 3), np.uint8)).shape
        torch.Size([2, 3, 8, 8])
        """
        if not isinstance(images, np.ndarray):
            raise CovshiftError(f"expected pixels as a NumPy array, NHWC, got {type(images).__name__}")
        check_pixels(images)
        try:
            device = torch.device(device)
        except (RuntimeError, TypeError):
            raise CovshiftError(f"expected device to be a name such as 'cpu' or 'cuda', got {brief(device)}") from None
        number, height, width, channels = images.shape
        if not images.flags.writeable or not images.flags.c_contiguous:
            images = images.copy()
        # Rows of a picture, not pixels: three numbers at a time would be too few to keep a processor busy.
        rows: Tensor = to_device(torch.from_numpy(images), device).view(number * height, width * channels).float()
        mean, std = (torch.tensor(value, device=device).repeat(width) for value in (self.mean, self.std))
        return rows.div_(255).sub_(mean).div_(std).view(images.shape).permute(0, 3, 1, 2)

    def as_dict(self) -> dict[str, Any]:
        """Return all fields as plain values, for result files.

        >>> Preprocess.from_dict(IMAGENET.as_dict()) == IMAGENET
        True
        """
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return the preprocessing that `as_dict` described, for example from a JSON file."""
        check_kind(values, Mapping, "values", "a mapping, as as_dict() returns it")
        known = {field.name for field in fields(cls)}
        if not known - {"squash"} <= values.keys() <= known:
            raise CovshiftError(f"expected {', '.join(sorted(known))}, got {', '.join(sorted(map(str, values)))}")
        return cls(**values)


def _colour(name: str, value: object) -> Colour:
    numbers = list(value) if isinstance(value, Sequence | np.ndarray) and not isinstance(value, str) else []
    if len(numbers) != 3 or not all(is_number(number) and math.isfinite(number) for number in numbers):
        got = _listed(numbers) if numbers else repr(value)
        raise CovshiftError(f"expected {name} as three numbers for red, green and blue, got {got}")
    red, green, blue = map(float, numbers)
    return red, green, blue


def _listed(numbers: Sequence[object]) -> str:
    return ", ".join(map(str, numbers))


IMAGENET = Preprocess(256, 224, "bilinear", (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
"""The preprocessing of the weights that the paper uses."""
