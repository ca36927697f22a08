"""The published severity constants, as data: one table for each of the four published image sizes.

`SEVERITY[size][name]` holds five entries, severity 1 to 5. What an entry means stands once, beside the 224-px table.
The smaller and larger tables name only what differs from it.
"""

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

Constants = tuple[Any, ...]
SeverityTable = Mapping[str, Constants]

_224: dict[str, Constants] = {
    # standard deviation of the noise, on the scale where white is 1
    "gaussian_noise": (0.08, 0.12, 0.18, 0.26, 0.38),
    # photons a white pixel sends
    "shot_noise": (60, 25, 12, 5, 3),
    # share of values set to black or white
    "impulse_noise": (0.03, 0.06, 0.09, 0.17, 0.27),
    # disk radius, sigma of its soft rim (px)
    "defocus_blur": ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
    # sigma (px), farthest copy (px), passes
    "glass_blur": ((0.7, 1, 2), (0.9, 2, 1), (1.0, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
    # radius, sigma (px)
    "motion_blur": ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),
    # zoom factors: from 1 up to this, in steps of this
    "zoom_blur": ((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03)),
    # noise mean, noise sigma, zoom, threshold, blur radius, blur sigma, share of the image kept as it is
    "snow": (
        (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
        (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
        (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
        (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
        (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
    ),
    # weight of the image, weight of the ice
    "frost": ((1, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75)),
    # strength, decay of the noise from one scale to the next finer one
    "fog": ((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)),
    # added to the value of HSV
    "brightness": (0.1, 0.2, 0.3, 0.4, 0.5),
    # factor on the distance from the channel mean
    "contrast": (0.4, 0.3, 0.2, 0.1, 0.05),
    # displacement, smoothness, jitter of the affine corners (px); 244 is a slip of the pen that was published
    "elastic_transform": tuple(
        (244 * a, 244 * s, 244 * j)
        for a, s, j in (
            (2, 0.7, 0.1),
            (2, 0.08, 0.2),
            (0.05, 0.01, 0.02),
            (0.07, 0.01, 0.02),
            (0.12, 0.01, 0.02),
        )
    ),
    # side of the small image, as a share
    "pixelate": (0.6, 0.5, 0.4, 0.3, 0.25),
    # quality
    "jpeg_compression": (25, 18, 15, 10, 7),
    "speckle_noise": (0.15, 0.2, 0.35, 0.45, 0.6),
    # sigma (px)
    "gaussian_blur": (1, 2, 3, 4, 6),
    # noise mean, noise sigma, sigma (px), threshold, intensity of water or sigma of mud, 0 for water and 1 for mud
    "spatter": (
        (0.65, 0.3, 4, 0.69, 0.6, 0),
        (0.65, 0.3, 3, 0.68, 0.6, 0),
        (0.65, 0.3, 2, 0.68, 0.5, 0),
        (0.65, 0.3, 1, 0.65, 1.5, 1),
        (0.67, 0.4, 1, 0.65, 1.5, 1),
    ),
    # factor on the saturation of HSV, and what is added to it
    "saturate": ((0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (20, 0.2)),
}

_299: dict[str, Constants] = _224 | {
    "gaussian_noise": (0.09, 0.13, 0.19, 0.27, 0.40),
    "shot_noise": (50, 20, 10, 5, 3),
    "impulse_noise": (0.04, 0.07, 0.10, 0.18, 0.28),
    "defocus_blur": ((4, 0.1), (5, 0.5), (7, 0.5), (10, 0.5), (12, 0.5)),
    "glass_blur": ((0.8, 1, 3), (1.0, 3, 1), (1.1, 2, 4), (1.2, 4, 2), (1.6, 5, 2)),
    "motion_blur": ((12, 4), (17, 6), (17, 9), (17, 13), (22, 16)),
    "fog": ((1.5, 2), (2, 2), (2.5, 1.8), (2.5, 1.6), (3, 1.5)),
    "elastic_transform": tuple(
        (360 * a, 360 * s, 360 * j)
        for a, s, j in (
            (2, 0.7, 0.1),
            (2, 0.08, 0.2),
            (0.05, 0.01, 0.02),
            (0.07, 0.01, 0.02),
            (0.12, 0.01, 0.02),
        )
    ),
    "pixelate": (0.5, 0.4, 0.3, 0.25, 0.2),
    "jpeg_compression": (23, 16, 13, 8, 5),
    "speckle_noise": (0.16, 0.21, 0.36, 0.46, 0.61),
    "gaussian_blur": (1.5, 2.5, 3.5, 4.5, 6.5),
    "spatter": (
        (0.65, 0.3, 4, 0.69, 0.9, 0),
        (0.65, 0.3, 3.5, 0.68, 0.9, 0),
        (0.65, 0.3, 3, 0.68, 0.8, 0),
        (0.65, 0.3, 1.2, 0.65, 1.8, 1),
        (0.67, 0.4, 1.2, 0.65, 1.8, 1),
    ),
}

_32: dict[str, Constants] = _224 | {
    "gaussian_noise": (0.04, 0.06, 0.08, 0.09, 0.10),
    "shot_noise": (500, 250, 100, 75, 50),
    "impulse_noise": (0.01, 0.02, 0.03, 0.05, 0.07),
    "defocus_blur": ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
    "glass_blur": ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
    "motion_blur": ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),
    "zoom_blur": ((1.06, 0.01), (1.11, 0.01), (1.16, 0.01), (1.21, 0.01), (1.26, 0.01)),
    "snow": (
        (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
        (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
        (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
        (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
        (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
    ),
    "frost": ((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45)),
    "fog": ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),
    "brightness": (0.05, 0.1, 0.15, 0.2, 0.3),
    "contrast": (0.75, 0.5, 0.4, 0.3, 0.15),
    "elastic_transform": tuple(
        (32 * a, 32 * s, 32 * j)
        for a, s, j in (
            (0, 0, 0.08),
            (0.05, 0.2, 0.07),
            (0.08, 0.06, 0.06),
            (0.1, 0.04, 0.05),
            (0.1, 0.03, 0.03),
        )
    ),
    "pixelate": (0.95, 0.9, 0.85, 0.75, 0.65),
    "jpeg_compression": (80, 65, 58, 50, 40),
    "speckle_noise": (0.06, 0.1, 0.12, 0.16, 0.2),
    "gaussian_blur": (0.4, 0.6, 0.7, 0.8, 1),
    "spatter": (
        (0.62, 0.1, 0.7, 0.7, 0.5, 0),
        (0.65, 0.1, 0.8, 0.7, 0.5, 0),
        (0.65, 0.3, 1, 0.69, 0.5, 0),
        (0.65, 0.1, 0.7, 0.69, 0.6, 1),
        (0.65, 0.1, 0.5, 0.68, 0.6, 1),
    ),
    "saturate": ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)),
}

_64: dict[str, Constants] = _224 | {
    "gaussian_noise": (0.04, 0.08, 0.12, 0.15, 0.18),
    "shot_noise": (250, 100, 50, 30, 15),
    "impulse_noise": (0.01, 0.02, 0.05, 0.08, 0.14),
    "defocus_blur": ((0.5, 0.6), (1, 0.1), (1.5, 0.1), (2.5, 0.01), (3, 0.1)),
    "glass_blur": ((0.1, 1, 1), (0.5, 1, 1), (0.6, 1, 2), (0.7, 2, 1), (0.9, 2, 2)),
    "motion_blur": ((10, 1), (10, 1.5), (10, 2), (10, 2.5), (12, 3)),
    "zoom_blur": _32["zoom_blur"],
    "snow": tuple((*c[:6], keep) for c, keep in zip(_32["snow"], (0.8, 0.8, 0.7, 0.65, 0.6), strict=True)),
    "frost": ((1, 0.3), (0.9, 0.4), (0.8, 0.45), (0.75, 0.5), (0.7, 0.55)),
    "fog": ((0.4, 3), (0.7, 3), (1, 2.5), (1.5, 2), (2, 1.75)),
    "elastic_transform": tuple(
        (64 * a, 64 * s, 64 * j)
        for a, s, j in (
            (0, 0, 0.08),
            (0.05, 0.3, 0.06),
            (0.1, 0.08, 0.06),
            (0.1, 0.03, 0.03),
            (0.16, 0.03, 0.02),
        )
    ),
    "pixelate": (0.9, 0.8, 0.7, 0.6, 0.5),
    "jpeg_compression": (65, 58, 50, 40, 25),
    "speckle_noise": (0.15, 0.2, 0.25, 0.3, 0.35),
    "gaussian_blur": (0.5, 0.75, 1, 1.25, 1.5),
    "spatter": (
        (0.62, 0.1, 0.7, 0.7, 0.6, 0),
        (0.65, 0.1, 0.8, 0.7, 0.6, 0),
        (0.65, 0.3, 1, 0.69, 0.6, 0),
        (0.65, 0.1, 0.7, 0.68, 0.6, 1),
        (0.65, 0.1, 0.5, 0.67, 0.6, 1),
    ),
    "saturate": ((0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (30, 0.2)),
}

SEVERITY: Mapping[int, SeverityTable] = MappingProxyType(
    {
        32: MappingProxyType(_32),
        64: MappingProxyType(_64),
        224: MappingProxyType(_224),
        299: MappingProxyType(_299),
    }
)
"""The constants by size (32, 64, 224, 299 px), corruption and severity."""

FROST_SCALE: Mapping[int, float] = MappingProxyType({32: 0.2, 64: 0.3, 224: 1.0, 299: 1.0})
"""Factor by which a frost texture is scaled before it is cropped, by size."""


def nearest_size(height: int, width: int) -> int:
    """Return the published size whose constants suit an image best: the nearest one, in ratio, to its shorter side.

    >>> nearest_size(32, 32), nearest_size(96, 128), nearest_size(256, 256), nearest_size(1080, 1920)
    (32, 64, 224, 299)
    """
    return min(SEVERITY, key=lambda size: abs(math.log(size / min(height, width))))
