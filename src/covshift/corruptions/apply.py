"""`corrupt()`: everything about a corruption that is not the corruption itself."""

from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from covshift.corruptions.registry import category, implementation, severity_constants
from covshift.corruptions.seeding import Rng, Streams
from covshift.corruptions.severity import FROST_SCALE, SEVERITY, nearest_size
from covshift.corruptions.textures import Frost, check_frost, textures
from covshift.support.arrays import Array
from covshift.support.device import cores
from covshift.support.errors import CovshiftError, is_number
from covshift.support.images import SMALLEST, check_quality
from covshift.support.threads import in_pieces

if TYPE_CHECKING:
    import torch

ImagesT = TypeVar("ImagesT", bound="Array | torch.Tensor")


def corrupt(
    images: ImagesT,
    name: str,
    severity: int,
    *,
    seed: int = 0,
    indices: int | Iterable[int] | None = None,
    rng: Rng | None = None,
    constants: int | None = None,
    frost: Frost = "procedural",
    jpeg: int | None = None,
    threads: int | None = None,
) -> ImagesT:
    """Corrupt one image or a batch, as the published benchmarks do.

    >>> image = np.full((32, 32, 3), 128, np.uint8)
    >>> corrupt(image, "fog", severity=3).shape
    (32, 32, 3)

    The result for an image depends on the seed, the corruption, the severity and the image's index in the data set,
    and on nothing else. So pass `indices` when these are not the first images:

    >>> batch = np.stack([image] * 4)
    >>> whole = corrupt(batch, "gaussian_noise", 5)
    >>> part = corrupt(batch[2:], "gaussian_noise", 5, indices=[2, 3])
    >>> bool((whole[2:] == part).all())
    True

    Args:
        images: NumPy uint8, HWC or NHWC, or torch uint8, CHW or NCHW; RGB, at least 16 px a side.
        name: One of `covshift.corruptions.names("all")`, or one that was registered.
        severity: A severity from 1 to 5.
        seed: The seed of the noise.
        indices: The images' positions in their data set; 0, 1, 2 … by default.
        rng: Draw from this generator instead, image after image. `np.random.RandomState(s)` draws what the published
            code draws after `np.random.seed(s)`.
        constants: Take the constants published for 32, 64, 224 or 299 px; by default those nearest to the image's size.
        frost: Ice for `frost`: "procedural" (drawn by covshift), "published" (found in an installed imagecorruptions),
            a folder of pictures, or a sequence of uint8 arrays.
        jpeg: Also pass the result through a JPEG of this quality; 85 is how ImageNet-C was published.
        threads: The number of images to work on at a time; by default one per core, and one for images under 80 px.

    Returns:
        The corrupted images, of the same type and shape.
    """
    batch, restore = _unpack(images)
    level = check_severity(severity)
    category(name)
    origin = check_whole(seed, "seed")
    size = nearest_size(*batch.shape[1:3]) if constants is None else constants
    if not isinstance(size, Hashable) or size not in SEVERITY:
        raise CovshiftError(f"expected constants for one of {', '.join(map(str, SEVERITY))} px, got {size!r}")
    values = severity_constants(name, size)[level - 1]
    if name == "frost":
        values = (*values, textures(frost, FROST_SCALE[size], *batch.shape[1:3]))
    else:
        check_frost(frost)
    if rng is not None and not isinstance(rng, np.random.Generator | np.random.RandomState):
        raise CovshiftError(
            f"expected rng to be np.random.RandomState(s) or a Generator, got {rng!r}; for a number: seed="
        )
    if jpeg is not None:
        check_quality(jpeg)
    if threads is not None and check_whole(threads, "threads") < 1:
        raise CovshiftError(f"expected threads to be 1 or more, got {threads}")
    positions = _check_indices(indices, len(batch))
    function, out = implementation(name), np.empty_like(batch)

    def work(start: int, stop: int) -> None:
        streams = Streams(origin, name, level)
        for i in range(start, stop):
            source = streams.at(positions[i]) if rng is None else rng
            function(batch[i], values, source, out[i])
            if jpeg is not None:
                _as_jpeg(out[i], jpeg)

    # On small images threads wait for the interpreter more than they work.
    default = cores() if batch.shape[1] * batch.shape[2] >= 80 * 80 else 1
    count = 1 if rng is not None else min(threads or default, len(batch))
    in_pieces(work, len(batch), 4 * count, count)
    restored: ImagesT = restore(out)
    return restored


