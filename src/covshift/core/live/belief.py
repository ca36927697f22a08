"""How far the answers of a stream are believed.

Where adaptation cannot undo a shift, a model may call most images one of a few classes. If it were believed, what these
classes look like would count as no shift, the corrected images would look more like them, and the answers become surer
still. It shows in what is left over: the activations then lie far from those of clean images of the classes named.
"""

import torch

from covshift.core.auto import DOUBT
from covshift.core.classes import Classes
from covshift.core.live.order import FIRST, SURE, Order, Recent, first_places, means_without
from covshift.core.moments import widen
from covshift.core.policies import Memory

_LEFT = 0.06
"""What is left over of a shift, in what classes do, where the answers are believed by half."""

_SHIFT = 1.0
"""How much more may be left over, in what classes do, where nothing was corrected yet."""


def belief(memory: Memory, order: Order, classes: Classes, share: float, prior: float) -> float:
    """Return how far the answers to the remembered images are believed, from 0 to 1.

    Args:
        memory: what is remembered.
        order: what it holds of the order of the stream.
        classes: what classes do.
        share: the share of the last images in what is remembered.
        prior: how many images the source counts for.
    """
    source = memory.source
    if source is None or not classes.separate or order.batches <= SURE:
        return 1.0
    path = _telling(memory, classes)
    if path is None or not (of_classes := classes.readers[path].mean_strength):
        return 1.0
    reader, clean = classes.readers[path], (source.clean or source.statistics)[path]
    left = widen(memory.seen[path].mean) - widen(clean.mean) - order.mix @ classes.slopes[path].mean
    chance = DOUBT * (1 / order.images + 1 / source.statistics.images) + of_classes * order.doubt * share**2
    over = float((left.square() / reader.noise).mean()) - chance
    if over <= 0 or (over := over - DOUBT * _alike(memory, order, classes)) <= 0:
        return 1.0
    allowed = _LEFT + _SHIFT * (prior / (prior + order.images)) ** 2
    return 1 / (1 + (over / (allowed * of_classes)) ** 2)


def _alike(memory: Memory, order: Order, classes: Classes) -> float:
    """Return how alike the remembered images are, from 0, as of clean images chance makes any, to 1, all the same.

    Images that are alike are one image by chance, however many they are. It shows in how little the last ones differ
    from the others at the first places, where a shift may have shrunk or stretched all differences.
    """
    assert memory.source is not None
    clean, first = memory.source.clean or memory.source.statistics, first_places(memory.seen, classes)
    recent = Recent.of(memory.notes)
    apart = recent.means - means_without(first, classes, order.mix)
    parts = apart.split([len(each.mean) for each in first.values()])
    differ = 0.0
    for (path, seen), part in zip(first.items(), parts, strict=True):
        noise, usual = classes.slopes[path].noise, widen(clean[path].var)
        stretched = noise * widen(seen.var) / usual.clamp(min=torch.finfo(torch.float32).eps)
        differ += float(part.square().sum() / stretched.clamp(min=torch.finfo(torch.float32).tiny).sum())
    return max(0.0, 1 - differ / len(first) / (recent.chance + 1 / order.images))


def _telling(memory: Memory, classes: Classes) -> str | None:
    """Return the place where classes do most, by what they do not explain; None if there are only first places.

    What the first places see is the shift itself, which was not corrected before them: it says nothing of the answers.
    """
    assert memory.source is not None
    derived, name = memory.source.derived, ("telling", *memory.seen)
    if name not in derived:
        later = [path for path in memory.seen if path in classes.slopes][FIRST:]
        derived[name] = max(later, key=lambda path: classes.readers[path].mean_strength, default=None)
    found: str | None = derived[name]
    return found
