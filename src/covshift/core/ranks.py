"""What the ranks of `torch.distributed` tell each other."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist

from covshift.core.moments import Moments, merge, widen
from covshift.support.errors import CovshiftError

_FAILED = -1


def has_ranks() -> bool:
    """Whether this process is one of several ranks."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def over_ranks(moments: Moments) -> Moments:
    """The moments over all ranks; unchanged where there are none."""
    if not has_ranks():
        return moments
    # Gathering and merging keeps the digits that a sum of squares over ranks would cancel.
    numbers = torch.tensor([moments.count, moments.images], device=moments.mean.device)
    mine = torch.cat([widen(numbers), widen(moments.mean), widen(moments.var)])
    everyone = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, mine)
    channels = len(moments.mean)
    total = Moments(0, 0, moments.mean, moments.var)
    for theirs in everyone:
        count, images = theirs[:2].tolist()
        total = merge(total, Moments(count, images, theirs[2 : 2 + channels], theirs[2 + channels :]))
    return total


def least(number: int, device: torch.device) -> int:
    """The least of the numbers, from 0, that the ranks bring; an error where one of them brings its failure instead."""
    if not has_ranks():
        return number
    agreed = torch.tensor([number], device=device)
    dist.all_reduce(agreed, dist.ReduceOp.MIN)
    if agreed.item() == _FAILED != number:
        raise CovshiftError("another rank failed; its error is in its own output")
    return int(agreed.item())


@contextmanager
def telling_others(device: torch.device) -> Iterator[None]:
    """A block after which all ranks call `least`: an error in it is told to them, who would otherwise wait for ever."""
    try:
        yield
    except Exception:
        least(_FAILED, device)
        raise
