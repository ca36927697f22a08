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
    So noise is shown twice, next to two other pictures of noise: what it makes at each place has to be the same.

    Args:
        model: the model, whose hooks leave activations as they are.
        places: where activations are corrected.
        images: a batch like the ones that will come.
    """
    noise = torch.Generator().manual_seed(0)
    first, second, third = (torch.randn(images[:1].shape, generator=noise).to(images) for _ in range(3))
    before, after = (_first_halves(model, places, torch.cat([first, other])) for other in (second, third))
    for name, half in before.items():
        if name not in after or (after[name] - half).norm() > _SAME * half.norm():
            raise CovshiftError(
                f"at {name} what the model makes of an image depends on the other images of its batch, or does not lie "
                "in one run of rows, so that cameras cannot share a forward pass; adapt each camera by itself"
            )


def _first_halves(model: nn.Module, places: Sequence[Place], pair: Tensor) -> dict[str, Tensor]:
    """Return the first half of the rows that pass each place, and of the answers, by what they are called."""
    halves: dict[str, Tensor] = {}

    def keep(name: str, x: Tensor) -> None:
        halves[name] = x[: len(x) // 2].detach().float().clone()

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
