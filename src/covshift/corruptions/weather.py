"""Weather: snow, frost, fog, light, and dirt on the lens."""

import cv2
import numpy as np

from covshift.corruptions.blur import enlarge, move, smooth
from covshift.corruptions.kernels import quantise
from covshift.corruptions.kernels import weather as kernels
from covshift.corruptions.seeding import Rng, integers
from covshift.support.arrays import Array

WATER = np.array([175, 238, 238], np.float32) / 255
MUD = np.array([63, 42, 20], np.float32) / 255


def snow(image: Array, constants: tuple[float, ...], rng: Rng, out: Array) -> None:
    """Let flakes drive in the wind, in front of a whitened scene."""
    mean, sigma, factor, threshold, radius, blur, keep = constants
    noise = mean + sigma * rng.standard_normal(image.shape[:2])
    layer = enlarge(noise[..., None], (factor,))
    layer[layer < threshold] = 0
    flakes = np.empty(layer.shape, np.uint8)
    quantise(layer, flakes)
    driven = np.empty_like(flakes)
    move(flakes, radius, blur, float(rng.uniform(-135, -45)), driven)
    unit = image / np.float32(255)
    kernels.snowfall(unit, cv2.cvtColor(unit, cv2.COLOR_RGB2GRAY), driven, keep, out)


def frost(image: Array, constants: tuple[float, float, tuple[Array, ...]], rng: Rng, out: Array) -> None:
    """Put ice on the window: a weighted sum of the image and a piece of one of the textures."""
    kept, added, textures = constants
    height, width = image.shape[:2]
    texture = textures[int(integers(rng, 0, len(textures)))]
    top = int(integers(rng, 0, texture.shape[0] - height))
    left = int(integers(rng, 0, texture.shape[1] - width))
    kernels.blend(image, np.ascontiguousarray(texture), top, left, float(kept), float(added), out)


def fog(image: Array, constants: tuple[float, float], rng: Rng, out: Array) -> None:
    """Put fractal clouds in front of the image."""
    strength, decay = constants
    side = 1 << (max(image.shape[:2]) - 1).bit_length()
    clouds = kernels.plasma(rng.random(side * side - 1), side, float(decay))
    kernels.add_fog(image, clouds, float(strength), out)


def brightness(image: Array, added: float, rng: Rng, out: Array) -> None:
    """Add light: raise the value of HSV."""
    kernels.shift_hsv(image, 1.0, 0.0, added, out)


def spatter(image: Array, constants: tuple[float, float, float, float, float, int], rng: Rng, out: Array) -> None:
    """Put drops of water, or spots of mud, on the lens."""
    mean, sigma, blur, threshold, strength, muddy = constants
    noise = mean + sigma * rng.standard_normal(image.shape[:2])
    liquid = smooth(noise[..., None], blur)[..., 0]
    liquid *= liquid >= threshold
    if muddy:
        mud(image, liquid > threshold, strength, out)
    else:
        water(image, liquid, strength, out)


def mud(image: Array, spots: Array, blur: float, out: Array) -> None:
    """Cover the spots with brown."""
    cover = smooth(spots.astype(np.float32)[..., None], blur)
    cover[cover < 0.8] = 0
    kernels.tint(image, cover[..., 0], MUD, 1 - cover[..., 0], out)


def water(image: Array, liquid: Array, strength: float, out: Array) -> None:
    """Lighten the drops, as if lit from one side: a relief of the distance to their edges."""
    # The published cast wraps around above 255; the few pixels where it does are part of the benchmark.
    drops = (liquid * 255).astype(np.int32).astype(np.uint8)
    distance = cv2.distanceTransform(255 - cv2.Canny(drops, 50, 150), cv2.DIST_L2, 5)
    depth = cv2.equalizeHist(cv2.blur(np.minimum(distance, 20), (3, 3)).astype(np.uint8))
    relief = cv2.filter2D(depth, cv2.CV_8U, np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]], np.float32))
    light = drops * cv2.blur(relief, (3, 3)).astype(np.float32)
    light = light / max(light.max(), np.float32(1)) * np.float32(strength)
    kernels.tint(image, light, WATER, np.ones_like(light), out)
