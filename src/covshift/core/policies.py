"""How statistics follow the data: `Batch`, `Stream`, and `Policy`, of which users may make their own."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covshift.core.auto import MOST, Rule, chance_of_batch, chance_of_groups, trust
from covshift.core.health import Health, judge
from covshift.core.moments import Moments, add_batch
from covshift.core.places import Place
from covshift.core.seen import images_in, joined
from covshift.core.source import Source
from covshift.core.statistics import Prior, Statistics, check_prior, target_weight
from covshift.support.checks import check_flags
from covshift.support.errors import CovshiftError, is_number

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Memory:
    """The state that an adapter carries from one pass to the next.

    Attributes:
        seen: the moments of what each layer has seen, by path.
        notes: tensors that a policy keeps for itself, by name; `adapter.state` holds them, too.
        source: the source that the model is adapted with; not a part of the state.
        derived: what a policy has made of all this, by name, to be used again in the same pass.
    """

    seen: Mapping[str, Moments] = field(default_factory=dict)
    notes: Mapping[str, Tensor] = field(default_factory=dict)
    source: Source | None = None
    derived: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def to(self, devices: Mapping[str, torch.device]) -> "Memory":
        """Return a copy with the moments of each layer on its own device, and notes on that of the first layer."""
        seen = {path: moments.to(devices[path]) for path, moments in self.seen.items()}
        first = next(iter(devices.values()))
        return replace(self, seen=seen, notes={name: note.to(first, copy=True) for name, note in self.notes.items()})


@dataclass(frozen=True, slots=True)
class Rows:
    """The input of a layer in one call, for policies that look at more than its moments.

    Attributes:
        x: the input, [rows, channels, ...].
        images: the number of images that the rows belong to; a layer may see several rows for each image.
        memory: the state that earlier passes have left.
    """

    x: Tensor
    images: int
    memory: Memory


class Policy:
    """A rule for how the statistics of a model follow the data; derive from it to make your own.

    `adapt` asks the policy at every normalisation layer. It first calls `follow` for the moments that the layer is to
    be corrected by, then `weigh` for how much these count against the source statistics. When the model has returned,
    it calls `commit` for the memory of the next pass. A policy keeps no state in itself, so that one object can be
    used for many models at once.

    Attributes:
        carries: whether a pass begins with what earlier ones have seen; if not, every pass starts afresh.
        size: the number of consecutive images that make a statistical batch; None for all that the model is given.
        sync: whether ranks of `torch.distributed` pool what they see.
        idle: whether the model stays as it is, so that nothing needs to be measured.

    A policy that goes half of the way, and whose memory fades by half with every batch:

    >>> import torch
    >>> from torch import nn
    >>> from covshift.core.adapter import adapt
    >>> from covshift.core.moments import merge
    >>> class Halfway(Policy):
    ...     carries = True
    ...
    ...     def follow(self, before, batch):
    ...         if before is None:
    ...             return batch
    ...         return merge(replace(before, count=before.count / 2, images=before.images / 2), batch)
    ...
    ...     def weigh(self, place, seen, rows):
    ...         return 0.5
    >>> net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)).eval()
    >>> with adapt(net, Halfway()) as adapter:
    ...     for images in torch.rand(3, 4, 3, 8, 8):
    ...         logits = net(images)
    ...     adapter.state.images
    7.0
    """

    carries: ClassVar[bool] = False
    size: int | None = None
    sync: bool = True

    @property
    def idle(self) -> bool:
        """Whether the model stays as it is."""
        return False

    @property
    def decay(self) -> float | None:
        """The factor by which an image's weight falls with every image after it; None if all count equally."""
        return None

    def settle_on(self, source: Source, model: torch.nn.Module) -> Source:
        """Return the source to work with on a model; by default the one that was given."""
        return source

    def follow(self, before: Moments | None, batch: Moments) -> Moments:
        """Return the moments to correct a layer by; by default those of the batch.

        Args:
            before: what the layer has seen in earlier passes; None if there were none, or if nothing is carried.
            batch: what it sees in this one.
        """
        return batch

    def aim(self, place: Place, seen: Moments, rows: Rows) -> Moments:
        """Return the moments to correct a place by, made of what `follow` returned; by default these.

        Args:
            place: the place, with its source statistics `mean` and `var`.
            seen: what `follow` returned.
            rows: the activations themselves.

        It is not asked by policies with `size`.
        """
        return seen

    def weigh(self, place: Place, seen: Moments, rows: Rows | None) -> float | Tensor:
        """Return how much `seen` counts against the source statistics of a layer, from 0 to 1: n/(N+n) in Eq. 3.

        Args:
            place: the layer, with its source statistics `mean` and `var`.
            seen: what `follow` returned; with `size`, moments of [groups, channels].
            rows: the input itself, with `size` that of the groups; None where a state is restored between two passes.

        Returns:
            A number, or a tensor that broadcasts to the moments: [channels], or with `size` [groups, 1].
        """
        raise CovshiftError(f"expected {type(self).__name__} to define weigh(), which tells how much a batch counts")

    def rule(self, place: Place, images: float, now: int, memory: Memory) -> Rule | None:
        """Return what `weigh` says as numbers, for compiled code; None if it cannot be said in numbers.

        Args:
            place: the place.
            images: the number of images that it has seen.
            now: the number of images of this pass.
            memory: the state that earlier passes have left.
        """
        return None

    def rules(
        self, places: Sequence[Place], images: Numbers, now: Sequence[int], memories: Sequence[Memory]
    ) -> Numbers:
        """Return the rules of some streams at all places, [streams, places, 3], of the images seen, [streams, places].

        Only for policies that have a `rule`, which is asked one by one unless there is a faster way.
        """
        rows = zip(images, now, memories, strict=True)
        found = [
            [self.rule(place, float(seen), number, memory) for place, seen in zip(places, each, strict=True)]
            for each, number, memory in rows
        ]
        return np.array(found, np.float64)

    def offset(self, memory: Memory, now: int) -> Tensor | None:
        """Return the mean embedding of the classes to leave out of what was seen, from the source's, for compiled code.

        Args:
            memory: the state that earlier passes have left.
            now: the number of images of this pass.
        """
        return None

    def reads(self, memory: Memory, now: int) -> bool:
        """Return whether `aim` looks at the images of this pass, of so many, which compiled code cannot."""
        return False

    def commit(self, memory: Memory, seen: Mapping[str, Moments], output: object) -> Memory:
        """Return the memory of the next pass, after a pass that succeeded.

        Args:
            memory: the memory from before this pass.
            seen: what the layers of this pass have seen.
            output: what the model returned, for `logits_of`; None after a layer that was called by itself.
        """
        return replace(memory, seen=joined(memory.seen, seen) if self.carries else seen)

    def commit_all(
        self, memories: Sequence[Memory], seen: Sequence[Mapping[str, Moments]], outputs: Sequence[object]
    ) -> list[Memory]:
        """Return what `commit` returns for each of some streams."""
        return [self.commit(*each) for each in zip(memories, seen, outputs, strict=True)]

    def judge(self, memory: Memory, trust: Mapping[str, float], shift: Mapping[str, float]) -> Health:
        """Return what the adapter does at the moment, and why.

        Args:
            memory: what is remembered.
            trust: the weight of what each place has seen in the last pass, by path.
            shift: how far each place is from its source, in standard deviations, by path.
        """
        return judge(images_in(memory.seen), trust, shift, classes=(), reset=False)

    def export(self, memory: Memory, source: Statistics) -> Statistics:
        """Return the state that users save and swap: what each layer has seen, or its source statistics."""
        seen = {**source, **memory.seen}
        return source.with_layers(seen, memory.notes)

    def resume(self, state: Statistics) -> Memory:
        """Return the memory that a state describes."""
        if not self.carries:
            problem = f"{type(self).__name__} starts afresh with every batch; only a Stream, or a policy like it, has a"
            raise CovshiftError(f"{problem} state to resume from")
        if not isinstance(state, Statistics):
            raise CovshiftError(f"expected a state, as adapter.state returns it, got {type(state).__name__}")
        return Memory({path: moments for path, moments in state.items() if moments.count}, state.notes)


