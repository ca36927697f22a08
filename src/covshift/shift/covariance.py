"""The full covariance of what each normalisation layer sees, in memory that does not grow with the data."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from covshift.core.calling import call_model, check_loader
from covshift.core.finding import find_layers
from covshift.core.hooks import check_not_compiled
from covshift.core.identity import fingerprint
from covshift.core.moments import not_finite, widen
from covshift.core.places import Patterns, Place
from covshift.core.statistics import Statistics
from covshift.core.wrappers import AnyModel, unwrap
from covshift.support.checks import check_kind
from covshift.support.errors import CovshiftError, plural

_PIECE = 1 << 20  # number of values converted to double precision at a time
_CHUNK = 64  # images at a time, where the data come as one tensor


@dataclass(frozen=True, slots=True, eq=False)
class Gaussian:
    """The number of values in a channel that a layer has seen, their mean and their biased covariance."""

    count: int
    mean: Tensor
    cov: Tensor


class Covariances(Mapping[str, Gaussian]):
    """Mean and full covariance for every normalisation layer of a model; made by `covariances`."""

    def __init__(self, layers: Mapping[str, Gaussian], fingerprint: str) -> None:
        self._layers = dict(layers)
        self.fingerprint = fingerprint

    def __getitem__(self, path: str) -> Gaussian:
        return self._layers[path]

    def __iter__(self) -> Iterator[str]:
        return iter(self._layers)

    def __len__(self) -> int:
        return len(self._layers)

    def __repr__(self) -> str:
        channels = sum(len(gaussian.mean) for gaussian in self.values())
        return f"Covariances({plural(len(self), 'layer')}, {plural(channels, 'channel')})"

    def check_same_layers(self, other: "Covariances") -> None:
        """Raise a `CovshiftError` if these are covariances of another model or of other layers."""
        if self.fingerprint != other.fingerprint or self.keys() != other.keys():
            raise CovshiftError(f"these are covariances of different models or layers: {self} and {other}")


def covariances(
    model: AnyModel,
    loader: Iterable[Any] | Tensor,
    *,
    statistics: Statistics | None = None,
    layers: Patterns = None,
) -> Covariances:
    """Measure the mean and covariance of what every layer sees, in one pass.

    Memory is one matrix [channels, channels] a layer, however many images there are.

    Args:
        model: what `open_model` returned, or any module in eval mode; it is as before when this returns or raises.
        loader: batches, as tensors, (images, labels, ...) tuples or mappings of keyword arguments; or one big tensor.
        statistics: normalise by these in this pass. With `estimate(model, loader)`, means and variances are those of
            full adaptation; without, the model's own are used, which is right for the source.
        layers: patterns of layer paths, e.g. "layer1.*", to measure only those.

    >>> from torch import nn
    >>> net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)).eval()
    >>> covariances(net, torch.rand(10, 3, 8, 8))["1"].cov.shape
    torch.Size([8, 8])
    """
    if statistics is not None:
        check_kind(statistics, Statistics, "statistics", "Statistics")
    batches = check_loader(loader, _CHUNK)
    model = unwrap(model)
    check_not_compiled(model)
    wanted = find_layers(model, layers)
    sums = {layer.path: _Sum() for layer in wanted}

    def act(layer: Place, passing: Any) -> None:
        sums[layer.path].add(layer.read(passing))

    with nullcontext() if statistics is None else statistics.apply(model):
        handles = [handle for layer in wanted for handle in layer.hook(act)]
        try:
            with torch.inference_mode():
                for batch in batches:
                    call_model(model, batch)
        finally:
            for handle in handles:
                handle.remove()
    if not any(each.count for each in sums.values()):
        raise CovshiftError("the loader gave no images that reach a normalisation layer: there is nothing to measure")
    for path, each in sums.items():
        if each.count and not each.scatter.isfinite().all():
            raise not_finite(path)
    return Covariances({path: each.gaussian() for path, each in sums.items() if each.count}, fingerprint(model))


class _Sum:
    """Count, mean and scatter (covariance times count) of all that was added, merged by Chan's formula."""

    def __init__(self) -> None:
        self.count = 0
        self.mean = self.scatter = torch.zeros(())

    def add(self, x: Tensor) -> None:
        channels = x.shape[1]
        for piece in x.detach().movedim(1, -1).reshape(-1, channels).split(max(1, _PIECE // channels)):
            rows = widen(piece)
            mean = rows.mean(0)
            rows = rows - mean
            delta, total = mean - self.mean, self.count + len(rows)
            self.scatter = self.scatter + rows.mT @ rows + delta.outer(delta) * (self.count * len(rows) / total)
            self.mean = self.mean + delta * (len(rows) / total)
            self.count = total

    def gaussian(self) -> Gaussian:
        return Gaussian(self.count, self.mean.cpu(), (self.scatter / self.count).cpu())
