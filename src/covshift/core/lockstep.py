"""Many forward passes through one model, side by side: at every normalisation layer each waits for all the others.

So a layer's statistics can be taken over all passes before any of them continues, as if they were one giant batch, and
every operation is still done once. A pass is a greenlet: it can be suspended in the middle of the model's own code, at
any depth, and resumed. Only one runs at a time.
"""

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

import torch
from greenlet import getcurrent, greenlet
from torch import Tensor

from covshift.core.compiled.dense import measure_dense
from covshift.core.moments import Meter, Moments, merge
from covshift.core.parking import Held, Parking
from covshift.core.places import Place, give_back
from covshift.core.ranks import least_of_ranks, over_ranks, sharing_failure
from covshift.core.turns import Turns
from covshift.support.errors import CovshiftError


class _Autocast(NamedTuple):
    """The autocast settings of the thread, which the passes share and each may change."""

    enabled: bool
    dtype: torch.dtype

    @classmethod
    def now(cls, device: str) -> "_Autocast":
        return cls(torch.is_autocast_enabled(device), torch.get_autocast_dtype(device))

    def set(self, device: str) -> None:
        torch.set_autocast_enabled(device, self.enabled)
        torch.set_autocast_dtype(device, self.dtype)


class _Runner(greenlet):  # type: ignore[misc]
    """One forward pass, which is running, waiting at a layer, or over."""

    def __init__(self, run: Callable[[], object], autocast: _Autocast) -> None:
        super().__init__(run)
        self.autocast = autocast
        self.held = Held()
        self.meter = Meter(measure_dense)
        self.layer: Place | None = None
        self.moments: Moments | None = None


class Lockstep:
    """Runs passes side by side and takes the statistics of all `layers` over all of them.

    Args:
        layers: the layers to wait at; their statistics are overwritten meanwhile, and restored in the end.
        memory: the number of bytes that waiting passes may hold; beyond that they are parked on disk.
        scratch: the folder for parked passes; None for the system's folder for temporary files.
        sync: whether the passes of all ranks go in step.
        advance: called with 1 whenever a pass has reached the next layer.
        weigh: returns how much what a layer has seen counts in what it uses, from 0 to 1; the source has the rest.
        turns: the lock that other threads which call the model wait for; by default a new one.
        aim: returns the moments that a layer uses and that count as seen, given what it saw; by default these.
    """

    def __init__(
        self,
        layers: list[Place],
        memory: float,
        scratch: Path | None,
        sync: bool,
        advance: Callable[[float], None],
        weigh: Callable[[Place, Moments], float | Tensor] = lambda layer, seen: 1.0,
        turns: Turns | None = None,
        aim: Callable[[Place, Moments], Moments] | None = None,
    ) -> None:
        self.seen: dict[str, Moments] = {}
        self.parking = Parking(memory, scratch)
        self._layers = layers
        self._order = {layer.path: position for position, layer in enumerate(layers)}
        self._device = layers[0].mean.device
        self._sync = sync
        self._advance = advance
        self._weigh = weigh
        self._aim = aim
        self._turns = turns or Turns(busy=False)
        self._runners: list[_Runner] = []

    def run(self, runs: Iterable[Callable[[], object]]) -> dict[str, Moments]:
        """Run all of `runs`, each a forward pass, to their ends; return what each layer saw."""
        with self._turns.held():
            handles = [handle for layer in self._layers for handle in layer.hook(self._wait)]
            try:
                self._turns.drain(layer.module for layer in self._layers)
                self._start_all(runs)
                self._continue_together()
            finally:
                for runner in self._runners:
                    runner.throw()  # those still waiting, after an error, end here
                self.parking.close()
                give_back(self._layers, handles)
        return self.seen

    def _start_all(self, runs: Iterable[Callable[[], object]]) -> None:
        autocast = _Autocast.now(self._device.type)
        with sharing_failure(self._device) if self._sync else nullcontext():
            for run in runs:
                self._runners.append(_Runner(run, autocast))
                self._resume(self._runners[-1])

    def _continue_together(self) -> None:
        while (position := self._next_layer()) < len(self._layers):
            layer = self._layers[position]
            self._settle(layer, [r.moments for r in self._runners if r.layer is layer and r.moments])
            # To and fro: the pass that ran last still has its tensors in the cache.
            self._runners.reverse()
            with sharing_failure(self._device) if self._sync else nullcontext():
                for runner in self._runners:
                    if runner.layer is layer:
                        self._resume(runner)

    def _next_layer(self) -> int:
        """Return the number of the layer to settle now: the first that passes wait at, on any rank.

        Passes wait at different layers only where the data decide which layers are called.
        """
        waiting = [self._order[runner.layer.path] for runner in self._runners if runner.layer]
        position = min(waiting, default=len(self._layers))
        return least_of_ranks(position, self._device) if self._sync else position

    def _settle(self, layer: Place, moments: list[Moments]) -> None:
        """Take the statistics over all passes, which have arrived at the layer, and let the layer use these."""
        total = reduce(merge, moments, Moments(0, 0, layer.mean, layer.var))
        if self._sync:
            total = over_ranks(total)
        total = total if self._aim is None else self._aim(layer, total)
        seen = merge(self.seen[layer.path], total) if layer.path in self.seen else total
        # A layer that is called again sees the same images, which are not counted again.
        weight = self._weigh(layer, replace(total, images=total.images or seen.images))
        layer.check(total, alone=isinstance(weight, float) and weight == 1)
        layer.mix(total.mean, total.var, weight)
        self.seen[layer.path] = seen

    def _resume(self, runner: _Runner) -> None:
        device = self._device.type
        ours = _Autocast.now(device)
        self.parking.fetch(runner.held)
        if runner.autocast != ours:
            runner.autocast.set(device)
        self._turns.busy = True
        with self.parking:  # notes what the model makes, not what we do in between
            x = runner.switch()
        self._turns.busy = False
        runner.autocast = _Autocast.now(device)
        if runner.autocast != ours:
            ours.set(device)
        if runner.layer:  # what outlives a finished pass, such as its output, is no longer ours to park
            runner.moments = runner.meter.measure(runner.layer.path, x)
            self.parking.park(runner.held)
        self._advance(1)

    def _wait(self, layer: Place, passing: Any) -> Any:
        """Suspend the pass that has reached `layer` until all other passes have reached it."""
        if not self._turns.mine():
            self._turns.wait(layer.path)
            return None
        runner = getcurrent()
        if not isinstance(runner, _Runner):
            raise CovshiftError(
                f"layer {layer.path!r} is called outside of the passes that are estimated; let the loader give images "
                "without calling the model, or use estimate(exact=False)"
            )
        runner.layer = layer
        runner.parent.switch(layer.read(passing, runner.meter.known))
        runner.layer = None
        return layer.finish(passing)