@dataclass(frozen=True)
class Batch(Policy):
    """A policy that normalises every batch by N/(N+n) source + n/(N+n) batch statistics (Eq. 3), n = images in it.

    Args:
        prior: N, how many images the source statistics count for. 0 is plain batch statistics, inf the model as it is,
            "auto" lets each layer weigh what it sees of the batch against chance, i.e. which images happened to come.
        size: the number of consecutive images in a statistical batch; None for all that the model is given at
            once, over all ranks. With `size=8`, a model given 256 images answers as if it had been given 32
            batches of 8.
        sync: whether ranks of `torch.distributed` pool their batches; batches of a `size` never cross ranks.
    """

    prior: Prior = 16
    size: int | None = None
    sync: bool = True

    def __post_init__(self) -> None:
        if not (isinstance(self.prior, str) and self.prior == "auto"):
            check_prior(self.prior)
        if self.size is not None and (not is_number(self.size, whole=True) or self.size < 1):
            raise CovshiftError(f"expected size to be a number of images from 1, got {self.size!r}")
        check_flags(sync=self.sync)

    @property
    def idle(self) -> bool:
        """Whether the source statistics count for everything."""
        return self.prior == math.inf

    def weigh(self, place: Place, seen: Moments, rows: Rows | None) -> float | Tensor:
        """Return n/(N+n), or for "auto" the share of the difference that chance does not explain."""
        if self.prior != "auto":
            return target_weight(seen.images, self.prior)
        assert rows is not None
        if self.size is None:
            return trust(place, seen, chance_of_batch(rows.x, rows.images, sync=self.sync))
        return trust(place, seen, chance_of_groups(rows.x, rows.images, [seen])[0])

    def rule(self, place: Place, images: float, now: int, memory: Memory) -> Rule:
        """Return the numbers of Eq. 3 or, for "auto", those of chance."""
        return Rule(MOST, own=1.0) if self.prior == "auto" else Rule(target_weight(images, self.prior))


