"""The places of a model where its activations are measured and corrected, without replacing any of its layers.

A place is the input of a layer that holds statistics (`NormLayer`), which is corrected by writing into the layer's own
buffers, or the output of any other layer (`Output`, in a module of its own), which is shifted and scaled.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import cached_property
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from covshift.core.hooks import Act, Hook, Shortcut
from covshift.core.moments import Moments, not_finite, one_value, widen
from covshift.support.errors import CovshiftError

Patterns = str | Sequence[str] | None
Only = Literal["mean", "var"] | None


class Place(ABC):
    """Somewhere in a model where activations with channels pass, with the source statistics that they had there.

    Attributes:
        path: the name of its layer in the model, e.g. "layer1.0.bn1".
        module: the layer itself.
        only: the one moment to correct, "mean" or "var"; None for both.
        mean, var: the source statistics.
        clean: what clean images look like there, where that was measured and is not the source; else the source.
    """

    def __init__(
        self, path: str, module: nn.Module, only: Only, mean: Tensor, var: Tensor, clean: Moments | None = None
    ) -> None:
        self.path = path
        self.module = module
        self.only = only
        self.mean = mean
        self.var = var
        self.clean = (mean, var) if clean is None else (clean.mean.to(mean), clean.var.to(var))
        self._relative: dict[str, float] = {}

    @property
    @abstractmethod
    def eps(self) -> float:
        """The number that is added to variances before they are divided by."""

    @abstractmethod
    def hook(self, act: Act) -> list[RemovableHandle]:
        """Have `act(place, passing)` called whenever activations pass here; `read` finds them in `passing`."""

    def guard_state_dict(self) -> list[RemovableHandle]:
        """Have `state_dict()` of the model return what it held before anything was written."""
        return []

    @abstractmethod
    def read(self, passing: Any, images: int | None = None) -> Tensor:
        """Return the activations, [rows, channels, ...], or raise a `CovshiftError`.

        Args:
            passing: what `hook` gave.
            images: the number of images in the pass, where it is known.
        """

    @abstractmethod
    def replaced(self, passing: Any, x: Tensor) -> Any:
        """Return what a hook returns to have `x`, shaped as `read` returned it, go on in place of `passing`."""

    @abstractmethod
    def finish(self, passing: Any) -> Any:
        """Return what a hook returns to have the activations corrected by what was written last."""

    @abstractmethod
    def write(self, mean: Tensor, var: Tensor) -> None:
        """Correct what passes from now on as activations with these statistics."""

    @abstractmethod
    def keep(self, mean: Tensor, var: Tensor) -> None:
        """Correct for good, without a hook, what passes; until `restore`."""

    @abstractmethod
    def restore(self) -> None:
        """Bring the layer back to what it was, bit for bit."""

    def mix(self, mean: Tensor, var: Tensor, weight: float | Tensor) -> None:
        """Correct by (1 - weight) source + weight target (Eq. 3)."""
        self.write(*self.mixed(mean, var, weight))

    def mixed(self, mean: Tensor, var: Tensor, weight: float | Tensor) -> tuple[Tensor, Tensor]:
        """Return (1 - weight) source + weight target."""
        source_mean, source_var = self.mean, self.var
        if mean.dtype is not source_mean.dtype:
            source_mean, source_var = self.wide
            mean, var = widen(mean), widen(var)
        weight = weight.to(mean.dtype) if isinstance(weight, Tensor) else weight
        return torch.lerp(source_mean, mean, weight), torch.lerp(source_var, var, weight)

    def chosen(self, moments: Moments) -> Moments:
        """Return these moments; with `only`, the other moment is that of the source."""
        if self.only is None:
            return moments
        mean, var = self._only(moments.mean, moments.var)
        return replace(moments, mean=mean, var=var)

    def _only(self, mean: Tensor, var: Tensor) -> tuple[Tensor, Tensor]:
        """Return a mean and a variance; with `only`, the other one is that of the source."""
        return self.mean if self.only == "var" else mean, self.var if self.only == "mean" else var

    def check(self, moments: Moments, *, alone: bool = True) -> None:
        """Raise a `CovshiftError` unless the place can be corrected by these moments, alone or with the source's."""
        if moments.count == 1 and alone:
            raise one_value(self.path)
        if not moments.var.to(self.var.dtype).isfinite().all():
            raise not_finite(self.path)

    def check_holds(self, moments: Moments) -> None:
        """Raise a `CovshiftError` if a value is too large for the precision of the layer."""
        if not (moments.mean.to(self.mean.dtype).isfinite() & moments.var.to(self.var.dtype).isfinite()).all():
            raise CovshiftError(
                f"expected statistics that layer {self.path!r} can hold as {self.var.dtype}, got larger ones; use the "
                "model in a wider type"
            )

    def distance(self, seen: Moments) -> float:
        """Return how far the mean of what was seen is from that of clean images, in their standard deviations."""
        return float(self.moved(seen).sqrt())

    def moved(self, seen: Moments) -> Tensor:
        """Return the mean square over channels of that distance, [1], or [groups, 1] for moments of groups."""
        return ((widen(seen.mean) - self.wide_clean[0]).square() * self.scale).mean(-1, keepdim=True)

    def relative(self, name: str, variance: Tensor) -> float:
        """Return the mean over channels of a variance, in variances of clean images; computed once for each name."""
        if name not in self._relative:
            self._relative[name] = float((variance * self.scale).mean())
        return self._relative[name]

    @cached_property
    def scale(self) -> Tensor:
        """What squared differences are multiplied by to be measured in variances of clean images."""
        # A channel that is constant in the source is divided by eps in the layer, and so it is here.
        return 1 / (self.wide_clean[1] + self.eps)

    @cached_property
    def wide(self) -> tuple[Tensor, Tensor]:
        """The source statistics in double precision."""
        return widen(self.mean), widen(self.var)

    @cached_property
    def wide_clean(self) -> tuple[Tensor, Tensor]:
        """What clean images look like in double precision."""
        return widen(self.clean[0]), widen(self.clean[1])


