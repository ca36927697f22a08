"""How statistics follow the data: `Batch` and `Stream`, and `adapt`, which puts them on a model and takes them off.

The model's layers stay the objects they are. Before each of them runs, a hook measures its input, mixes what it
measured with the source statistics by Eq. 3 of the paper, and writes the result into the layer's own running buffers;
the layer's own eval-mode forward does the rest.
"""

import math
import sys
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import TracebackType
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn

from covshift.core.auto import chance_of_batch, chance_of_groups, trust
from covshift.core.groups import measure_groups, renormalise
from covshift.core.moments import Moments, measure, merge, widen
from covshift.core.places import (
    NormLayer,
    Only,
    Patterns,
    check_not_compiled,
    find_layers,
    mix_all,
    not_finite,
    one_value,
    unwrap,
)
from covshift.core.ranks import over_ranks
from covshift.core.statistics import Statistics, check_prior, fingerprint, target_weight
from covshift.support.errors import CovshiftError, is_number, plural


@dataclass(frozen=True)
class Batch:
    """Every batch is normalised by N/(N+n) source + n/(N+n) batch statistics (Eq. 3), n = images in the batch.

    Args:
        prior: N, how many images the source statistics count for. 0 is plain batch statistics, inf the model as it is,
            "auto" lets each layer weigh what it sees of the batch against the chance of which images came.
        size: how many consecutive images make a statistical batch; None for all that the model is given at once, over
            all ranks. With `size=8`, a model given 256 images answers as if it had been given 32 batches of 8.
        sync: whether ranks of `torch.distributed` pool their batches; batches of a `size` never cross ranks.
    """

    prior: float | Literal["auto"] = 16
    size: int | None = None
    sync: bool = True

    def __post_init__(self) -> None:
        if self.prior != "auto":
            check_prior(self.prior)
        if self.size is not None and (not is_number(self.size, whole=True) or self.size < 1):
            raise CovshiftError(f"size is a number of images from 1, got {self.size!r}")


@dataclass(frozen=True)
class Stream:
    """Statistics follow a stream of batches of any size; the prior fades as N/(N+n), n = images seen so far.

    Args:
        prior: N, how many images the source statistics count for.
        decay: None to remember all images equally; else the factor by which an image's weight falls with every image
            after it, for a domain that drifts: 0.99 remembers about the last 100 images, whatever the batch size.
        sync: whether ranks of `torch.distributed` follow one stream together.
    """

    prior: float = 16
    decay: float | None = None
    sync: bool = True

    def __post_init__(self) -> None:
        check_prior(self.prior)
        if self.decay is not None and not (is_number(self.decay) and 0 < self.decay < 1):
            raise CovshiftError(f"decay is a factor between 0 and 1, or None, got {self.decay!r}")

    def follow(self, seen: Moments | None, batch: Moments) -> Moments:
        """The estimate of the target after `batch`: all that was seen, with the variance between batches."""
        if self.decay is not None and batch.images > 0:
            # A batch weighs as much as its images would one by one: 1 + d + d² + ...
            kept = self.decay**batch.images
            share = (1 - kept) / (1 - self.decay) / batch.images
            batch = replace(batch, count=batch.count * share, images=batch.images * share)
            if seen is not None:
                seen = replace(seen, count=seen.count * kept, images=seen.images * kept)
        if seen is None:
            return replace(batch, mean=widen(batch.mean), var=widen(batch.var))
        return merge(seen, batch)


