"""What the answers to a stream say of its classes where no source was measured: how often two images share one.

Without a source it is not known what classes do to the activations. But images that share a class say little of what
has shifted. The mean of n images varies by 1/n of what images of a class vary by, and where two of them share a class
with probability ρ beyond chance, by ρ times what classes vary by, however many they are.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from covshift.core.classes import logits_in
from covshift.core.moments import widen
from covshift.core.policies import Memory

BETWEEN = 4.0
"""How many times the variance of images of a class that of classes is taken to be."""

_NOTE = "answers"


class Answer(NamedTuple):
    """The mean probabilities that a model gave to the images of a pass, and the number of these."""

    mean: Tensor
    images: int

    @classmethod
    def of(cls, output: object) -> "Answer | None":
        """Return the mean answer of a model's output; None if it gives no classes."""
        logits = logits_in(output)
        if logits is None or not len(logits) or logits.shape[1] < 2 or not logits.isfinite().all():
            return None
        return cls(widen(logits.detach()).softmax(1).mean(0), len(logits))

    def added(self, notes: Mapping[str, Tensor], share: float) -> dict[str, Tensor]:
        """Return the notes of a memory, with this answer as that share of all that is remembered."""
        before = notes.get(_NOTE)
        if before is None or before.shape != self.mean.shape:
            return {**notes, _NOTE: self.mean}
        return {**notes, _NOTE: torch.lerp(before, self.mean, share)}


def notes_after(
    notes: Sequence[Mapping[str, Tensor]], outputs: Sequence[object], shares: Sequence[float]
) -> list[dict[str, Tensor]] | None:
    """Return what `Answer.added` makes of the notes of many streams, in few operations; None if that cannot be told.

    Args:
        notes: the notes of each stream.
        outputs: what the model returned for each.
        shares: the share of these images in what is remembered.
    """
    logits = [each for each in outputs if isinstance(each, Tensor) and each.ndim == 2 and each.shape[0]]
    if len(logits) < len(outputs) or len({each.shape[1:] for each in logits}) > 1 or logits[0].shape[1] < 2:
        return None
    rows = torch.cat(logits).detach()
    if not rows.isfinite().all():
        return None
    means, sizes = widen(rows).softmax(1), [each.shape[0] for each in logits]
    if len(means) > len(sizes):
        means = torch.stack([part.mean(0) for part in means.split(sizes)])
    held = [each.get(_NOTE) for each in notes]
    known = [mean if old is None or old.shape != mean.shape else old for old, mean in zip(held, means, strict=True)]
    later = torch.lerp(torch.stack(known), means, means.new_tensor(shares)[:, None])
    # Each gets a copy, which does not keep those of other streams in memory.
    return [{**each, _NOTE: row.clone()} for each, row in zip(notes, later, strict=True)]


def shares_of(notes: Mapping[str, Tensor]) -> tuple[float, ...]:
    """Return the share of each class in what is remembered; none if it is not known."""
    return tuple(notes[_NOTE].tolist()) if _NOTE in notes else ()


def repetition(memory: Memory) -> float:
    """Return how often two of the remembered images share a class, from 0, as often as by chance, to 1, always.

    It is 1 where nothing was seen yet, since a stream may begin with a run of a class, and 0 for a model without
    classes.
    """
    if _NOTE not in memory.notes:
        return 0.0 if memory.seen else 1.0
    mean = memory.notes[_NOTE]
    by_chance = 1 / len(mean)
    return min(1.0, max(0.0, (float(mean.square().sum()) - by_chance) / (1 - by_chance)))


def whole_answers(notes: Mapping[str, Tensor]) -> bool:
    """Return whether the notes of a state, as far as they are of answers, can be resumed from."""
    held = notes.get(_NOTE)
    return held is None or (held.ndim == 1 and len(held) > 1 and bool((held >= 0).all() & (held <= 1).all()))
