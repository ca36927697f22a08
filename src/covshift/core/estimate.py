"""Full adaptation: `estimate`, the statistics of a whole data set, exactly, in bounded memory."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from covshift.core.auto import beyond_chance
from covshift.core.calling import batches_of, call_model, device_of, to_device
from covshift.core.classes import without_classes
from covshift.core.compiled.dense import measure_dense
from covshift.core.finding import find_places
from covshift.core.hooks import check_not_compiled
from covshift.core.identity import fingerprint
from covshift.core.lockstep import Lockstep
from covshift.core.moments import Meter, Moments, merge, widen
from covshift.core.places import Only, Patterns, Place, give_back
from covshift.core.ranks import least_of_ranks, over_ranks, sharing_failure
from covshift.core.source import Source, anchors_of, statistics_toward
from covshift.core.statistics import Prior, Statistics, check_prior, target_weight
from covshift.core.turns import Turns
from covshift.core.wrappers import AnyModel, unwrap
from covshift.support.checks import brief, check_flags, check_function, check_path
from covshift.support.errors import CovshiftError
from covshift.support.memory import free_memory, parse_bytes
from covshift.support.progress import progress_bar


def estimate(
    model: AnyModel,
    loader: Iterable[Any] | Tensor,
    *,
    source: Source | None = None,
    classes: Sequence[float] | Tensor | None = None,
    exact: bool = True,
    prior: Prior = 0,
    memory: float | str | None = None,
    scratch: str | os.PathLike[str] | None = None,
    layers: Patterns = None,
    only: Only = None,
    call: Callable[[nn.Module, Any], Any] | None = None,
    collect: Callable[[int, Any], None] | None = None,
    sync: bool = True,
    progress: bool = True,
) -> Statistics:
    """Return the statistics of a whole data set: what each layer would see if all images came in one giant batch.

    With `exact=True` the batches of the loader go through the model side by side, and at every normalisation layer wait
    for each other: each layer is measured on inputs that all earlier ones have normalised by the statistics of the
    whole set, and still every operation is done once. What the waiting batches hold stays under `memory` and goes to
    disk beyond it. With `exact=False` each batch is normalised by its own statistics, which are then merged: one pass
    with little memory, near the exact result where batches are large.

    A layer that the model calls several times is normalised by the statistics of each call, and gets those of all. With
    `only`, the other moment in the result is the source's.

    Args:
        model: a model in eval mode, or what `open_model` returns; it is as before when this returns or raises. Other
            threads that call it meanwhile wait for that.
        loader: batches, as tensors, (images, labels, ...) tuples or mappings of keyword arguments; or one big tensor.
            With what `open_model` returns also uint8 images, NumPy NHWC or torch NCHW.
        source: what clean images look like inside of this model, by `Source.measure`: then any network can be
            estimated, at the places where it was measured. None for the statistics that the model holds.
        classes: the share of each class among the images, where these are not the source's: then what classes explain
            is not corrected, only what is left. Needs a measured `source` of a model that gives classes.
        exact: whether the result is that of one giant batch.
        prior: N, how many images the source statistics count for (Eq. 3), where `exact`; the result is the mixture that
            the layers were normalised by. `adapt` with `Batch(prior)` does the same for a batch that fits in memory.
            With a `source` that was measured, "auto" lets each place go as far as chance does not explain, so that
            clean images stay as they are, and few images do little harm.
        memory: the memory for waiting batches, in bytes or as "4 GiB"; by default half of what the machine or the GPU
            has free.
        scratch: a folder for batches that exceed `memory`; by default the system's folder for temporary files.
        layers: patterns of layer paths, e.g. "layer1.*", to adapt only those.
        only: "mean" or "var" to adapt only that moment.
        call: how to call the model on a batch, e.g. `lambda model, batch: model(batch["left"], batch["right"])`.
        collect: called with a batch's position and the model's output for it; with `exact=True` that is the output of
            the adapted model, at no extra cost.
        sync: whether ranks of `torch.distributed` estimate one set together, each with its own part of it.
        progress: whether to show a progress bar when this takes long.

    >>> net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)).eval()
    >>> target = estimate(net, torch.rand(100, 3, 8, 8))
    >>> target.images
    100
    >>> target.apply(net)
    Applied(1 layer)
    """
    check_flags(exact=exact, sync=sync, progress=progress)
    check_function(call, "call")
    check_function(collect, "collect")
    batches = batches_of(model, loader)
    module = unwrap(model)
    check_not_compiled(module)
    measured = find_places(module, anchors_of(source, module), layers, only)
    weigh = _weighing(prior, source)
    if prior and not exact:
        raise CovshiftError("expected prior=0 with exact=False; mix() the result with the source statistics instead")
    aim = None if classes is None else _past_classes(source, classes, exact)
    bytes_given = None if memory is None else parse_bytes(memory)
    folder = None if scratch is None else check_path(scratch, "scratch")
    total = len(batches) * (len(measured) + 1) if isinstance(batches, Sized) else None
    runs = _forward_passes(module, batches, call or call_model, collect)
    # Blocks of no_grad or inference_mode in the model's own code change nothing inside of this one, so that it does
    # not matter in which order the passes, which share a thread, enter and leave them.
    with (
        _borrowed(module) as turns,
        torch.inference_mode(),
        progress_bar("estimating", total, enabled=progress) as advance,
    ):
        if exact:
            budget = free_memory(measured[0].mean.device) / 2 if bytes_given is None else bytes_given
            seen = Lockstep(measured, budget, folder, sync, advance, weigh, turns, aim).run(runs)
        else:
            seen = _one_by_one(measured, runs, sync, partial(advance, len(measured) + 1), turns)
    if not any(moments.count for moments in seen.values()):
        raise CovshiftError("the loader gave no images that reach a normalisation layer: there is nothing to estimate")
    unseen = {layer.path: Moments(0, 0, layer.mean, layer.var) for layer in measured}
    chosen = {layer.path: layer.chosen(seen[layer.path]) for layer in measured if layer.path in seen}
    if prior:
        chosen = {layer.path: _mixed(layer, chosen[layer.path], weigh) for layer in measured if layer.path in chosen}
    return statistics_toward(source, unseen | chosen, unseen, fingerprint(module))


_Weigh = Callable[[Place, Moments], float | Tensor]


def _weighing(prior: Prior, source: Source | None) -> _Weigh:
    """Return the function that says how much what a place has seen counts against the source."""
    if isinstance(prior, str) and prior == "auto":
        if source is None or not source.spread:
            raise CovshiftError('expected a source by Source.measure() with prior="auto", got none; measure one')
        return partial(beyond_chance, source=source)
    check_prior(prior)
    return lambda place, seen: target_weight(seen.images, prior)


def _mixed(place: Place, seen: Moments, weigh: _Weigh) -> Moments:
    mean, var = place.mixed(widen(seen.mean), widen(seen.var), weigh(place, seen))
    return replace(seen, mean=mean, var=var)


def _past_classes(
    source: Source | None, shares: Sequence[float] | Tensor, exact: bool
) -> Callable[[Place, Moments], Moments]:
    """Return a function that takes what the classes of some images explain out of the moments of a place."""
    known = None if source is None else source.classes
    if known is None or not exact:
        raise CovshiftError(
            "expected exact=True and a source that knows what classes do, with classes=; measure it on clean images "
            "of a classifier, 8 for each class at least"
        )
    try:
        real = not torch.as_tensor(shares).is_complex()
        given = torch.as_tensor(shares, dtype=torch.float64) if real else torch.empty(0)
    except (TypeError, ValueError, RuntimeError):  # of what holds no numbers
        given = torch.empty(0)
    fits = given.shape == (len(known.embedding),) and not given.is_meta
    if not fits or not (given >= 0).all() or not 0.99 < float(given.sum()) < 1.01:
        raise CovshiftError(f"expected classes to be {len(known.embedding)} shares that sum to 1, got {brief(shares)}")
    offset = given.to(known.embedding) @ known.embedding - known.centre

    def aim(place: Place, seen: Moments) -> Moments:
        slopes = known.slopes.get(place.path)
        return seen if slopes is None else without_classes(place, seen, slopes, offset.to(slopes.mean.device))

    return aim


@contextmanager
def _borrowed(model: nn.Module) -> Iterator[Turns]:
    """Reserve the model's statistics for a block: other threads that call the model wait, and find it unchanged."""
    turns = Turns(busy=False)

    def wait(module: nn.Module, args: object) -> None:
        if not turns.mine():
            with turns.held():
                pass

    gate = model.register_forward_pre_hook(wait, prepend=True)
    try:
        with turns.held():
            yield turns
    finally:
        gate.remove()


