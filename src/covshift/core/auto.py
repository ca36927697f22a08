"""How much of a batch to trust, layer by layer, without labels or a holdout set: `Batch(prior="auto")`.

What a layer sees of a batch differs from its source by the shift, which we want to follow, and by chance, that is, by
which images happened to come, which we do not. Chance shows in how much the images of the batch differ from each other;
in a batch of one, in how much the quarters of the image do, which is about as much in the networks we tried. The share
of the difference that chance does not explain is trusted, up to `MOST`: every layer corrects what those before it have
left over, so that small steps add up, and with whole steps the noise of all layers would add up instead.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d

from covshift.core.moments import Moments, widen
from covshift.core.places import Place
from covshift.core.ranks import over_ranks
from covshift.core.source import Source

MOST = 0.4

DOUBT = 2.0
"""How many times the chance that was measured on clean images is taken for chance."""


class Rule(NamedTuple):
    """How much of what a place has seen is followed: `most` of the share that chance does not explain.

    Attributes:
        most: the weight of what was seen where chance explains nothing of it, from 0 to 1.
        chance: how far mean and standard deviation would have moved by chance, as `changed` measures it.
        own: how many times the chance that the images of this pass show of themselves is to be taken instead; theirs
            is known of means only.
    """

    most: float
    chance: float = 0.0
    own: float = 0.0

    def weigh(self, place: Place, seen: Moments, x: Tensor, images: int) -> float | Tensor:
        """Return the weight of what was seen at a place, where `x`, of so many images, is the last of it."""
        if not self.chance and not self.own:
            return self.most
        if self.own:
            chance = self.own * (chance_of_batch(x, images, sync=False) * place.scale).mean()
            share = beyond(place.moved(seen), chance)
        else:
            share = beyond(changed(place, seen), torch.full_like(place.scale[:1], self.chance))
        return (self.most * share).to(seen.mean.dtype)


def trust(layer: Place, seen: Moments, chance: Tensor) -> Tensor:
    """Return the weight of what was seen against the source, from 0 to `MOST`: n/(N+n) of Eq. 3.

    Args:
        layer: the layer, with its source statistics.
        seen: the moments that were measured, [channels] or [groups, channels].
        chance: the variance of their means by chance, in the same shape.

    Returns:
        One weight [1], or one for each group [groups, 1].
    """
    share = beyond(layer.moved(seen), (chance * layer.scale).mean(-1, keepdim=True))
    return (MOST * share).to(seen.mean.dtype)


def beyond(moved: Tensor, chance: Tensor) -> Tensor:
    """Return the share of how far a place has moved that chance does not explain, from 0 to 1."""
    return (1 - chance / moved.clamp(min=torch.finfo(moved.dtype).tiny)).clamp(min=0)


def changed(place: Place, seen: Moments) -> Tensor:
    """Return how far a place has moved, as `Place.moved` does, with standard deviations counted beside means.

    What places before correct to the source moves clean images toward the source here; that is not counted.
    """
    apart = _apart(place, widen(seen.mean), widen(seen.var))
    if place.clean[0] is not place.mean:
        way = _apart(place, *place.wide)
        length = way.square().sum().clamp(min=torch.finfo(way.dtype).tiny)
        apart = apart - ((apart * way).sum(-1, keepdim=True) / length).clamp(0, 1) * way
    return apart.square().sum(-1, keepdim=True) / len(place.mean)


def _apart(place: Place, mean: Tensor, var: Tensor) -> Tensor:
    """Return how far means and standard deviations are from those of clean images, in their deviations."""
    stretch = ((var + place.eps) * place.scale).sqrt() - 1
    return torch.cat([(mean - place.wide_clean[0]) * place.scale.sqrt(), stretch], -1)


def beyond_chance(place: Place, seen: Moments, source: Source) -> Tensor:
    """Return the share of how far a place has moved from a measured source that chance does not explain, [1].

    Counted are the changes of means and of standard deviations. Both source and target are of some images, so that
    each is off by its part of the spread from image to image. Going this share of the way from the source to what was
    seen is the estimate of James and Stein, here with twice the chance, since channels do not vary independently.
    """
    spread = source.spread[place.path] + source.spread_std[place.path]
    return beyond(changed(place, seen), DOUBT * chance_of_source(source, place, spread, seen.images))


def chance_of_source(source: Source, place: Place, spread: Tensor, images: float) -> Tensor:
    """Return how far clean images would move a place from a measured source by chance, as `Place.moved` measures it.

    Args:
        source: the source.
        place: the place.
        spread: the variance of the mean of one image, [channels].
        images: the number of images.
    """
    return (spread * place.scale).mean() * (1 / max(images, 1) + 1 / source.statistics.images)


def chance_of_batch(x: Tensor, images: int, *, sync: bool) -> Tensor:
    """Return the variance by chance of the mean of all of `x`, over all ranks if `sync`; [channels]."""
    channels = x.shape[1]
    if images:
        # Rows that cannot be assigned to images count as images themselves.
        images = images if len(x) % images == 0 else len(x)
        means, quarters = _of_images(x, images)
        between, within = means.var(0, correction=0), quarters.mean(0)
        mean, var = torch.cat([means.mean(0), within]), torch.cat([between, torch.zeros_like(within)])
        local = Moments(images, images, mean, var)
    else:
        nothing = widen(torch.zeros(2 * channels, device=x.device))
        local = Moments(0, 0, nothing, nothing)
    pooled = over_ranks(local) if sync else local
    return _combine(pooled.var[:channels], pooled.mean[channels:], pooled.images)


def chance_of_groups(x: Tensor, images: int, groups: list[Moments]) -> list[Tensor]:
    """Return the variance by chance of each group's mean, [groups, channels], for each entry of `measure_groups`."""
    means, quarters = _of_images(x, images)
    chances, start = [], 0
    for group in groups:
        stop = start + len(group.mean) * int(group.images)
        mine, within = (part[start:stop].unflatten(0, (len(group.mean), -1)) for part in (means, quarters))
        chances.append(_combine(mine.var(1, correction=0), within.mean(1), group.images))
        start = stop
    return chances


def _combine(between: Tensor, within: Tensor, n: float) -> Tensor:
    """Return the variance of the mean of n images, from the variance between them and that between their quarters."""
    # Images have n - 1 ways to differ from their mean; the quarters stand in for the one that is missing.
    known = torch.where(within.isfinite(), within, between * (n / (n - 1)) if n > 1 else torch.inf)
    return (between + known / max(n, 1)) / max(n, 1)


def _of_images(x: Tensor, images: int) -> tuple[Tensor, Tensor]:
    """Return each image's mean and the variance of a quarter's mean, by channel; NaN where it has no quarters."""
    x = x.detach()
    if len(x) > images:
        # Several rows are one image, such as tokens. They take the place of the quarters.
        rows = x.flatten(2).mean(2) if x.ndim > 2 else x
        parts = rows.unflatten(0, (images, -1)).transpose(1, 2)
    elif x.ndim == 3:
        parts = adaptive_avg_pool1d(x, min(4, x.shape[2]))
    elif x.ndim == 4:
        parts = adaptive_avg_pool2d(x, (min(2, x.shape[2]), min(2, x.shape[3])))
    elif x.ndim == 5:
        parts = adaptive_avg_pool3d(x, (1, min(2, x.shape[3]), min(2, x.shape[4])))
    else:
        parts = x.unsqueeze(2)
    parts = widen(parts.flatten(2))
    means = parts.mean(2)
    return means, parts.var(2) if parts.shape[2] > 1 else torch.full_like(means, torch.nan)