def _as_jpeg(image: Array, quality: int) -> None:
    from covshift.corruptions.digital import jpeg

    jpeg(image, quality, image)


def _unpack(images: Any) -> tuple[Array, Any]:
    """Return the images as a contiguous NHWC array, and a function that restores their type and layout."""
    if isinstance(images, np.ndarray):
        batch = _check_array(images, images.shape, "HWC or NHWC", channels=-1)
        single = images.ndim == 3
        return np.ascontiguousarray(batch[None] if single else batch), lambda out: out[0] if single else out
    import torch

    if not isinstance(images, torch.Tensor):
        raise CovshiftError(
            f"expected a NumPy array or a torch tensor, got {type(images).__name__}; np.asarray(image) makes one"
        )
    _check_uint8(images.dtype, torch.uint8)
    array = _check_array(images.detach().cpu().numpy(), tuple(images.shape), "CHW or NCHW", channels=-3)
    single = images.ndim == 3
    batch = np.ascontiguousarray(np.moveaxis(array[None] if single else array, 1, -1))

    def restore(out: Array) -> "torch.Tensor":
        tensor = torch.from_numpy(np.ascontiguousarray(np.moveaxis(out, -1, 1))).to(images.device)
        return tensor[0] if single else tensor

    return batch, restore


def _check_array(array: Array, shape: tuple[int, ...], layout: str, channels: int) -> Array:
    _check_uint8(array.dtype, np.dtype(np.uint8))
    if array.ndim not in (3, 4) or shape[channels] != 3:
        other = -3 if channels == -1 else -1
        moved = array.ndim in (3, 4) and shape[other] == 3
        advice = "move the channels there" if moved else "repeat a grey channel thrice, drop an alpha channel"
        raise CovshiftError(f"expected RGB images, {layout}, got shape {shape}; {advice}")
    height, width = (shape[-3], shape[-2]) if channels == -1 else (shape[-2], shape[-1])
    if min(height, width) < SMALLEST:
        raise CovshiftError(
            f"expected images of at least {SMALLEST} x {SMALLEST} px, got {height} x {width}; enlarge them first"
        )
    return array


def _check_uint8(kind: object, wanted: object) -> None:
    if kind != wanted:
        raise CovshiftError(
            f"expected uint8 images (0 to 255), got {kind}; scale floats in [0, 1] by 255 and round them"
        )


def check_whole(value: object, what: str) -> int:
    """Return the value as a whole number, or raise a `CovshiftError`."""
    if not is_number(value, whole=True) or isinstance(value, bool):
        raise CovshiftError(f"expected {what} to be a whole number, got {value!r}")
    return int(cast(int, value))


def check_severity(severity: int) -> int:
    """Return the severity as an int from 1 to 5, or raise a `CovshiftError`."""
    if not is_number(severity, whole=True) or isinstance(severity, bool) or not 1 <= severity <= 5:
        raise CovshiftError(f"expected a severity from 1 to 5, got {severity!r}")
    return int(severity)


def _check_indices(indices: int | Iterable[int] | None, count: int) -> list[int]:
    if indices is None:
        return list(range(count))
    if not isinstance(indices, Iterable):
        indices = check_whole(indices, "an index")
    given = np.atleast_1d(np.asarray(indices, object)) if isinstance(indices, int | np.ndarray) else indices
    positions = [check_whole(index, "an index") for index in given]
    if len(positions) != count:
        raise CovshiftError(f"expected one index for each of {count} images, got {len(positions)}")
    return positions
