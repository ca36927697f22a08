"""Whether the images of a batch keep apart inside of a model, so that each camera can be given its own rows."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from covshift.core.calling import call_model, logits_of
from covshift.core.places import Place
from covshift.support.errors import CovshiftError

_SAME = 0.02
"""The largest difference, as a share, of what is taken for the same: networks with int8 layers round by the batch."""


def check_apart(model: nn.Module, places: Sequence[Place], images: Tensor) -> None:
    """Raise a `CovshiftError` unless the rows of activations belong to one image after the other.

    Crops that lie side by side in a batch, or layers that normalise a batch by itself, would mix cameras in silence.
    So noise is shown twice, next to two other pictures of noise, once as the first image and once as the second: what
    it makes at each place has to be the same.

    Args:
        model: the model, whose hooks leave activations as they are.
        places: where activations are corrected.
        images: a batch like the ones that will come.
    """
    noise = torch.Generator().manual_seed(0)
    one, *others = (torch.rand(images[:1].shape, generator=noise).to(images) for _ in range(3))
    for half in range(2):
        before, after = (
            _halves(model, places, torch.cat([one, other] if half == 0 else [other, one]), half) for other in others
        )
        different = [name for name in before if name not in after or not _are_same(before[name], after[name])]
        if different:
            raise CovshiftError(
                f"at {different[0]} what the model makes of an image depends on the other images of its batch, or does "
                "not lie in one run of rows, so that cameras cannot share a forward pass; adapt each camera by itself"
            )


def _are_same(before: Tensor, after: Tensor) -> bool:
    return before.shape == after.shape and bool((after - before).norm() <= _SAME * before.norm())


def _halves(model: nn.Module, places: Sequence[Place], pair: Tensor, which: int) -> dict[str, Tensor]:
    """Return the first or second half of the rows that pass each place, and of the answers, by what they are called."""
    halves: dict[str, Tensor] = {}

    def keep(name: str, x: Tensor) -> None:
        halves[name] = x.tensor_split(2)[which].detach().float().clone()

    handles = [
        handle
        for place in places
        for handle in place.hook(lambda at, passing: keep(f"layer {at.path!r}", at.read(passing, len(pair))))
    ]
    try:
        keep("the end", logits_of(call_model(model, pair)))
    finally:
        for handle in handles:
            handle.remove()
    return halves
