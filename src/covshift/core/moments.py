"""The first two moments of a layer's input: measured on a batch, merged without cancellation."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from numbers import Real

import torch
from torch import Tensor

from covshift.support.checks import check_kind
from covshift.support.errors import CovshiftError

_HALF = (torch.float16, torch.bfloat16)
_PIECE = 1 << 19  # values
_STEEP = 1e8  # a squared mean this many times the variance leaves six digits of it


@dataclass(frozen=True, slots=True, eq=False)
class Moments:
    """The mean and variance of what a normalisation layer has seen of a domain.

    Attributes:
        count: the number of values that each channel's moments are taken over (images × positions); 0 if none.
        images: the number of images that these came from. Both may be fractions where old images are being forgotten.
        mean: the mean of each channel.
        var: the biased variance of each channel.
    """

    count: float
    images: float
    mean: Tensor
    var: Tensor

    def __post_init__(self) -> None:
        numbers = isinstance(self.count, int | float) and isinstance(self.images, int | float)
        if numbers and isinstance(self.mean, Tensor) and isinstance(self.var, Tensor):
            return  # abstract classes such as Real take longer to ask
        for name in ("count", "images"):
            check_kind(getattr(self, name), Real, name, "a number")
        for name in ("mean", "var"):
            check_kind(getattr(self, name), Tensor, name, "a tensor")

    def __repr__(self) -> str:
        return f"Moments(count={self.count:g}, images={self.images:g}, channels={self.mean.numel()})"

    def to(self, device: torch.device) -> "Moments":
        """Return the same moments on another device."""
        if self.mean.device == device:
            return self
        return replace(self, mean=self.mean.to(device), var=self.var.to(device))


def measure(x: Tensor, images: float) -> Moments:
    """Return the moments of `x` [rows, channels, ...], which came from `images` images.

    >>> measure(torch.tensor([[1.0], [3.0]]), images=2)
    Moments(count=2, images=2, channels=1)
    """
    channels = x.shape[1]
    count = x.numel() // channels
    if count == 0:
        zero = torch.zeros(channels, device=x.device)
        return Moments(0, images, zero, zero)
    x = x.detach()
    mean, var = mean_var(x)
    if x.device.type == "cpu" and mean.dtype is torch.float32:
        mean, var = _refine(x, mean, var)
    return Moments(count, images, mean, var)


class Meter:
    """Counts the images of one forward pass, and measures what its layers meet.

    A pass has as many images as its first layer sees rows; later layers may see tokens or regions. A layer that is
    called twice meets the same images again.

    Args:
        how: returns the moments of activations that belong to a number of images; `measure` by default.
    """

    def __init__(self, how: Callable[[Tensor, int], Moments] | None = None) -> None:
        self._how = how or measure
        self._images: int | None = None
        self._visited: set[str] = set()

    @property
    def known(self) -> int | None:
        """The number of images in the pass; None before it has reached any layer."""
        return self._images

    @property
    def used(self) -> bool:
        """Whether the pass has reached any layer."""
        return self._images is not None

    def images(self, x: Tensor) -> int:
        """Return the number of images that the input of a layer, `x`, belongs to."""
        if self._images is None:
            self._images = x.shape[0]
        return self._images

    def measure(self, path: str, x: Tensor) -> Moments:
        """Return the moments of the input of the layer at `path`; images that it meets again are not counted again."""
        images = 0 if path in self._visited else self.images(x)
        self.visit(path)
        return self._how(x, images)

    def visit(self, path: str) -> None:
        """Note that the layer at `path` has met the images of the pass."""
        self._visited.add(path)


def _refine(x: Tensor, mean: Tensor, var: Tensor) -> tuple[Tensor, Tensor]:
    """Measure once more, around their mean, the channels whose mean is so large that float32 loses their spread."""
    too_steep = mean.square() > _STEEP * var
    if too_steep.any():
        steep = too_steep.nonzero().squeeze(1)
        mean, var = widen(mean), widen(var)
        centre = mean[steep].to(x.dtype)
        offset, spread = mean_var(x[:, steep] - centre.view(-1, *[1] * (x.ndim - 2)))
        mean[steep], var[steep] = widen(centre) + offset, widen(spread)
    return mean, var


def mean_var(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and biased variance of every channel of `x` [rows, channels, ...], the fastest way for its layout."""
    if x.device.type == "cpu":
        x = x.float() if x.dtype in _HALF else x
        if x.ndim > 2 and x.is_contiguous():
            # Three times as fast as the kernel of torch's own train mode, which is slow on this layout.
            mean, var = measure_rows(x)
            centre = mean.mean(0)
            return centre, (var + (mean - centre).square()).mean(0)
    elif x.device.type != "cuda":
        var, mean = torch.var_mean(x.float(), [0, *range(2, x.ndim)], correction=0)
        return mean, var
    return torch.batch_norm_update_stats(x, None, None, 0.0)