def _one_by_one(
    layers: list[Place],
    runs: Iterable[Callable[[], None]],
    sync: bool,
    advance: Callable[[], None],
    turns: Turns,
) -> dict[str, Moments]:
    """Return what each layer sees if every batch is normalised by its own statistics."""
    seen: dict[str, Moments] = {}
    meter = Meter(measure_dense)

    def act(layer: Place, passing: Any) -> Any:
        if not turns.mine():
            turns.wait(layer.path)
            return None
        batch = meter.measure(layer.path, layer.read(passing, meter.known))
        if batch.count > 1:
            layer.write(batch.mean, batch.var)
        else:
            layer.restore()  # a single value has no variance to be normalised by
        seen[layer.path] = merge(seen[layer.path], batch) if layer.path in seen else batch
        return layer.finish(passing)

    device = layers[0].mean.device
    handles = [handle for layer in layers for handle in layer.hook(act)]
    try:
        turns.drain(layer.module for layer in layers)
        with sharing_failure(device) if sync else nullcontext():
            for run in runs:
                meter, turns.busy = Meter(measure_dense), True
                run()
                turns.busy = False
                advance()
        if sync:
            least_of_ranks(0, device)
            nothing = {layer.path: Moments(0, 0, layer.mean, layer.var) for layer in layers}
            seen = {path: over_ranks(seen.get(path, nothing[path])) for path in nothing}
    finally:
        give_back(layers, handles)
    by_path = {layer.path: layer for layer in layers}
    for path, moments in seen.items():
        by_path[path].check(moments)
    return seen


def _forward_passes(
    model: nn.Module,
    batches: Iterable[Any],
    call: Callable[[nn.Module, Any], Any],
    collect: Callable[[int, Any], None] | None,
) -> Iterator[Callable[[], None]]:
    """Yield one function for each batch, which runs the model on it."""

    def run(position: int, box: list[Any]) -> None:
        # A copy of our own can be parked on disk; the loader's cannot, it may still use it.
        output = call(model, to_device(box.pop(), device_of(model), copy=True))
        if collect is not None:
            collect(position, output)

    for position, batch in enumerate(batches):
        box = [batch]
        del batch
        yield partial(run, position, box)
