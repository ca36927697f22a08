"""`adapt`: put a policy on a model, so that its statistics follow the data, and take it off again.

The model's layers stay the objects they are. Before each of them runs, a hook measures its input, mixes what it
measured with the source statistics by Eq. 3 of the paper, and writes the result into the layer's own running buffers;
the layer's own eval-mode forward does the rest. How much the source counts, and what is carried from batch to batch,
is up to the policy. Threads that share the model take turns, from the first hook of a pass to its last.
"""

import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property, partial
from types import FrameType, TracebackType
from typing import Any, NoReturn, Self

import torch
from torch import Tensor, nn

from covshift.core.carried import export_state, health_of, resume_state, settle
from covshift.core.compiled.fused import Fused
from covshift.core.compiled.grouped import Grouped
from covshift.core.forecasting import MEMORY, Follows, Forecaster, Forecasts, forecaster_of
from covshift.core.groups import measure_groups, renormalise, rows_of
from covshift.core.health import Health
from covshift.core.hooks import check_not_compiled, hooks_on, refuse_to_copy
from covshift.core.identity import fingerprint
from covshift.core.lane import Lane
from covshift.core.mixing import mix_all
from covshift.core.moments import not_finite
from covshift.core.passes import Pass, weigh
from covshift.core.places import Only, Patterns, Place, give_back
from covshift.core.policies import Memory, Policy, Rows, check_policy
from covshift.core.source import Source
from covshift.core.statistics import Statistics
from covshift.core.turns import Turns
from covshift.core.uncompiled import leave_uncompiled
from covshift.core.wrappers import AnyModel, module_of, unwrap
from covshift.support.errors import CovshiftError, plural