class Adapter:
    """Statistics that follow the data, attached to a model; made by `adapt`. Leaving a `with` block removes it."""

    def __init__(self, model: nn.Module, policy: Batch | Stream, layers: list[NormLayer]) -> None:
        self.policy = policy
        self._layers = layers
        self._model = root = unwrap(model)
        self._seen: dict[str, Moments] = {}
        self._pass = _Pass()
        self._handles = [
            root.register_forward_pre_hook(self._begin),
            *(layer.hook(self._before) for layer in layers),
            root.register_forward_hook(self._end, always_call=True),
            root.register_load_state_dict_pre_hook(_refuse_to_load),
        ]

    @cached_property
    def _fingerprint(self) -> str:
        return fingerprint(self._model)

    @property
    def state(self) -> Statistics:
        """What was seen: of the last batch (`Batch` without `size`) or of the stream so far (`Stream`).

        Assign one that was kept or loaded to a `Stream` to go on from there.
        """
        unseen = {layer.path: Moments(0, 0, layer.mean.clone(), layer.var.clone()) for layer in self._layers}
        return Statistics(unseen | self._seen, self._fingerprint)

    @state.setter
    def state(self, state: Statistics) -> None:
        if not isinstance(self.policy, Stream):
            raise CovshiftError("only a Stream has a state to go on from; Batch starts anew with every batch")
        if not isinstance(state, Statistics):
            raise CovshiftError(f"expected a state, as adapter.state gives it, got {type(state).__name__}")
        if state.fingerprint != self._fingerprint or state.keys() != {layer.path for layer in self._layers}:
            raise CovshiftError("this state is of another model, or of other layers than the ones adapted here")
        devices = {layer.path: layer.mean.device for layer in self._layers}
        self._check_attached()
        self._seen = {path: moments.to(devices[path]) for path, moments in state.items() if moments.count}
        self._rewind()

    def reset(self) -> None:
        """Forget what was seen: back to the source statistics, and still attached."""
        self._check_attached()
        self._seen = {}
        self._rewind()

    def remove(self) -> None:
        """Take the adapter off; the model is bit for bit what it was. What a stream has seen stays in `state`."""
        if self._handles:
            for layer in self._layers:
                layer.restore()
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()

    def __repr__(self) -> str:
        layers = plural(len(self._layers), "layer")
        where = f"{layers}, {self.state.images:g} images seen" if self._handles else "removed"
        return f"Adapter({self.policy}, {where})"

    def _begin(self, model: nn.Module, args: object) -> None:
        self._pass = _Pass(running=True, outer=sys.exc_info()[1])

    def _before(self, layer: NormLayer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Correct the statistics of one layer for the input that it is about to normalise."""
        policy = self.policy
        if isinstance(policy, Batch) and policy.prior == math.inf:
            return None
        try:
            x = layer.input(args, kwargs)
            images = self._pass.images_in(x)
            changed = None
            if isinstance(policy, Batch) and policy.size is not None:
                x = self._regroup(layer, x, images, policy.size)
                changed = ((x, *args[1:]), kwargs) if args else (args, {**kwargs, next(iter(kwargs)): x})
            else:
                self._follow(layer, x, images)
        except CovshiftError:
            self._rewind()
            raise
        if not self._pass.running:
            self._commit()
        return changed

    def _follow(self, layer: NormLayer, x: Tensor, images: int) -> None:
        batch = measure(x, images)
        if self.policy.sync:
            batch = over_ranks(batch)
        met = self._pass.meet(layer.path, batch)
        if isinstance(self.policy, Stream):
            seen = batch = self.policy.follow(self._seen.get(layer.path), met)
        else:
            seen = met
        self._check_several_values(layer, batch)
        if self.policy.prior == "auto":
            weight: float | Tensor = trust(layer, batch, chance_of_batch(x, images, sync=self.policy.sync))
        else:
            weight = target_weight(batch.images, self.policy.prior)
        layer.mix(batch.mean, batch.var, weight)
        self._pass.seen[layer.path] = seen
        self._pass.variances.append((layer.path, batch.var.to(layer.var.dtype)))

    def _regroup(self, layer: NormLayer, x: Tensor, images: int, size: int) -> Tensor:
        if images == 0:
            return x
        if len(x) % images:
            raise CovshiftError(
                f"layer {layer.path!r} has {len(x)} rows for {images} images, which cannot be told apart; "
                "leave this layer out with layers=, or use Batch without size="
            )
        groups = measure_groups(x, images, size)
        for group in groups:
            self._check_several_values(layer, group)
        self._pass.variances.extend((layer.path, group.var) for group in groups)
        if self.policy.prior == "auto":
            chances = chance_of_groups(x, images, groups)
            weights: list[Any] = [trust(layer, *pair) for pair in zip(groups, chances, strict=True)]
        else:
            weights = [target_weight(group.images, self.policy.prior) for group in groups]
        return renormalise(x, layer, groups, weights)

    def _end(self, model: nn.Module, args: object, output: object) -> None:
        failed = sys.exc_info()[1] is not self._pass.outer
        self._rewind() if failed else self._commit()

    def _commit(self) -> None:
        """A pass is over: what it saw counts, unless it was not finite."""
        ended, self._pass = self._pass, _Pass()
        # One look at all layers together: on a GPU each look would have to wait for it.
        if ended.variances and not torch.cat([var.flatten() for _, var in ended.variances]).isfinite().all():
            self._rewind()
            raise not_finite(next(path for path, var in ended.variances if not var.isfinite().all()))
        self._seen = self._seen | ended.seen if isinstance(self.policy, Stream) else ended.seen

    def _rewind(self) -> None:
        """Write what was seen before this pass into the layers."""
        self._pass = _Pass()
        seen = self._seen if isinstance(self.policy, Stream) else {}
        moments = [seen.get(layer.path, Moments(0, 0, layer.mean, layer.var)) for layer in self._layers]
        prior = self.policy.prior if isinstance(self.policy, Stream) else math.inf
        mix_all(self._layers, moments, [target_weight(each.images, prior) for each in moments])

    def _check_attached(self) -> None:
        if not self._handles:
            raise CovshiftError("this adapter was removed from its model; adapt() the model again")

    def _check_several_values(self, layer: NormLayer, seen: Moments) -> None:
        if seen.count == 1 and self.policy.prior == 0:
            raise one_value(layer.path)


def _refuse_to_load(*args: object) -> None:
    raise CovshiftError("remove() the adapter before loading other weights: it would put the old statistics back")


@dataclass
class _Pass:
    """One forward pass: whether the model is in it, how many images it is about, and what each layer saw."""

    running: bool = False
    outer: BaseException | None = None  # what the caller was handling when it began
    images: int | None = None
    met: dict[str, Moments] = field(default_factory=dict)
    seen: dict[str, Moments] = field(default_factory=dict)
    variances: list[tuple[str, Tensor]] = field(default_factory=list)

    def images_in(self, x: Tensor) -> int:
        """How many images `x` is about: as many as the first layer saw rows; later ones may see tokens or regions."""
        if not self.running:
            return len(x)
        if self.images is None:
            self.images = len(x)
        return self.images

    def meet(self, path: str, batch: Moments) -> Moments:
        """What a layer has met in this pass; one that is called twice meets the same images again."""
        if path in self.met:
            batch = replace(merge(self.met[path], batch), images=batch.images)
        self.met[path] = batch
        return batch


def adapt(model: nn.Module, policy: Batch | Stream, *, layers: Patterns = None, only: Only = None) -> Adapter:
    """Let the statistics of `model` follow the data that it is given.

    Args:
        model: any model in eval mode with layers that hold `running_mean` and `running_var`.
        policy: `Batch(prior=N)` or `Stream(prior=N)`.
        layers: patterns of layer paths, e.g. "layer1.*", to adapt only those.
        only: "mean" or "var" to adapt only that moment.

    Returns:
        The adapter; `remove()` it, or use it in a `with` block.

    >>> net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)).eval()
    >>> with adapt(net, Batch(prior=16)):
    ...     logits = net(torch.rand(4, 3, 8, 8))
    >>> cameras = adapt(net, Stream(prior=16))
    >>> for frame in torch.rand(5, 1, 3, 8, 8):
    ...     logits = net(frame)
    >>> cameras
    Adapter(Stream(prior=16, decay=None, sync=True), 1 layer, 5 images seen)
    >>> cameras.remove()
    """
    if not isinstance(policy, Batch | Stream):
        raise CovshiftError(f"expected a policy such as Batch(prior=16) or Stream(prior=16), got {policy!r}")
    found = find_layers(model, layers, only)
    check_not_compiled(model)
    return Adapter(model, policy, found)
