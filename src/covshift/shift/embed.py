"""A map of conditions: near each other where a model's layers see similar statistics."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from covshift.core.moments import widen
from covshift.core.source import Source
from covshift.core.statistics import Statistics
from covshift.shift.distance import EPS, seen_layers
from covshift.support.checks import check_kind, check_seed
from covshift.support.errors import CovshiftError, is_number


class Point(NamedTuple):
    """The place of a condition on the map."""

    x: float
    y: float


def embed(
    conditions: Mapping[str, Statistics],
    source: Statistics | Source,
    *,
    perplexity: float | None = None,
    seed: int = 0,
) -> dict[str, Point]:
    """Map the statistics of conditions by t-SNE and the normalised Wasserstein distance over all layers together.

    Args:
        conditions: the statistics of each condition, `estimate(model, loader)`, by a name such as "fog 3".
        source: the statistics of the training data, in whose spread distances are measured: `Statistics.of(model)` or,
            of any network, `Source.measure(model, clean)`.
        perplexity: the approximate number of neighbours of a condition; by default 30, fewer for few conditions.
        seed: the seed for ties and for the optimiser's random numbers.

    Returns:
        A point for each condition. Nearness means something; directions and long distances do not.
    """
    from sklearn.manifold import TSNE

    check_kind(conditions, Mapping, "conditions", "a mapping from names to Statistics")
    check_seed(seed)
    if len(conditions) < 3:
        raise CovshiftError(f"expected at least 3 conditions to draw a map of, got {len(conditions)}")
    if perplexity is None:
        perplexity = min(30.0, (len(conditions) - 1) / 3)
    if not is_number(perplexity) or not 0 < perplexity < len(conditions):
        raise CovshiftError(
            f"expected perplexity above 0 and below the {len(conditions)} conditions, got {perplexity!r}"
        )
    origin = source.statistics if isinstance(source, Source) else source
    coordinates = np.stack([_coordinates(each, origin) for each in conditions.values()])
    if not np.ptp(coordinates, axis=0).any():
        raise CovshiftError("all conditions have the same statistics; there is nothing to distinguish on a map")
    tsne = TSNE(init="pca", perplexity=perplexity, random_state=seed)
    points = tsne.fit_transform(coordinates)
    return {name: Point(float(x), float(y)) for name, (x, y) in zip(conditions, points, strict=True)}


def _coordinates(target: Statistics, source: Statistics) -> NDArray[np.float64]:
    """Return (μ_t/σ_s, σ_t/σ_s), between which the Euclidean distance is the normalised Wasserstein distance."""
    seen_layers(source, target)  # raises where there are none; those that were not reached are where the source is
    parts = []
    for path, moments in target.items():
        scale = widen(source[path].var).cpu().clamp(min=EPS).rsqrt()
        parts += [widen(moments.mean).cpu() * scale, widen(moments.var).cpu().sqrt() * scale]
    return np.asarray(torch.cat(parts))