class Adapter:
    """Statistics that follow the data, attached to a model; made by `adapt`. Leaving a `with` block removes it.

    Several threads may call the model at once: their passes take turns, and each gets the answers that it would get
    alone. Its source statistics are what `model.state_dict()` holds meanwhile; copying the model is refused.
    """

    def __init__(
        self,
        model: nn.Module,
        policy: Policy,
        places: list[Place],
        source: Source | None = None,
        forecaster: Forecaster | None = None,
    ) -> None:
        self.policy = policy
        self._places = places
        self._source = source
        self._forecasts = Forecasts(forecaster)
        self._model = root = unwrap(model)
        self._memory = Memory(source=source)
        self._fused = Fused(places, policy, source.classes if source else None)
        self._grouped = Grouped(places, policy)
        self._passes: list[Pass] = []
        self._turns = Turns()
        self._reached = False
        self._weights: Mapping[str, float | Tensor] = {}
        self._watched: set[str] = set()
        self._handles = [
            root.register_forward_pre_hook(self._begin, prepend=True),
            *(handle for place in places for handle in place.hook(self._act)),
            *self._grouped.hook(places),
            *(handle for place in places for handle in place.guard_state_dict()),
            root.register_forward_hook(self._end, always_call=True),
            root.register_load_state_dict_pre_hook(_refuse_to_load),
        ]

    @cached_property
    def _fingerprint(self) -> str:
        return fingerprint(self._model)

    @property
    def state(self) -> Statistics:
        """The statistics of the last batch (`Batch` without `size`) or of the stream so far (`Stream`).

        To resume a `Stream`, assign a state that was saved or kept from before.
        """
        return export_state(self.policy, self._memory, self._places, self._fingerprint, self._source)

    @state.setter
    def state(self, state: Statistics) -> None:
        self._restart(resume_state(self.policy, state, self._places, self._fingerprint, self._source))

    @property
    def health(self) -> Health:
        """What the adapter does at the moment, and why; with a predictor, also the errors to expect."""
        health = health_of(self.policy, self._memory, self._weights, self._places)
        return replace(health, forecast=self._forecasts.at(self._memory.seen))

    def reset(self) -> None:
        """Forget what was seen and return to the source statistics; the adapter stays attached."""
        self._restart(Memory(source=self._source))

    def remove(self) -> None:
        """Remove the adapter; the model is restored bit for bit. What a stream has seen stays in `state`."""
        with self._turns.held():
            if self._handles:
                give_back(self._places, self._handles)
            self._handles = []
            self._passes = []
        self._turns.give_up()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()

    def __repr__(self) -> str:
        layers = plural(len(self._places), "layer")
        where = f"{layers}, {self.state.images:g} images seen" if self._handles else "removed"
        return f"Adapter({self.policy}, {where})"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        refuse_to_copy()

    def _begin(self, model: nn.Module, args: object) -> None:
        if self.policy.idle:
            return
        # Of code that torch.compile has made there is no frame to remember.
        self._enter(None if torch.compiler.is_compiling() else sys._getframe(1).f_back)

    def _enter(self, frame: FrameType | None, alone: Place | None = None) -> None:
        depth = self._turns.enter(frame, part=alone.path if alone else None)
        if len(self._passes) > depth:  # passes that Ctrl-C has ended
            del self._passes[depth:]
            self._rewind()
        self._memory.derived.clear()  # of a pass that failed
        self._passes.append(Pass(self._memory, sys.exc_info()[1], alone, self._fused.begin([self._memory])))
        if not self._handles:  # removed while this thread was waiting
            self._leave()

    def _act(self, place: Place, passing: Any) -> Any:
        """Correct the activations that pass a place."""
        if self.policy.idle:
            return None
        if not self._turns.mine():
            self._enter(sys._getframe(3), place)
            if not self._handles:
                return None
            if place.path not in self._watched:
                self._watched.add(place.path)
                after = partial(self._end, alone=place)
                self._handles.append(place.module.register_forward_hook(after, always_call=True))
        x = place.read(passing, self._passes[-1].meter.known)
        if self.policy.size is not None:
            return place.replaced(passing, self._regroup(place, x, self.policy.size))
        if self._passes[-1].correct(place, x):
            return None
        self._follow(place, x)
        return place.finish(passing)

    def _follow(self, layer: Place, x: Tensor) -> None:
        target, weight = self._passes[-1].learn(self.policy, layer, x, self._memory)
        layer.mix(target.mean, target.var, weight)

    def _regroup(self, layer: Place, x: Tensor, size: int) -> Tensor:
        images = (current := self._passes[-1]).meter.images(x)
        if images == 0:
            return x
        if len(x) % images:
            raise CovshiftError(
                f"layer {layer.path!r} has {len(x)} rows for {images} images, which cannot be assigned to images; "
                "leave this layer out with layers=, or use Batch without size="
            )
        hooks = 2 if layer.path in self._watched else 1
        if (variance := self._grouped.normalise(layer, x, images, self._memory, hooks)) is not None:
            current.variances.append((layer.path, variance))
            return x[:0]
        groups = measure_groups(x, images, size)
        parts = x.split([rows_of(group, x) for group in groups])
        weights = [
            weigh(self.policy, layer, group, Rows(part, len(group.mean) * int(group.images), self._memory))
            for group, part in zip(groups, parts, strict=True)
        ]
        current.variances.extend((layer.path, group.var) for group in groups)
        return renormalise(x, layer, groups, weights)

    def _end(self, model: nn.Module, args: object, output: object, alone: Place | None = None) -> None:
        # A pass that began before the adapter came, or that a layer is only a part of, does not end here.
        if not self._turns.mine() or not self._passes or self._passes[-1].alone is not alone:
            return
        ended = self._passes[-1]
        try:
            if sys.exc_info()[1] is not ended.outer:
                self._rewind()
            else:
                self._commit(ended, None if alone else output)
        finally:
            self._leave()

    def _leave(self) -> None:
        self._passes.pop()
        self._turns.leave()

    def _commit(self, ended: Pass, output: object) -> None:
        """Add what a pass saw to the memory, unless it was not finite."""
        if (path := ended.broken()) is not None:
            problem = not_finite(path)
            try:
                self._rewind()
            except Exception as error:  # of a policy that weighs by rows also where there are none
                raise problem from error
            raise problem
        self._reached = self._reached or ended.meter.used
        if not self._reached:
            raise _nothing_reached(self._places)
        seen = ended.seen_after(self.policy, self._memory)
        try:
            answers = self._forecasts.after(output)
        except CovshiftError:
            self._rewind()
            raise
        self._memory, self._weights = self.policy.commit_all([self._memory], [seen], [output])[0], ended.all_weights()
        self._forecasts.keep(answers if self._memory.seen else None)  # the policy may have started anew

    def _restart(self, memory: Memory) -> None:
        if not self._handles:
            raise CovshiftError("this adapter was removed from its model; adapt() the model again")
        with self._turns.held():
            self._memory, self._weights = memory, {}
            self._forecasts.keep(None)
            self._rewind()

    def _rewind(self) -> None:
        """Write the statistics from before this pass into the layers."""
        seen = self._memory.seen if self.policy.carries else {}
        reached = [place for place in self._places if place.path in seen]
        for place in self._places:
            if place.path not in seen:
                place.restore()  # an anchored layer would not get back what it held by mixing, to the last bit
        if reached:
            weights = {place.path: self.policy.weigh(place, seen[place.path], None) for place in reached}
            rest = [place for place in reached if not self._fused.write(place, seen[place.path], weights[place.path])]
            mix_all(rest, [seen[place.path] for place in rest], [weights[place.path] for place in rest])


