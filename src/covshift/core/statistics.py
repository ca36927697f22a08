"""`Statistics`: what the normalisation layers of a model hold, or what they have seen of a domain."""

import json
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Literal, Self

import torch
from torch import Tensor, nn

from covshift.core.applied import Applied, check_not_shared
from covshift.core.finding import find_places, norm_modules
from covshift.core.identity import digest, fingerprint
from covshift.core.moments import Moments, merge, possible, widen
from covshift.core.packing import pack, unpack
from covshift.core.places import Only, Patterns, holds_statistics
from covshift.core.wrappers import AnyModel, unwrap
from covshift.support.checks import check_dense, check_kind, check_number, check_path
from covshift.support.errors import CovshiftError, is_number, plural
from covshift.support.files import replacing
from covshift.support.tensors import reading, to_safetensors

Prior = float | Literal["auto"]
"""N, how many images the source statistics count for; "auto" where each layer weighs what it sees by itself."""

_FORMAT = "covshift statistics 1"


class Statistics(Mapping[str, Moments]):
    """Count, mean and variance for every normalisation layer of a model; immutable, a mapping from layer path.

    A count of 0 means that no data was seen: the moments are then those that the model came with. So merging with
    `Statistics.of(model)` changes nothing, and a layer that was never called keeps what it had.

    Attributes:
        fingerprint: a digest of the architecture that they are of.
        anchors: the measured source statistics that these are to be corrected to, by path; None if the layers are to be
            corrected by the statistics that they hold.
        digest: the SHA-256 of the model that the anchors were measured on, which is the only one that they correct;
            None without anchors.
        notes: tensors by name that a policy of one's own keeps beside the moments; part of a state and of its file, and
            not of what `merge` and `mix` return.

    >>> net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)).eval()
    >>> Statistics.of(net)
    Statistics(1 layer, 8 channels, 0 images)
        1  8 channels  mean 0 ± 0  var 1 ± 0
    """

    def __init__(
        self,
        layers: Mapping[str, Moments],
        fingerprint: str,
        *,
        anchors: Mapping[str, Moments] | None = None,
        digest: str | None = None,
        notes: Mapping[str, Tensor] | None = None,
    ) -> None:
        for each in (layers, {} if anchors is None else anchors):
            check_kind(each, Mapping, "layers", "a mapping from layer paths to Moments")
            for path, moments in each.items():
                check_kind(moments, Moments, f"layer {path!r}", "Moments")
                for tensor in (moments.mean, moments.var):
                    if not tensor.is_floating_point() or tensor.is_meta or tensor.layout is not torch.strided:
                        raise _broken(path, "means and variances that are dense tensors of floats", f"{tensor.type()}")
        check_kind(fingerprint, str, "fingerprint", "a text")
        check_kind(digest, (str, type(None)), "digest", "a text")
        check_kind(notes, (Mapping, type(None)), "notes", "a mapping from names to tensors")
        for name, note in (notes or {}).items():
            check_kind(note, Tensor, f"note {name!r}", "a tensor")
            check_dense(note, f"note {name!r}")
        self._layers = dict(layers)
        self.fingerprint = fingerprint
        self.anchors = None if anchors is None else {path: anchors[path] for path in layers}
        self.digest = digest
        self.notes = {name: note.detach().clone() for name, note in (notes or {}).items()}

    def __getitem__(self, path: str) -> Moments:
        return self._layers[path]

    def __iter__(self) -> Iterator[str]:
        return iter(self._layers)

    def __len__(self) -> int:
        return len(self._layers)

    @cached_property
    def images(self) -> float:
        """The number of images seen; the largest over the layers, since a layer may be left out of some passes."""
        return max((moments.images for moments in self.values()), default=0)

    @classmethod
    def of(cls, model: AnyModel) -> Self:
        """Return the statistics that `model` holds now."""
        modules = norm_modules(unwrap(model))
        return cls({path: _held_by(module) for path, module in modules.items()}, fingerprint(model))

    def apply(self, model: AnyModel, *, layers: Patterns = None, only: Only = None) -> Applied:
        """Write these statistics into the layers of `model`, which stays an ordinary eval-mode model.

        With `anchors`, a layer that holds no statistics has the correction folded into its weight and bias.

        Args:
            model: the model that these were taken from or, without `anchors`, another of the same architecture.
            layers: patterns of layer paths, e.g. "layer1.*", to write only to those.
            only: "mean" or "var" to write only that moment.

        Returns:
            An object whose `restore()` undoes this, bit for bit.
        """
        self._check_applies(model)
        targets = [place for place in find_places(model, self.anchors, layers, only) if place.path in self]
        self.check_values({place.path: place.mean.shape for place in targets})
        check_not_shared(unwrap(model), targets)
        if not targets:
            raise CovshiftError(
                f"these statistics are of {', '.join(self)}, and layers={layers!r} matches none of them"
            )
        for place in targets:
            place.check_holds(self[place.path])
        # A place that was not reached has nothing to be corrected.
        targets = [place for place in targets if self.anchors is None or self[place.path].count]
        return Applied.keep(targets, self)

    def merge(self, other: "Statistics") -> "Statistics":
        """Return the statistics of both sets of images together, exactly, in any order.

        >>> net = nn.BatchNorm1d(4).eval()
        >>> Statistics.of(net).merge(Statistics.of(net)) == Statistics.of(net)
        True
        """
        self.check_same_layers(other)
        return self.with_layers({path: merge(self[path], other[path]) for path in self})

    def mix(self, source: "Statistics", prior: float) -> "Statistics":
        """Return N/(N+n) source + n/(N+n) these (Eq. 3 of the paper), with N = `prior` and n = the images seen.

        >>> net = nn.BatchNorm1d(1).eval()
        >>> seen = Statistics({"": Moments(48, 48, torch.ones(1), torch.ones(1))}, fingerprint(net))
        >>> seen.mix(Statistics.of(net), prior=16)[""].mean.item()
        0.75
        """
        check_prior(prior)
        self.check_same_layers(source)

        def mixed(target: Moments, source: Moments) -> Moments:
            weight = target_weight(target.images, prior)
            pairs = ((source.mean, target.mean), (source.var, target.var))
            mean, var = (torch.lerp(widen(s), widen(t).to(s.device), weight) for s, t in pairs)
            return replace(target, mean=mean, var=var)

        return self.with_layers({path: mixed(self[path], source[path]) for path in self})

    def with_layers(self, layers: Mapping[str, Moments], notes: Mapping[str, Tensor] | None = None) -> "Statistics":
        """Return other moments of the same model, to be corrected to the same anchors."""
        return Statistics(layers, self.fingerprint, anchors=self.anchors, digest=self.digest, notes=notes)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a statistics patch: a safetensors file of a few hundred kB."""
        target = check_path(path, "path")
        tensors = pack(self)
        metadata = {"format": _FORMAT, "fingerprint": self.fingerprint, "layers": json.dumps(list(self))}
        if self.anchors is not None:
            tensors |= pack(self.anchors, "anchor ")
            metadata["anchored"] = self.digest or ""
        if self.notes:
            tensors |= {f"{name}/note": note.cpu().contiguous() for name, note in self.notes.items()}
            metadata["notes"] = json.dumps(list(self.notes))
        with replacing(target) as file:
            file.write_bytes(to_safetensors(tensors, metadata))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a statistics patch that `save` wrote."""
        path = check_path(path, "path")
        with reading(path, _FORMAT, "statistics patch") as (file, metadata):
            fingerprint, names = metadata["fingerprint"], json.loads(metadata["layers"])
            layers = unpack(file, names)
            anchors = unpack(file, names, "anchor ") if "anchored" in metadata else None
            notes = {name: file.get_tensor(f"{name}/note") for name in json.loads(metadata.get("notes", "[]"))}
            digest = metadata.get("anchored") or None
        statistics = cls(layers, fingerprint, anchors=anchors, digest=digest, notes=notes)
        statistics.check_values()
        if anchors is not None:
            cls(anchors, fingerprint).check_values({path: moments.mean.shape for path, moments in layers.items()})
        return statistics

    def check_values(self, shapes: Mapping[str, torch.Size] | None = None) -> None:
        """Raise a `CovshiftError` unless all moments are possible for data, and have the shapes of their layers.

        Args:
            shapes: the shape of the statistics that a model holds, by path, for the layers to check; None for all
                layers, of any one-dimensional shape.
        """
        chosen = {path: self[path] for path in (self if shapes is None else shapes)}
        for path, moments in chosen.items():
            shape = torch.Size([moments.mean.numel()]) if shapes is None else shapes[path]
            if not moments.mean.shape == moments.var.shape == shape:
                got = f"{tuple(moments.mean.shape)} and {tuple(moments.var.shape)}"
                raise _broken(path, f"a mean and a variance of shape {tuple(shape)}", f"shapes {got}")
            if not (0 <= moments.count < math.inf and 0 <= moments.images < math.inf):
                counts = f"{moments.count:g} values of {moments.images:g} images"
                raise _broken(path, "counts from 0", counts)
        # All layers are checked together, which is quick and, on a GPU, has to be waited for once.
        if chosen and not all(possible(chosen.values())):
            path = next(path for path, moments in chosen.items() if not all(possible([moments])))
            raise _broken(path, "finite means and variances from 0", "others")

    def __eq__(self, other: object) -> bool:
        """Return whether every count, mean and variance is the same."""
        return isinstance(other, Statistics) and self.close_to(other, rtol=0, atol=0)

    __hash__ = None  # type: ignore[assignment]

    def close_to(self, other: "Statistics", rtol: float = 1e-5, atol: float = 1e-8) -> bool:
        """Return whether counts are the same and means and variances agree up to rounding."""
        check_kind(other, Statistics, "other", "Statistics")
        check_number(rtol, "rtol", 0)
        check_number(atol, "atol", 0)

        def close(a: Tensor, b: Tensor) -> bool:
            return torch.allclose(widen(a), widen(b).to(a.device), rtol, atol)

        return (
            self.fingerprint == other.fingerprint
            and self.keys() == other.keys()
            and (self.anchors is None) == (other.anchors is None)
            and self.notes.keys() == other.notes.keys()
            and all(torch.equal(note, other.notes[name].to(note.device)) for name, note in self.notes.items())
            and all(
                (a.count, a.images) == (b.count, b.images) and close(a.mean, b.mean) and close(a.var, b.var)
                for a, b in ((self[path], other[path]) for path in self)
            )
        )

    def _check_applies(self, model: AnyModel) -> None:
        """Raise a `CovshiftError` if these are of another architecture or, with anchors, of other weights."""
        if self.digest is None:
            self.check_fits(model)
        elif self.digest != digest(model):
            raise CovshiftError(
                "these statistics correct the model that their source was measured on, and this is another one, or has "
                "other weights now; restore() what was applied to it before, or measure its source and estimate again"
            )

    def check_fits(self, model: AnyModel) -> None:
        """Raise a `CovshiftError` if these are statistics of another architecture."""
        if self.fingerprint != fingerprint(model):
            held = any(map(holds_statistics, unwrap(model).modules()))
            theirs, ours = _summary(self), _summary(Statistics.of(model)) if held else "no layers with statistics"
            alike = "the same layers, but other parameters" if theirs == ours else ours
            raise CovshiftError(f"these statistics are of another model: they are of {theirs}, this model has {alike}")

    def check_same_layers(self, other: "Statistics") -> None:
        """Raise a `CovshiftError` unless `other` is of the same architecture and layers, and both are possible."""
        if not isinstance(other, Statistics):
            raise CovshiftError(f"expected Statistics, got {type(other).__name__}")
        if self.fingerprint != other.fingerprint or self.keys() != other.keys():
            raise CovshiftError(
                f"these are statistics of different models or layers: {_summary(self)} and {_summary(other)}"
            )
        self.check_values()
        other.check_values({path: moments.mean.shape for path, moments in self.items()})

    def __repr__(self) -> str:
        width = max((len(path) for path in self), default=0)
        channels = sum(len(moments.mean) for moments in self.values())
        head = f"Statistics({plural(len(self), 'layer')}, {plural(channels, 'channel')}, {self.images:g} images)"
        rows = [
            f"    {path:<{width}}  {len(m.mean)} channels  mean {_spread(m.mean)}  var {_spread(m.var)}"
            for path, m in self.items()
        ]
        if len(rows) > 8:
            rows[4:-3] = [f"    ... {len(rows) - 7} more"]
        return "\n".join([head, *rows])


