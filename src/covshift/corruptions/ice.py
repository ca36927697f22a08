"""Ice on a window, drawn: feathers that branch from seeds on the pane, over haze and streaks.

A texture depends on its number alone. The picture is drawn at twice its size and shrunk, which makes hairlines of the
finest branches.
"""

import math

import cv2
import numpy as np

from covshift.support.arrays import Array

HEIGHT, WIDTH = 420, 640
BRANCH = math.radians(60)
"""The angle at which ice branches: that of a hexagonal crystal."""


def draw(number: int) -> Array:
    """Draw one texture, uint8 RGB, 420 x 640 px.

    >>> texture = draw(0)
    >>> texture.shape, bool((texture == draw(0)).all())
    ((420, 640, 3), True)
    """
    rng = np.random.default_rng([number, HEIGHT, WIDTH])
    canvas = np.zeros((2 * HEIGHT, 2 * WIDTH), np.uint8)
    for _ in range(60 + 10 * number):
        start, angle = rng.uniform(0, [2 * WIDTH, 2 * HEIGHT]), rng.uniform(0, 2 * math.pi)
        _feather(canvas, rng, start, angle, rng.uniform(0.24, 1) * HEIGHT)
    crystals = cv2.resize(canvas, (WIDTH, HEIGHT), interpolation=cv2.INTER_AREA).astype(np.float32) / 255
    glow = cv2.GaussianBlur(crystals, (0, 0), 9)
    haze = _clouds(rng, 120, 120)
    # Streaks: what a wiping hand or running water leaves, long in one direction.
    streaks = _turn(_clouds(rng, 160, 3), rng.uniform(-35, 35))
    grain = 0.9 + 0.2 * _clouds(rng, 2, 2)
    ice = grain * (0.45 * crystals + 0.45 * glow + 0.25 * haze + 0.2 * streaks)
    # Thin ice is dark and bluish, thick ice white.
    colour = np.array([0.13, 0.21, 0.30]) + ice[..., None] * np.array([0.92, 0.85, 0.77])
    return np.asarray(255 * np.clip(colour, 0, 1)).astype(np.uint8)


def _feather(canvas: Array, rng: np.random.Generator, start: Array, angle: float, length: float) -> None:
    """Return a crystal: a bent stem, twigs on both sides that grow shorter to the tip, and needles on the twigs."""
    points, angles = _stem(rng, start, angle, length, step=14)
    _lines(canvas, points[None], 230, 3)
    for i, twig in enumerate(_branches(rng, len(angles), 0.4 * length)):
        for side in (-1, 1):
            if twig > 5 and rng.random() < 0.7:
                knots, headings = _stem(rng, points[i], angles[i] + side * BRANCH, twig, step=9)
                _lines(canvas, knots[None], 180 - 80 * i // len(angles), 2)
                needles, roots = _branches(rng, len(headings), 0.4 * twig)[:, None], knots[:-1]
                tips = [roots + needles * _direction(headings + tilt) for tilt in (-BRANCH, BRANCH)]
                _lines(canvas, np.stack([tips[0], roots, tips[1]], axis=1), 140, 1)


def _stem(rng: np.random.Generator, start: Array, angle: float, length: float, step: float) -> tuple[Array, Array]:
    """Return the points along a bent line, and its direction at each but the last."""
    count = max(int(length / step), 1)
    angles = angle + rng.normal(0, 0.015) * np.arange(count)
    points = np.empty((count + 1, 2))
    points[0] = start
    points[1:] = start + length / count * np.cumsum(_direction(angles), axis=0)
    return points, angles


def _branches(rng: np.random.Generator, count: int, longest: float) -> Array:
    """Return uneven lengths that shrink to nothing at the tip."""
    return longest * (1 - np.arange(count) / count) * rng.uniform(0.5, 1.1, count)


def _direction(angles: Array) -> Array:
    return np.column_stack((np.cos(angles), np.sin(angles)))


def _lines(canvas: Array, lines: Array, shade: int, thickness: int) -> None:
    # OpenCV takes sixteenths of a pixel with shift=4.
    points = np.rint(16 * lines).astype(np.int32)
    cv2.polylines(canvas, list(points), False, shade, thickness, cv2.LINE_AA, shift=4)


def _clouds(rng: np.random.Generator, across: float, down: float) -> Array:
    """Return smooth noise in [0, 1] with its own scale, in pixels, in each direction."""
    coarse = rng.random((math.ceil(HEIGHT / down), math.ceil(WIDTH / across)), np.float32)
    return np.clip(cv2.resize(coarse, (WIDTH, HEIGHT), interpolation=cv2.INTER_CUBIC), 0, 1)


def _turn(field: Array, angle: float) -> Array:
    matrix = cv2.getRotationMatrix2D((WIDTH / 2, HEIGHT / 2), angle, 1.4)
    return cv2.warpAffine(field, matrix, (WIDTH, HEIGHT), borderMode=cv2.BORDER_REFLECT)
