"""Imitations of shifts that are not corruptions, made of clean images: drawings, silhouettes, other views and styles.

They serve a predictor's calibration only, so that it has seen more than noise, blur, weather and compression. A
severity from 1 to 5 goes from near the image to the whole imitation.
"""

import numpy as np

from covshift.support.pixels import Images, to_nchw, to_nhwc

IMITATIONS = (
    "edges",
    "lines",
    "silhouette",
    "cartoon",
    "grey",
    "inverted",
    "turned",
    "cropped",
    "distant",
    "coarse",
    "restyled",
)
"""The names of all imitations."""

_WHOLE = 5  # the severity of a whole imitation


def imitate(images: Images, name: str, severity: int, *, seed: int = 0) -> Images:
    """Return the imitation of a shift, in the layout that the images have.

    Args:
        images: uint8, NumPy NHWC or torch NCHW.
        name: one of `IMITATIONS`.
        severity: the severity from 1 to 5.
        seed: the seed of what is drawn at random.

    >>> imitate(np.full((1, 16, 16, 3), 50, np.uint8), "inverted", 5)[0, 0, 0]
    array([205, 205, 205], dtype=uint8)
    """
    from covshift.shift.forecast.pictures import DRAWN, VIEWED  # here: they need OpenCV, and predicting does not

    pixels, strength = to_nhwc(images), severity / _WHOLE
    if name in DRAWN:
        drawn = np.stack([DRAWN[name](image) for image in pixels]).astype(np.float32)
        made = np.rint((1 - strength) * pixels + strength * drawn).astype(np.uint8)
    else:
        made = VIEWED[name](pixels, strength, np.random.default_rng(seed))
    return made if isinstance(images, np.ndarray) else to_nchw(made)
