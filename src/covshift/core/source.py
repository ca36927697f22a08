"""`Source`: what clean images look like inside of a model, measured without labels; makes any network adaptable."""

import json
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self

import torch
from torch import Tensor, nn

from covshift.core.calling import batches_of, call_model
from covshift.core.classes import Classes
from covshift.core.finding import check_met, choose_places, find_places
from covshift.core.hooks import check_not_compiled
from covshift.core.identity import digest, fingerprint
from covshift.core.look import Look
from covshift.core.moments import Moments, widen
from covshift.core.packing import pack, pack_classes, pack_spreads, unpack, unpack_classes, unpack_spreads
from covshift.core.places import Patterns
from covshift.core.statistics import Statistics
from covshift.core.wrappers import AnyModel, unwrap
from covshift.support.checks import check_flags, check_function, check_kind, check_path
from covshift.support.errors import CovshiftError, plural
from covshift.support.files import replacing
from covshift.support.tensors import reading, to_safetensors

FEWEST = 8
"""The least number of images that a source is measured on."""

_FORMAT = "covshift source 1"


class Source:
    """The statistics of clean images at the places of a model; made by `measure`, used by `adapt` and `estimate`.

    Attributes:
        statistics: count, mean and variance at each place, by path.
        spread: how much the mean of one image varies from image to image (a variance), by path.
        spread_std: the same of its standard deviation.
        digest: the SHA-256 of the model that it was measured on, which is the only one that it fits.
        classes: what classes do to the activations, for `Live`; None if the model gives no classes.
        measured: whether it was measured; if not, it is what the model's normalisation layers hold.
        clean: what clean images look like, by path, where that was measured and is not what is corrected to.
        derived: what a policy has made of all this, by the paths of places, to be used again.

    >>> net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8)).eval()
    >>> source = Source.measure(net, torch.rand(100, 3, 8, 8))
    >>> source
    Source(1 place, 8 channels, 100 images)
    """

    def __init__(
        self,
        statistics: Statistics,
        spread: Mapping[str, Tensor],
        digest: str,
        *,
        measured: bool,
        classes: Classes | None = None,
        spread_std: Mapping[str, Tensor] | None = None,
        clean: Mapping[str, Moments] | None = None,
    ) -> None:
        check_kind(statistics, Statistics, "statistics", "Statistics")
        spread_std = {} if spread_std is None else spread_std
        for given in (spread, spread_std):
            check_kind(given, Mapping, "spread", "a mapping from paths to tensors")
        check_kind(digest, str, "digest", "a text")
        self.statistics = statistics
        self.classes = classes
        self.spread = dict(spread)
        self.spread_std = dict(spread_std)
        self.digest = digest
        self.measured = measured
        self.clean = clean
        self.derived: dict[tuple[str, ...], Any] = {}

    @classmethod
    def of(cls, model: AnyModel) -> Self:
        """Return the source that a model holds itself: the training statistics of its BatchNorm layers."""
        return cls(Statistics.of(model), {}, digest(model), measured=False)

    @classmethod
    def measure(
        cls,
        model: AnyModel,
        loader: Iterable[Any] | Tensor,
        *,
        places: Patterns = "auto",
        call: Callable[[nn.Module, Any], Any] | None = None,
        sync: bool = True,
        progress: bool = True,
    ) -> Self:
        """Measure a source on clean images, in one pass; labels are not used.

        Args:
            model: a model in eval mode, or what `open_model` returns; it is as before when this returns or raises.
            loader: batches of clean images, some hundreds in all, in the forms that `estimate` takes.
            places: where to measure. "auto" chooses by the kind of network; patterns of layer paths, such as
                "blocks.*.norm1", choose by hand. Layers that the model does not call, or calls several times in one
                pass, are left out.
            call: how to call the model on a batch, as for `estimate`.
            sync: whether ranks of `torch.distributed` measure one set together, each with its own part of it.
            progress: whether to show a progress bar when this takes long.
        """
        check_flags(sync=sync, progress=progress)
        check_function(call, "call")
        batches = batches_of(model, loader)
        module = unwrap(model)
        check_not_compiled(module)
        sizes = choose_places(module, places)
        found = find_places(module, {path: Moments(0, 0, *torch.zeros(2, size)) for path, size in sizes.items()})
        look = Look(module, found)
        look.at(batches, call or call_model, progress=progress)
        seen = look.moments(sync=sync)
        check_met(places, seen)
        images = max(moments.images for moments in seen.values())
        if images < FEWEST:
            raise CovshiftError(
                f"expected at least {FEWEST} clean images to measure a source on, got {images:g}; hundreds are best"
            )
        means, variances = look.of_images(sync=sync)
        # The variance of a standard deviation is near that of the variance, divided by 4σ².
        tiny = torch.finfo(torch.float32).tiny
        spread = {path: means[path].var for path in seen}
        spread_std = {path: variances[path].var / (4 * widen(seen[path].var)).clamp(min=tiny) for path in seen}
        classes = look.classes(sync=sync)
        statistics = Statistics(seen, fingerprint(module))
        return cls(statistics, spread, digest(module), measured=True, classes=classes, spread_std=spread_std)

    def anchors(self, model: AnyModel) -> dict[str, Moments] | None:
        """Return the source statistics of each place by path; None if they are those that the model holds.

        Raises a `CovshiftError` for another model than the one that this was measured on.
        """
        if digest(model) != self.digest:
            raise CovshiftError(
                "this source was measured on another model, or on other weights than the model has now; measure it "
                "again with Source.measure(model, loader)"
            )
        return dict(self.statistics) if self.measured else None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the source to a safetensors file of a few hundred kB."""
        target = check_path(path, "path")
        tensors = pack(self.statistics) | pack_spreads(self.spread, self.spread_std)
        if self.classes is not None:
            tensors |= pack_classes(self.classes)
        metadata = {
            "format": _FORMAT,
            "fingerprint": self.statistics.fingerprint,
            "digest": self.digest,
            "measured": json.dumps(self.measured),
            "places": json.dumps(list(self.statistics)),
            "classes": json.dumps([] if self.classes is None else list(self.classes.slopes)),
        }
        with replacing(target) as file:
            file.write_bytes(to_safetensors(tensors, metadata))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a source that `save` wrote."""
        path = check_path(path, "path")
        with reading(path, _FORMAT, "source") as (file, metadata):
            names, measured = json.loads(metadata["places"]), json.loads(metadata["measured"]) is True
            statistics = Statistics(unpack(file, names), metadata["fingerprint"])
            spread, spread_std = unpack_spreads(file, statistics) if measured else ({}, {})
            known = json.loads(metadata["classes"])
            classes = unpack_classes(file, known) if known else None
            of_model = metadata["digest"]
        statistics.check_values()
        if classes is not None and any(
            name not in statistics or len(each.unexplained) != len(statistics[name].mean)
            for name, each in classes.slopes.items()
        ):
            raise CovshiftError(f"{path} holds classes that do not fit its places; save the source again")
        return cls(statistics, spread, of_model, measured=measured, classes=classes, spread_std=spread_std)

    def __repr__(self) -> str:
        channels = sum(len(moments.mean) for moments in self.statistics.values())
        places = plural(len(self.statistics), "place")
        images = f"{self.statistics.images:g} images" if self.measured else "as the model holds it"
        return f"Source({places}, {plural(channels, 'channel')}, {images})"


def anchors_of(source: Source | None, model: AnyModel) -> dict[str, Moments] | None:
    """Return the anchors of a source that the user has given, after checking that it is one of this model."""
    if source is None:
        return None
    check_kind(source, Source, "source", "a Source")
    return source.anchors(model)


def statistics_toward(
    source: Source | None, seen: Mapping[str, Moments], anchors: Mapping[str, Moments], fingerprint: str
) -> Statistics:
    """Return what places have seen as statistics that are to be corrected to a source.

    Args:
        source: the source; None, or one that was not measured, for what the layers hold.
        seen: what each place has seen, by path.
        anchors: the source statistics of each place, by path.
        fingerprint: that of the model.
    """
    if source is None or not source.measured:
        return Statistics(seen, fingerprint)
    return Statistics(seen, fingerprint, anchors=anchors, digest=source.digest)
