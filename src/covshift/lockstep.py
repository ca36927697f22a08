"""Many forward passes through one model, side by side: at every normalisation layer each waits for all the others.

So a layer's statistics can be taken over all passes before any of them goes on, as if they were one giant batch, and
every operation is still done once. A pass is a greenlet: it can be left in the middle of the model's own code, at any
depth, and taken up again. Only one runs at a time.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import reduce
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from greenlet import getcurrent, greenlet

from covshift.errors import CovshiftError
from covshift.layers import NormLayer, not_finite, one_value
from covshift.moments import Moments, has_ranks, measure, merge, over_ranks
from covshift.parking import Held, Parking

_FAILED = -1
_GROWTH = 8  # no known network holds so many times more at a later layer than at its first


class _Pass(greenlet):  # type: ignore[misc]
    """One forward pass, which runs, waits at a layer, or is over."""

    def __init__(self, run: Callable[[], object]) -> None:
        super().__init__(run)
        self.held = Held()
        self.images = 0
        self.visited: set[str] = set()
        self.layer: NormLayer | None = None
        self.moments: Moments | None = None

    def wait_at(self, layer: NormLayer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Leave the pass in front of `layer`, until all others have come there."""
        x = layer.input(args, kwargs)
        if not self.visited:
            self.images = len(x)
        # A layer that is called twice meets the same images again.
        self.moments = measure(x, 0 if layer.path in self.visited else self.images)
        self.visited.add(layer.path)
        self.layer = layer
        # Autocast is a setting of the thread, which the passes share.
        device = layer.mean.device.type
        autocast = torch.is_autocast_enabled(device)
        self.parent.switch()
        torch.set_autocast_enabled(device, autocast)
        self.layer = None


class Lockstep:
    """Runs passes side by side and takes the statistics of all `layers` over all of them.

    Args:
        layers: the layers to wait at; their statistics are overwritten, and it is the caller's to restore them.
        memory: how many bytes waiting passes may hold; beyond that they are parked on disk.
        scratch: the folder to park in; None for the system's.
        sync: whether the passes of all ranks go in step.
        advance: called with 1 whenever a pass has come to the next layer.
    """

    def __init__(
        self,
        layers: list[NormLayer],
        memory: float,
        scratch: Path | None,
        sync: bool,
        advance: Callable[[float], None],
    ) -> None:
        self.seen: dict[str, Moments] = {}
        self._layers = layers
        self._order = {layer.path: position for position, layer in enumerate(layers)}
        self._parking = Parking(memory, scratch)
        self._memory = memory
        self._sync = sync and has_ranks()
        self._advance = advance
        self._passes: list[_Pass] = []

    def run(self, runs: Iterable[Callable[[], object]]) -> dict[str, Moments]:
        """Run all of `runs`, each a forward pass, to their ends; give what each layer saw."""
        handles = [layer.hook(self._wait) for layer in self._layers]
        try:
            with ExitStack() as tracking:
                tracking.enter_context(self._parking)
                self._start_all(runs)
                held = sum(each.held.size for each in self._passes)
                if held * _GROWTH < self._memory:
                    tracking.close()  # all will fit, and noting every tensor costs time
                self._go_on_together()
        finally:
            for each in self._passes:
                each.throw()  # those still waiting, after an error, end here
            self._parking.close()
            for handle in handles:
                handle.remove()
        return self.seen

    def _start_all(self, runs: Iterable[Callable[[], object]]) -> None:
        with self._telling_other_ranks():
            for run in runs:
                self._passes.append(_Pass(run))
                self._resume(self._passes[-1])
                self._parking.current = Held()  # what the data loader makes is none of ours

    def _go_on_together(self) -> None:
        while (position := self._next_layer()) < len(self._layers):
            layer = self._layers[position]
            here = [each for each in self._passes if each.layer is layer]
            self._settle(layer, [each.moments for each in here if each.moments])
            # To and fro: the pass that ran last still has its tensors in the cache.
            self._passes.reverse()
            with self._telling_other_ranks():
                for each in self._passes:
                    if each.layer is layer:
                        self._resume(each)

    def _next_layer(self, failed: bool = False) -> int:
        """The layer to settle now: on any rank, the first that passes wait at. They differ only where data decides."""
        waiting = [self._order[each.layer.path] for each in self._passes if each.layer]
        position = _FAILED if failed else min(waiting, default=len(self._layers))
        if self._sync:
            agreed = torch.tensor([position], device=self._layers[0].mean.device)
            dist.all_reduce(agreed, dist.ReduceOp.MIN)
            if agreed.item() == _FAILED and not failed:
                raise CovshiftError("another rank failed; its error is in its own output")
            position = int(agreed.item())
        return position

    def _settle(self, layer: NormLayer, moments: list[Moments]) -> None:
        """All are here: take the statistics over all of them, and let the layer use these."""
        total = reduce(merge, moments, Moments(0, 0, layer.mean, layer.var))
        if self._sync:
            total = over_ranks(total)
        if total.count == 1:
            raise one_value(layer.path)
        if not total.var.isfinite().all():
            raise not_finite(layer.path)
        layer.write(total.mean, total.var)
        self.seen[layer.path] = merge(self.seen[layer.path], total) if layer.path in self.seen else total

    def _resume(self, each: _Pass) -> None:
        self._parking.fetch(each.held)
        each.switch()
        self._parking.park(each.held)
        self._advance(1)

    def _wait(self, layer: NormLayer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        current = getcurrent()
        if not isinstance(current, _Pass):
            raise CovshiftError(f"layer {layer.path!r} is called from another thread; use estimate(exact=False)")
        current.wait_at(layer, args, kwargs)

    @contextmanager
    def _telling_other_ranks(self) -> Iterator[None]:
        """A block in which an error is told to the other ranks, which would otherwise wait for ever."""
        try:
            yield
        except Exception:
            if self._sync:
                self._next_layer(failed=True)
            raise