def check_prior(prior: float) -> None:
    """Raise a `CovshiftError` unless `prior` is a number of images from 0 to infinity."""
    if not is_number(prior) or not prior >= 0:
        raise CovshiftError(f"expected prior to be a number of images N from 0 to infinity, got {prior!r}")


def target_weight(images: float, prior: float) -> float:
    """Return n/(N+n), how much the target counts against the source.

    >>> target_weight(images=8, prior=24)
    0.25
    """
    return 0.0 if math.isinf(prior) or images == 0 else images / (images + prior)


def _broken(path: str, expected: str, got: str) -> CovshiftError:
    return CovshiftError(
        f"expected statistics with {expected}, got {got} for layer {path!r}; "
        "estimate them again, or load an intact file"
    )


def _held_by(module: nn.Module) -> Moments:
    mean, var = module.running_mean, module.running_var
    assert isinstance(mean, Tensor)
    assert isinstance(var, Tensor)
    return Moments(0, 0, widen(mean).clone().detach(), widen(var).clone().detach())


def _summary(layers: Mapping[str, Moments]) -> str:
    path, moments = next(iter(layers.items()))
    return f"{plural(len(layers), 'layer')} (first {path!r} with {plural(len(moments.mean), 'channel')})"


def _spread(x: Tensor) -> str:
    return f"{x.mean().item():.3g} ± {x.std(correction=0).item():.2g}" if x.numel() else "of nothing"