def measure_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and biased variance of every row and channel of `x` [rows, channels, ...]; both [rows, channels]."""
    rows = x.detach()
    if x.ndim == 2:
        rows = rows.float() if rows.dtype in _HALF else rows
        return rows, torch.zeros_like(rows)
    rows = rows.flatten(2) if rows.is_contiguous() else rows
    positions = list(range(2, rows.ndim))
    means, variances = [], []
    # Pieces that fit into the cache: the centred copy then costs no memory traffic.
    size = max(1, _PIECE // max(1, x[:1].numel()))
    for piece in rows.split(size):
        piece = piece.float() if piece.dtype in _HALF else piece
        mean = piece.mean(positions, keepdim=True)
        means.append(mean.flatten(1))
        variances.append((piece - mean).square_().mean(positions))
    return torch.cat(means), torch.cat(variances)


def merge(a: Moments, b: Moments) -> Moments:
    """Return the moments of both sets of values together, by Chan's formula, in double precision.

    >>> merge(measure(torch.tensor([[1.0]]), 1), measure(torch.tensor([[3.0], [5.0]]), 2)).mean
    tensor([3.], dtype=torch.float64)
    """
    if b.count == 0:
        return replace(a, images=a.images + b.images, mean=widen(a.mean), var=widen(a.var))
    if a.count == 0:
        return merge(b, a)
    count = a.count + b.count
    weight = b.count / count
    delta = widen(b.mean) - widen(a.mean)
    mean = widen(a.mean).add(delta, alpha=weight)
    var = torch.lerp(widen(a.var), widen(b.var), weight).add(delta.square(), alpha=weight * (1 - weight))
    return Moments(count, a.images + b.images, mean, var)


def possible(moments: Iterable[Moments]) -> tuple[bool, bool]:
    """Return whether means are finite, and whether variances are finite and not negative.

    >>> possible([Moments(0, 0, torch.zeros(3), torch.tensor([1, 0, -1.0]))])
    (True, False)
    """
    some = [each for each in moments if each.mean.numel()]
    if not some:
        return True, True
    device = some[0].mean.device
    mean, var = (torch.cat([getattr(each, name).flatten().to(device) for each in some]) for name in ("mean", "var"))
    low, top = var.aminmax()
    return bool(mean.isfinite().all()), bool((low >= 0) & (top < math.inf))


def add_batch(before: Moments | None, batch: Moments, decay: float | None) -> Moments:
    """Return the moments of a stream after one more batch, with the variance between batches.

    Args:
        before: those before it; None at the start.
        batch: those of the batch.
        decay: the factor by which an image's weight falls with every image after it; None to remember all equally.
    """
    if decay is not None and batch.images > 0:
        kept, share = fading(batch.images, decay)
        batch = replace(batch, count=batch.count * share, images=batch.images * share)
        if before is not None:
            before = replace(before, count=before.count * kept, images=before.images * kept)
    if before is None:
        return replace(batch, mean=widen(batch.mean), var=widen(batch.var))
    return merge(before, batch)


def fading(images: float, decay: float | None) -> tuple[float, float]:
    """Return by what a batch of so many images multiplies the weight of those before it, and that of each of its own.

    >>> fading(2, decay=0.5)
    (0.25, 0.75)
    """
    if decay is None or not images:
        return 1.0, 1.0
    # A batch weighs as much as its images would one by one: 1 + d + d² + ...
    kept = decay**images
    return kept, (1 - kept) / (1 - decay) / images


def widen(x: Tensor) -> Tensor:
    """Return `x` in the widest float type that its device has."""
    if x.dtype is torch.float64:
        return x
    return x.to(torch.float32 if x.device.type == "mps" else torch.float64)


def not_finite(path: str) -> CovshiftError:
    """Return the error for activations that are NaN or infinite, which the place at `path` is the first to see."""
    return CovshiftError(
        f"the input of layer {path!r} has NaN or infinite values; check the images and the model's precision"
    )


def one_value(path: str) -> CovshiftError:
    """Return the error for a place that would have to normalise a single value by itself."""
    return CovshiftError(
        f"layer {path!r} sees one single value in each channel, which has no variance to normalise by; "
        "give it more images at once, or let the source statistics help with prior= above 0"
    )
