"""Answers among some of the classes only, where it is known that the others cannot be right."""

from collections.abc import Sequence

import torch
from torch import Tensor

from covshift.support.checks import check_number
from covshift.support.errors import CovshiftError


def restrict(logits: Tensor, among: Sequence[int] | None) -> Tensor:
    """Return logits in which only these classes can be the answer; those of all others are minus infinity.

    Args:
        logits: [images, classes].
        among: the classes that can be the answer; None for all of them.

    >>> restrict(torch.tensor([[3.0, 1.0, 2.0]]), [1, 2])
    tensor([[-inf, 1., 2.]])
    """
    if among is None:
        return logits
    classes = torch.tensor(_check(among, logits.shape[1]), device=logits.device)
    return torch.full_like(logits, -torch.inf).index_copy(1, classes, logits[:, classes])


def select(logits: Tensor, among: Sequence[int] | None) -> Tensor:
    """Return only the columns of these classes, for code that cannot work with infinite logits.

    >>> select(torch.tensor([[3.0, 1.0, 2.0]]), [1, 2])
    tensor([[1., 2.]])
    """
    return logits if among is None else logits[:, _check(among, logits.shape[1])]


def _check(among: Sequence[int], classes: int) -> list[int]:
    for each in among:
        check_number(each, "a class", 0, whole=True)
    if not among or not 0 <= min(among) <= max(among) < classes:
        raise CovshiftError(f"expected classes among the model's {classes}, got {list(among)[:5]}")
    return list(among)