@dataclass(frozen=True)
class Stream(Policy):
    """A policy that follows a stream of batches of any size; the prior fades as N/(N+n), n = images seen so far.

    Args:
        prior: N, how many images the source statistics count for.
        decay: None to remember all images equally; else the factor by which an image's weight falls with every image
            after it, for a domain that drifts: 0.99 remembers about the last 100 images, whatever the batch size.
        sync: whether ranks of `torch.distributed` follow one stream together.
    """

    carries: ClassVar[bool] = True

    prior: float = 16
    decay: float | None = None
    sync: bool = True

    def __post_init__(self) -> None:
        check_prior(self.prior)
        if self.decay is not None and not (is_number(self.decay) and 0 < self.decay < 1):
            raise CovshiftError(f"expected decay to be a factor between 0 and 1, or None, got {self.decay!r}")
        check_flags(sync=self.sync)

    def follow(self, before: Moments | None, batch: Moments) -> Moments:
        """Return the estimate of the target after `batch`: all that was seen, with the variance between batches."""
        return add_batch(before, batch, self.decay)

    def weigh(self, place: Place, seen: Moments, rows: Rows | None) -> float:
        """Return n/(N+n), where n is the number of images that are remembered."""
        return target_weight(seen.images, self.prior)

    def rule(self, place: Place, images: float, now: int, memory: Memory) -> Rule:
        """Return the numbers of Eq. 3."""
        return Rule(target_weight(images, self.prior))


def check_policy(policy: object) -> None:
    """Raise a `CovshiftError` unless `policy` can be put on a model."""
    if not isinstance(policy, Policy):
        raise CovshiftError(f"expected a policy such as Batch(prior=16) or Stream(prior=16), got {policy!r}")
    if policy.size is not None and policy.carries:
        raise CovshiftError(
            f"expected a policy that either carries what it saw or works on groups of size= images, got {policy!r}, "
            "which does both"
        )
