"""Pictures of other kinds, made of clean images: drawings, silhouettes, other views and styles."""

from collections.abc import Callable, Sequence

import cv2
import numpy as np

from covshift.support.arrays import Array

_TURN = 45.0  # degrees
_CUT, _FAR, _COARSE = 0.4, 0.5, 0.6  # shares of an image's side


def edges(image: Array) -> Array:
    """Return the edges of an image, white on black."""
    grey = cv2.GaussianBlur(_grey(image).astype(np.float32), (0, 0), image.shape[0] / 64)
    size = np.hypot(cv2.Sobel(grey, cv2.CV_32F, 1, 0), cv2.Sobel(grey, cv2.CV_32F, 0, 1))
    return _rgb(np.minimum(size / max(float(np.percentile(size, 98)), 1.0), 1) * 255)


def lines(image: Array) -> Array:
    """Return a line drawing: the edges of an image, black on white."""
    return 255 - edges(image)


def silhouette(image: Array) -> Array:
    """Return an image in black and white, its border mostly white."""
    smooth = cv2.GaussianBlur(_grey(image), (0, 0), image.shape[0] / 24)
    _, two = cv2.threshold(smooth, 0, 255, cv2.THRESH_BINARY + cv2.THRESH_OTSU)
    border = np.concatenate([two[0], two[-1], two[:, 0], two[:, -1]]).mean()
    return _rgb(two if border > 127 else 255 - two)


def cartoon(image: Array) -> Array:
    """Return an image in flat areas of few colours, with dark edges."""
    flat = image
    for _ in range(3):
        flat = cv2.bilateralFilter(flat, 5, 60, image.shape[0] / 12)
    flat = flat // 64 * 64 + 32
    return np.where(edges(image) > 140, flat // 4, flat)


def grey(image: Array) -> Array:
    """Return an image without colours."""
    return _rgb(_grey(image))


def inverted(images: Array, strength: float, rng: np.random.Generator) -> Array:
    """Return images with their brighter values turned dark; at full strength their negatives."""
    return np.where(images >= 255 * (1 - strength), 255 - images, images)


def turned(images: Array, strength: float, rng: np.random.Generator) -> Array:
    """Return images turned by up to 45 degrees, to either side."""
    height, width = images.shape[1:3]
    centre = ((width - 1) / 2, (height - 1) / 2)
    angles = strength * _TURN * rng.choice([-1, 1], len(images))
    turns = [cv2.getRotationMatrix2D(centre, angle, 1) for angle in angles]
    return _each(images, turns, lambda image, turn: cv2.warpAffine(image, turn, (width, height), borderMode=_REFLECT))


def cropped(images: Array, strength: float, rng: np.random.Generator) -> Array:
    """Return a part of each image, enlarged."""
    height, width = images.shape[1:3]
    tall, wide = (max(2, round(side * (1 - _CUT * strength))) for side in (height, width))
    corners = rng.integers(0, (height - tall + 1, width - wide + 1), (len(images), 2)).tolist()

    def crop(image: Array, corner: tuple[int, int]) -> Array:
        top, left = corner
        part = np.ascontiguousarray(image[top : top + tall, left : left + wide])
        return cv2.resize(part, (width, height), interpolation=cv2.INTER_CUBIC)

    return _each(images, corners, crop)


def distant(images: Array, strength: float, rng: np.random.Generator) -> Array:
    """Return images made smaller, as if from farther away, with their mirror images around them."""
    height, width = images.shape[1:3]
    tall, wide = (max(2, round(side * (1 - _FAR * strength))) for side in (height, width))
    top, left = (height - tall) // 2, (width - wide) // 2
    margins = (top, height - tall - top, left, width - wide - left)

    def shrink(image: Array, borders: tuple[int, int, int, int]) -> Array:
        return cv2.copyMakeBorder(cv2.resize(image, (wide, tall), interpolation=cv2.INTER_AREA), *borders, _REFLECT)

    return _each(images, [margins] * len(images), shrink)


def coarse(images: Array, strength: float, rng: np.random.Generator) -> Array:
    """Return images of a lower resolution, enlarged to the size that they had."""
    height, width = images.shape[1:3]
    small = tuple(max(2, round(side * (1 - _COARSE * strength))) for side in (width, height))

    def resample(image: Array, size: tuple[int, int]) -> Array:
        return cv2.resize(cv2.resize(image, size, interpolation=cv2.INTER_AREA), (width, height), interpolation=2)

    return _each(images, [small] * len(images), resample)


def restyled(images: Array, strength: float, rng: np.random.Generator) -> Array:
    """Return images with the Fourier amplitudes of others, mixed into their own, and their own phases."""
    spectrum = np.fft.fft2(images.astype(np.float32), axes=(1, 2))
    size = np.abs(spectrum)
    mixed = (1 - strength) * size + strength * size[rng.permutation(len(images))]
    changed = np.fft.ifft2(spectrum * (mixed / np.maximum(size, 1e-6)), axes=(1, 2)).real
    return np.clip(changed, 0, 255).astype(np.uint8)


_REFLECT = cv2.BORDER_REFLECT
DRAWN: dict[str, Callable[[Array], Array]] = {each.__name__: each for each in (edges, lines, silhouette, cartoon, grey)}
"""Functions that draw one image anew, by name."""

VIEWED: dict[str, Callable[[Array, float, np.random.Generator], Array]] = {
    each.__name__: each for each in (inverted, turned, cropped, distant, coarse, restyled)
}
"""Functions that change all images by a strength from 0 to 1, by name."""


def _each(images: Array, options: Sequence[object], function: Callable[..., Array]) -> Array:
    return np.stack([function(image, option) for image, option in zip(images, options, strict=True)])


def _grey(image: Array) -> Array:
    return np.asarray(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY))


def _rgb(image: Array) -> Array:
    return np.repeat(image.astype(np.uint8)[..., None], 3, axis=-1)
