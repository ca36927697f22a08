"""`Live`: a policy for a camera, which follows the shift, not the classes, and holds still where it cannot tell."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from covshift.core.auto import DOUBT, MOST, Rule
from covshift.core.classes import Classes, without_classes
from covshift.core.health import Health, judge
from covshift.core.live.answers import BETWEEN, Answer, notes_after, repetition, shares_of, whole_answers
from covshift.core.live.arrival import CHANGE, has_changed, meet
from covshift.core.live.belief import belief
from covshift.core.live.order import RECENT, Order, Recent, first_places, means_without, surprise, whole_order
from covshift.core.live.orders import First, Orders, locate_all
from covshift.core.live.outlook import Outlook
from covshift.core.live.spreads import Spreads
from covshift.core.moments import Moments, add_batch, fading, widen
from covshift.core.places import Place
from covshift.core.policies import Memory, Numbers, Policy, Rows
from covshift.core.ranks import number_of_ranks
from covshift.core.seen import Seen, images_in, joined, paths_of
from covshift.core.source import Source
from covshift.core.statistics import Statistics, check_prior
from covshift.core.toward import toward_training
from covshift.support.checks import check_flags
from covshift.support.errors import CovshiftError, is_number

_NOT_BELIEVED = "; the classes that the model names do not fit what it sees, so they count as unknown"
_NO_SOURCE = "; without a source it cannot tell classes from a shift, and follows less: measure one with Source.measure"


@dataclass(frozen=True)
class Live(Policy):
    """A policy for a stream in any order: single images or small batches, one domain after another.

    It remembers the last images, as `Stream` does, but follows neither what their classes explain nor what chance
    explains: every place counts what it has seen only as far as it differs from the source by more than clean images
    of these classes do. Needs a `Source` for that; without one it can tell less, and so follows less.

    Args:
        memory: the number of images that are remembered.
        prior: N, how many images the source statistics count for in addition (Eq. 3). A layer is corrected to its
            training statistics where these are as good as those of N clean images, else to the measured ones.
        sync: whether ranks of `torch.distributed` pool what they see; their classes stay apart.

    >>> import torch
    >>> from torch import nn
    >>> from covshift.core.adapter import adapt
    >>> from covshift.core.source import Source
    >>> net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 4)).eval()
    >>> source = Source.measure(net, torch.rand(100, 3, 8, 8))
    >>> with adapt(net, Live(), source=source) as adapter:
    ...     for frame in torch.rand(5, 1, 3, 8, 8):
    ...         logits = net(frame)
    ...     round(adapter.state.images, 1)
    5.0
    """

    carries: ClassVar[bool] = True

    memory: float = 200
    prior: float = 16
    sync: bool = False

    def __post_init__(self) -> None:
        check_prior(self.prior)
        check_flags(sync=self.sync)
        if not is_number(self.memory) or not 1 < self.memory < math.inf:
            raise CovshiftError(f"expected memory to be a number of images above 1, got {self.memory!r}")

    @property
    def decay(self) -> float:
        """The factor by which an image's weight falls with every image after it."""
        return 1 - 1 / self.memory

    def settle_on(self, source: Source, model: torch.nn.Module) -> Source:
        """Return the source, corrected to the training statistics where these are as good as `prior` clean images."""
        return toward_training(source, model, self.prior)

    def follow(self, before: Moments | None, batch: Moments) -> Moments:
        """Return the moments of the last images."""
        return add_batch(before, batch, self.decay)

    def aim(self, place: Place, seen: Moments, rows: Rows) -> Moments:
        """Return the moments to correct by: what would have been seen of the source's own classes."""
        memory, classes = rows.memory, _classes_of(rows.memory)
        if classes is None or place.path not in classes.slopes:
            return seen
        outlook = self._outlook(memory, rows.images)
        offset, before = outlook.offset, memory.seen.get(place.path)
        if outlook.spread and before is not None:
            batch, reader = _batch(before, seen, outlook.share), classes.readers[place.path]
            difference = outlook.difference(place, before, batch.mean, classes)
            if outlook.settled:
                meet(memory, place.path, outlook.surprise(difference, reader))
            if has_changed(memory):
                seen, offset = _alone(before, seen, outlook.share), outlook.coming
            else:
                offset = offset + (outlook.read(difference, reader) - outlook.coming) * outlook.share
        return without_classes(place, seen, classes.slopes[place.path], offset)

    def reads(self, memory: Memory, now: int) -> bool:
        """Return whether the classes of the images at hand are read off their activations."""
        return _classes_of(memory) is not None and self._outlook(memory, now).spread > 0

    def offset(self, memory: Memory, now: int) -> Tensor | None:
        """Return the mean embedding of the classes in the stream, from the source's; None if it is not known."""
        return None if _classes_of(memory) is None else self._outlook(memory, now).offset

    def weigh(self, place: Place, seen: Moments, rows: Rows | None) -> float | Tensor:
        """Return the share of the difference that neither chance nor classes explain, of n/(N+n)."""
        if rows is None:
            return 0.0
        memory = self._anew(rows.memory) if has_changed(rows.memory) else rows.memory
        return self.rule(place, seen.images, rows.images, memory).weigh(place, seen, rows.x, rows.images)

    def rule(self, place: Place, images: float, now: int, memory: Memory) -> Rule:
        """Return how far clean images of these classes would have moved a place, and how much to trust the rest."""
        return Rule(*(np.asarray(each).item() for each in self._rule([place], images, [now], [memory])))

    def rules(
        self, places: Sequence[Place], images: Numbers, now: Sequence[int], memories: Sequence[Memory]
    ) -> Numbers:
        """Return the rules of some streams at all places, [streams, places, 3], of the images seen there."""
        rules = np.empty((*np.shape(images), 3))
        rules[..., 0], rules[..., 1], rules[..., 2] = self._rule(places, images, now, memories)
        return rules

    def _rule(
        self, places: Sequence[Place], images: Numbers | float, now: Sequence[int], memories: Sequence[Memory]
    ) -> tuple[Numbers, Numbers, Numbers]:
        """Return what a `Rule` holds, for streams and places that share a source."""
        source, classes = memories[0].source, _classes_of(memories[0])
        weight, images = np.divide(images, np.add(images, self.prior)), np.maximum(images, 1.0)
        none = np.zeros(1)
        if source is None or not source.measured:
            classes_vary = BETWEEN * np.array([[repetition(memory)] for memory in memories])
            return MOST * weight, none, DOUBT * np.array(now)[:, None] * (1 / images + classes_vary)
        spread, known, factor = Spreads.of(places, source)
        few = 1 / images + 1 / source.statistics.images  # both the stream and the source are of some images
        if classes is None:
            return weight, DOUBT * spread * few, none
        outlooks = [self._outlook(*each) for each in zip(memories, now, strict=True)]
        unsure = np.maximum(spread - known, 0.0) * np.array([[each.doubt] for each in outlooks])
        for row, outlook, memory in zip(unsure, outlooks, memories, strict=True):
            for i, place in enumerate(places if outlook.spread else ()):
                if place.path in classes.slopes and place.path in memory.seen:
                    unread = classes.readers[place.path].unknown(place.scale, outlook.spread, outlook.chance)
                    row[i] = unread * factor[i]
        shares = np.array([[each.share] for each in outlooks])
        in_vain = DOUBT * (spread - known) * np.array([[(1 - each.belief) ** 2] for each in outlooks])
        return weight, DOUBT * known * few + unsure * shares**2 + np.maximum(in_vain, 0.0), none

    def _outlook(self, memory: Memory, now: int) -> Outlook:
        """Return what is expected of the classes of a pass of so many images."""
        name = f"outlook on {now}"
        if name not in memory.derived:
            classes = _classes_of(memory)
            assert classes is not None
            order = Order.of(memory.notes, classes)
            share = self._share(order.images, now)
            believed = self._belief(memory, order, classes, share)
            memory.derived[name] = Outlook.of(order, classes, now, share, believed)
        return memory.derived[name]  # type: ignore[no-any-return]

    def _belief(self, memory: Memory, order: Order, classes: Classes, share: float) -> float:
        """Return how far the answers are believed; what all ranks have seen says nothing of the answers of one."""
        pooled = self.sync and number_of_ranks() > 1
        return 1.0 if pooled else belief(memory, order, classes, share, self.prior)

    def _anew(self, memory: Memory) -> Memory:
        """Return the memory at the start of a new domain."""
        if "anew" not in memory.derived:
            classes = _classes_of(memory)
            assert classes is not None
            order = Order.of(memory.notes, classes)
            memory.derived["anew"] = replace(memory, seen={}, notes=order.anew().notes())
        return memory.derived["anew"]  # type: ignore[no-any-return]

    def _share(self, remembered: float, images: int) -> float:
        """Return the share of the images of a pass in what is remembered after it."""
        images *= number_of_ranks() if self.sync else 1  # what is remembered is of all ranks
        kept, each = fading(images, self.decay)
        new = each * images
        return new / (remembered * kept + new) if images else 0.0

    def commit(self, memory: Memory, seen: Mapping[str, Moments], output: object) -> Memory:
        """Return the memory with what was seen, and with the classes that the model said it shows."""
        classes = _classes_of(memory)
        after = super().commit(memory, seen, output)
        if not _is_measured(memory):
            answer = Answer.of(output)
            if answer is None:
                return after
            share = self._share(images_in(memory.seen), answer.images)
            return replace(after, notes=answer.added(memory.notes, share))
        located = None if classes is None or output is None else classes.locate(output)
        first = {} if classes is None else first_places(seen, classes)
        if classes is None or located is None or not len(located) or not first:
            return after
        if not located.isfinite().all():  # an image whose answer is NaN says nothing of the stream
            return memory
        if has_changed(memory):
            return self._anew(memory)
        order = Order.of(memory.notes, classes)
        share = self._share(order.images, len(located))
        offset = located.mean(0) - classes.centre
        images = images_in(seen)
        later = order.after(offset, images, share)
        before = memory.seen if paths_of(memory.seen) == paths_of(seen) else {}
        batch = {path: _batch(before.get(path), each, share) for path, each in first.items()}
        recent = Recent.of(memory.notes).after(means_without(batch, classes, offset), len(located))
        remembered = means_without(first, classes, later.mix)
        if order.images > 2 * RECENT and surprise(recent, remembered, images, first, classes) > CHANGE:
            return self._anew(memory)
        return replace(after, notes={**later.notes(), **recent.notes()})

    def commit_all(
        self, memories: Sequence[Memory], seen: Sequence[Mapping[str, Moments]], outputs: Sequence[object]
    ) -> list[Memory]:
        """Return what `commit` returns for each of some streams; in arrays where compiled code has measured them."""
        if len(memories) > 1 and type(self).commit is Live.commit and not _is_measured(memories[0]):
            counts = [len(each) if isinstance(each, torch.Tensor) and each.ndim else 0 for each in outputs]
            parts = [self._share(images_in(each.seen), now) for each, now in zip(memories, counts, strict=True)]
            notes = notes_after([memory.notes for memory in memories], outputs, parts)
            if notes is not None:
                after = zip(memories, seen, notes, strict=True)
                return [replace(old, seen=joined(old.seen, now), notes=each) for old, now, each in after]
        classes, held = _classes_of(memories[0]), [each for each in seen if isinstance(each, Seen)]
        first = First.of(held[0], classes) if classes is not None and len(held) == len(seen) else None
        located = None if first is None else locate_all(outputs, classes)
        if classes is None or first is None or located is None or type(self).commit is not Live.commit:
            return super().commit_all(memories, seen, outputs)
        orders = Orders.of([memory.notes for memory in memories], first)
        remembered, (offsets, numbers) = orders.numbers[:, 0].tolist(), located
        shares = [self._share(*each) for each in zip(remembered, numbers.tolist(), strict=True)]
        before = [memory.seen for memory in memories]
        surprise = orders.add(first, offsets, numbers, np.array(shares), before, held).tolist()
        return [
            self._anew(memory)
            if images > 2 * RECENT and far > CHANGE
            else replace(memory, seen=joined(memory.seen, each), notes=notes)
            for memory, each, notes, images, far in zip(
                memories, held, orders.notes(), remembered, surprise, strict=True
            )
        ]

    def resume(self, state: Statistics) -> Memory:
        """Return the memory that a state describes, or raise a `CovshiftError` if its notes are damaged."""
        memory = super().resume(state)
        if not (whole_order(memory.notes) and whole_answers(memory.notes)):
            raise CovshiftError("this state of a Live policy is damaged; start anew, or load an intact one")
        return memory

    def judge(self, memory: Memory, trust: Mapping[str, float], shift: Mapping[str, float]) -> Health:
        """Return what the adapter does at the moment, and why."""
        classes = _classes_of(memory)
        images = images_in(memory.seen)
        shares, more = () if _is_measured(memory) else shares_of(memory.notes), ""
        if classes is not None and memory.seen and classes.separate:
            order = Order.of(memory.notes, classes)
            shares = tuple(((order.mix + classes.centre) @ classes.embedding.mT).tolist())
            more = _NOT_BELIEVED if self._belief(memory, order, classes, self._share(order.images, 1)) < 1 / 2 else ""
        found = judge(images, trust, shift, classes=shares, reset="order" in memory.notes and not memory.seen)
        return replace(found, why=found.why + (more if _is_measured(memory) else _NO_SOURCE))


def _batch(before: Moments | None, after: Moments, share: float) -> Moments:
    """Return what the mean of a batch was, which moved what is remembered from `before` to `after`."""
    if before is None or not share:
        return after
    return replace(after, mean=before.mean + (widen(after.mean) - before.mean) / share)


def _alone(before: Moments, after: Moments, share: float) -> Moments:
    """Return what a batch was, which moved what is remembered from `before` to `after`."""
    mean = _batch(before, after, share).mean
    apart = mean - widen(before.mean)
    var = widen(before.var) + (widen(after.var) - widen(before.var)) / share - (1 - share) * apart.square()
    return Moments(after.count * share, after.images * share, mean, var.clamp(min=0))


def _is_measured(memory: Memory) -> bool:
    return memory.source is not None and memory.source.measured


def _classes_of(memory: Memory) -> Classes | None:
    return None if memory.source is None else memory.source.classes