class NormLayer(Place):
    """The input of a layer that normalises by `running_mean` and `running_var`.

    Its source statistics are those that the layer held when it was found or, with an `anchor`, the ones that its input
    was measured to have on clean images.

    Attributes:
        held: the mean and variance that the layer held.
        anchored: whether there is an anchor.
    """

    def __init__(
        self,
        path: str,
        module: nn.Module,
        only: Only = None,
        anchor: Moments | None = None,
        clean: Moments | None = None,
    ) -> None:
        self.module = module
        self.held = (self.running_mean.clone(), self.running_var.clone())
        self.anchored = anchor is not None
        mean, var = self.held if anchor is None else (anchor.mean.to(self.held[0]), anchor.var.to(self.held[1]))
        super().__init__(path, module, only, mean, var, clean)

    @property
    def running_mean(self) -> Tensor:
        """The layer's own buffer."""
        return self._buffer("running_mean")

    @property
    def running_var(self) -> Tensor:
        """The layer's own buffer."""
        return self._buffer("running_var")

    def _buffer(self, name: str) -> Tensor:
        # Past the slow attribute look-up of modules, which counts where hundreds of buffers are swapped.
        buffer = self.module._buffers.get(name)
        return cast(Tensor, getattr(self.module, name)) if buffer is None else buffer

    @property
    def eps(self) -> float:
        """The number that the layer adds to the variance."""
        eps = getattr(self.module, "eps", None)
        if not isinstance(eps, int | float):
            raise CovshiftError(
                f"layer {self.path!r} has no eps; leave it out with layers=, or use Batch without size= and source="
            )
        return eps

    def write(self, mean: Tensor, var: Tensor) -> None:
        """Put these statistics into the layer's buffers, or what makes the layer correct them to its anchor."""
        with unlocked(self.running_mean):
            for buffer, value in zip((self.running_mean, self.running_var), self.buffers_for(mean, var), strict=True):
                buffer.copy_(value)

    def buffers_for(self, mean: Tensor, var: Tensor) -> tuple[Tensor, Tensor]:
        """Return what the buffers must hold for the layer to correct activations with these statistics.

        With an anchor μ_s, σ_s² the layer is to normalise (x - μ)·g + μ_s, g² = (σ_s²+ε)/(σ²+ε), by the statistics
        μ_h, σ_h² that it holds. That is x normalised by the mean μ - (μ_s - μ_h)/g and the variance (σ_h²+ε)/g² - ε.
        """
        mean, var = self._only(mean, var)
        if not self.anchored:
            return mean, var
        source_mean, source_var, held_mean, held_var = (each.to(mean) for each in (self.mean, self.var, *self.held))
        shrink = (var + self.eps) / (source_var + self.eps)  # 1/g²
        wanted = (held_var + self.eps) * shrink - self.eps
        return mean - (source_mean - held_mean) * shrink.sqrt(), wanted.clamp_(min=0)

    def keep(self, mean: Tensor, var: Tensor) -> None:
        """Put these statistics into the layer's buffers, where they stay; see `write`."""
        self.write(mean, var)

    def restore(self) -> None:
        """Put back what the buffers held, bit for bit."""
        with unlocked(self.running_mean):
            self.running_mean.copy_(self.held[0])
            self.running_var.copy_(self.held[1])

    def hook(self, act: Act) -> list[RemovableHandle]:
        """Have `act(place, (args, kwargs))` called before every call of the layer."""
        return [self.module.register_forward_pre_hook(Hook(self, act).before, with_kwargs=True)]

    def guard_state_dict(self) -> list[RemovableHandle]:
        """Have `state_dict()` return what the buffers held, whatever is in them now."""

        def give_held(module: nn.Module, state: dict[str, Any], prefix: str, metadata: object) -> None:
            for name, tensor in zip(("running_mean", "running_var"), self.held, strict=True):
                if prefix + name in state:
                    state[prefix + name] = tensor.clone()

        return [self.module.register_state_dict_post_hook(give_held)]

    def finish(self, passing: Any) -> None:
        """Return None: the layer itself does the rest."""

    def replaced(self, passing: Any, x: Tensor) -> Any:
        """Return the arguments of the call, with `x` in place of the layer's input."""
        args, kwargs = passing
        return ((x, *args[1:]), kwargs) if args else (args, {**kwargs, next(iter(kwargs)): x})

    def read(self, passing: Any, images: int | None = None) -> Tensor:
        """Return the tensor to be normalised among the arguments of a call, or raise a `CovshiftError`."""
        args, kwargs = passing
        x = args[0] if args else next(iter(kwargs.values()), None)
        channels = len(self.mean)
        if not isinstance(x, Tensor) or x.ndim < 2 or x.shape[1] != channels:
            got = f"shape {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
            raise CovshiftError(
                f"layer {self.path!r} expected a batch with {channels} channels in dimension 1, got {got}; "
                "give the model a whole batch, or leave this layer out with layers="
            )
        if x.device != self.running_mean.device:
            raise CovshiftError(
                f"layer {self.path!r} is on {self.running_mean.device} but its input is on {x.device}; "
                "move the images and the model to one device"
            )
        check_not_moved(x, self)
        if self.module.training:
            raise CovshiftError(
                f"layer {self.path!r} is in training mode and would ignore its statistics; call model.eval()"
            )
        return x


def give_back(places: Iterable[Place], handles: Iterable[RemovableHandle | Shortcut]) -> None:
    """Restore the places, and only then remove the hooks that other threads wait in."""
    for place in places:
        place.restore()
    for handle in handles:
        handle.remove()


def unlocked(tensor: Tensor) -> AbstractContextManager[object]:
    """Return a block in which a tensor of the model may be written to."""
    # A model that was built in inference mode can only be written to in that mode.
    locked = tensor.is_inference() and not torch.is_inference_mode_enabled()
    return torch.inference_mode() if locked else torch.no_grad() if tensor.requires_grad else nullcontext()


def check_not_moved(x: Tensor, place: Place) -> None:
    """Raise a `CovshiftError` if activations are on another device than the statistics to correct them by."""
    if x.device != place.mean.device:
        raise CovshiftError("the model was moved to another device while adapted; move it first, then adapt it")


def holds_statistics(module: nn.Module) -> bool:
    """Return whether a module is a normalisation layer with statistics of its training data."""
    return isinstance(getattr(module, "running_mean", None), Tensor) and isinstance(
        getattr(module, "running_var", None), Tensor
    )
