"""Exchange between the ranks of `torch.distributed`: moments, numbers, and whether one of them has failed."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor

from covshift.core.moments import Moments, merge, widen
from covshift.support.errors import CovshiftError

_FAILED = -1


def has_ranks() -> bool:
    """Return whether this process is one of several ranks."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def number_of_ranks() -> int:
    """Return the number of ranks that this process is one of; 1 without ranks."""
    return dist.get_world_size() if has_ranks() else 1


def over_ranks(moments: Moments) -> Moments:
    """Return the moments over all ranks; without ranks, the moments themselves."""
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


def sum_over_ranks(tensors: list[Tensor]) -> None:
    """Add up tensors, in place, over all ranks."""
    if has_ranks():
        for tensor in tensors:
            dist.all_reduce(tensor)


def least_of_ranks(number: int, device: torch.device) -> int:
    """Return the least of the numbers, from 0, that the ranks bring; raise a `CovshiftError` if one of them failed."""
    if not has_ranks():
        return number
    agreed = torch.tensor([number], device=device)
    dist.all_reduce(agreed, dist.ReduceOp.MIN)
    if agreed.item() == _FAILED != number:
        raise CovshiftError("another rank failed; its error is in its own output")
    return int(agreed.item())


@contextmanager
def sharing_failure(device: torch.device) -> Iterator[None]:
    """Report an error in this block to the other ranks, which call `least_of_ranks` next and would wait for ever."""
    try:
        yield
    except Exception:
        least_of_ranks(_FAILED, device)
        raise
