"""One look at clean images: what passes the places of a model, and what the model says of each image."""

from collections.abc import Callable, Iterable, Sized
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from covshift.core.classes import Classes, Regression, embed_classes
from covshift.core.moments import Meter, Moments, measure_rows, merge, not_finite, widen
from covshift.core.places import Place
from covshift.core.ranks import over_ranks
from covshift.support.errors import CovshiftError
from covshift.support.progress import progress_bar


class Look:
    """Measures the moments of all activations at some places, and of single images, in one pass over the data.

    A place that the model calls several times in one pass is left out: each call has statistics of its own there, so
    that one source for all of them would change what has not shifted.
    """

    def __init__(self, model: nn.Module, places: list[Place]) -> None:
        self._model = model
        self._places = places
        self._seen: dict[str, Moments] = {}
        self._means: dict[str, Moments] = {}
        self._variances: dict[str, Moments] = {}
        self._meter = Meter()
        self._images: dict[str, tuple[Tensor, Tensor]] = {}
        self._called: set[str] = set()  # in this pass
        self._again: set[str] = set()  # several times in some pass
        self._regression: Regression | None = None

    def at(self, batches: Iterable[Any], call: Callable[[nn.Module, Any], Any], *, progress: bool) -> None:
        """Show the model all batches."""
        total = len(batches) if isinstance(batches, Sized) else None
        handles = [handle for place in self._places for handle in place.hook(self._act)]
        handles.append(self._model.register_forward_pre_hook(self._begin, prepend=True))
        try:
            with torch.inference_mode(), progress_bar("measuring the source", total, enabled=progress) as advance:
                for batch in batches:
                    self._meter, self._images, self._called = Meter(), {}, set()
                    self._end(call(self._model, batch))
                    advance(1)
        finally:
            for handle in handles:
                handle.remove()

    def _begin(self, model: nn.Module, args: object) -> None:
        self._called = set()

    def _act(self, place: Place, passing: Any) -> None:
        self._again |= {place.path} & self._called
        self._called.add(place.path)
        x = place.read(passing, self._meter.known)
        batch = self._meter.measure(place.path, x)
        _add(self._seen, place.path, batch)
        if batch.images:
            mean, var = measure_rows(x)
            images = self._meter.images(x)
            means, squares = of_images(mean, images), of_images(widen(var) + widen(mean).square(), images)
            for total, values in ((self._means, means), (self._variances, squares - means.square())):
                number = len(values)
                _add(total, place.path, Moments(number, number, values.mean(0), values.var(0, correction=0)))
            self._images[place.path] = (means, squares)

    def _end(self, output: object) -> None:
        if self._regression is None:
            embedding = embed_classes(self._model, output)
            self._regression = None if embedding is None else Regression(embedding)
        if self._regression is not None:
            self._regression.add(output, self._images)

    def moments(self, *, sync: bool) -> dict[str, Moments]:
        """Return the moments of what passes each place that was reached, and once in each pass."""
        seen = self._all(self._seen, sync)
        seen = {path: moments for path, moments in seen.items() if moments.count}
        if not seen:
            raise CovshiftError("the loader gave no images that reach a place of the model: nothing was measured")
        for path, moments in seen.items():
            if not (moments.mean.isfinite() & moments.var.isfinite()).all():
                raise not_finite(path)
        once = {path: moments for path, moments in seen.items() if path not in self._again}
        if not once:
            raise CovshiftError(
                f"expected places that the model calls once in a pass, got {next(iter(seen))!r}, which it calls "
                "several times, with statistics of its own each time; choose others with places="
            )
        return once

    def of_images(self, *, sync: bool) -> tuple[dict[str, Moments], dict[str, Moments]]:
        """Return the moments over images of the mean of one image, and of its variance."""
        return self._all(self._means, sync), self._all(self._variances, sync)

    def _all(self, part: dict[str, Moments], sync: bool) -> dict[str, Moments]:
        if not sync:
            return part
        return {place.path: over_ranks(part.get(place.path, _nothing(place))) for place in self._places}

    def classes(self, *, sync: bool) -> Classes | None:
        """Return what the classes do to the activations; None if the model gives no classes."""
        known = None if self._regression is None else self._regression.fit(sync=sync)
        if known is None:
            return None
        return replace(known, slopes={path: each for path, each in known.slopes.items() if path not in self._again})


def of_images(rows: Tensor, images: int) -> Tensor:
    """Return the mean over the rows of each image, [images, channels]; where rows are not images, the rows."""
    rows = widen(rows)
    return rows.unflatten(0, (images, -1)).mean(1) if len(rows) > images and len(rows) % images == 0 else rows


def _add(total: dict[str, Moments], path: str, batch: Moments) -> None:
    total[path] = merge(total[path], batch) if path in total else batch


def _nothing(place: Place) -> Moments:
    return Moments(0, 0, torch.zeros_like(place.mean), torch.zeros_like(place.var))