leave_uncompiled(Adapter._commit)


def _refuse_to_load(*args: object) -> None:
    raise CovshiftError("remove() the adapter before loading other weights: it would put the old statistics back")


def _nothing_reached(layers: list[Place]) -> CovshiftError:
    return CovshiftError(
        f"the model has run without calling {layers[0].path!r} or any other of the "
        f"{plural(len(layers), 'layer')} to adapt, so nothing was adapted; if its forward uses their statistics "
        "itself (F.batch_norm), make it call the layers, or else choose layers that it calls with layers="
    )


def adapt(
    model: AnyModel,
    policy: Policy,
    *,
    source: Source | None = None,
    layers: Patterns = None,
    only: Only = None,
    predictor: Follows | None = None,
) -> Adapter:
    """Let the statistics of `model` follow the data that it is given.

    Args:
        model: any model in eval mode, or what `open_model` returns; without a `source` it must have layers that hold
            `running_mean` and `running_var`.
        policy: `Batch(prior=N)`, `Stream(prior=N)`, `Live()` or a `Policy` of your own.
        source: what clean images look like inside of this model, by `Source.measure`; with it any network can be
            adapted, at the places where it was measured. None for the statistics that the model holds.
        layers: patterns of layer paths, e.g. "layer1.*", to adapt only those.
        only: "mean" or "var" to adapt only that moment.
        predictor: a `covshift.shift.Predictor` of this model, which forecasts the errors that `health` then has.

    Returns:
        The adapter; `remove()` it, or use it in a `with` block.

    >>> from covshift import Batch, Stream
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
    check_policy(policy)
    module = module_of(model)
    source, places = settle(policy, module, source, layers, only)
    check_not_compiled(module)
    forecaster = forecaster_of(predictor, module, getattr(policy, "memory", MEMORY))
    return Adapter(module, policy, places, source, forecaster)


def release(model: AnyModel) -> None:
    """Remove every adapter and fleet that is on `model` or on a part of it, for when the object itself was lost.

    >>> from covshift import Batch, Stream
    >>> net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)).eval()
    >>> _ = adapt(net, Batch(prior=16))
    >>> release(net)
    >>> adapt(net, Stream(prior=16)).remove()
    """
    for hook in [hook for module in unwrap(model).modules() for hook in hooks_on(module)]:
        if isinstance(hook.owner, Adapter | Lane):
            hook.owner.remove()
