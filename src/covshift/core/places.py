"""The normalisation layers of a model: finding them, and writing statistics into them without replacing anything."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any, Literal, NoReturn, cast

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from covshift.core.moments import Moments, widen
from covshift.core.wrappers import AnyModel, unwrap
from covshift.support.checks import check_list
from covshift.support.errors import CovshiftError

Patterns = str | Sequence[str] | None
Only = Literal["mean", "var"] | None


Before = Callable[["NormLayer", tuple[Any, ...], dict[str, Any]], Any]


class Hook:
    """A hook that covshift runs before a normalisation layer; a type of its own, so that a second one is noticed.

    Attributes:
        owner: the object whose method the hook runs, if it runs a method.
    """

    def __init__(self, layer: "NormLayer", before: Before) -> None:
        self._layer = layer
        self._before = before
        self.owner: object = getattr(before, "__self__", None)

    def __call__(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the hook; torch calls this."""
        return self._before(self._layer, args, kwargs)

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        refuse_to_copy()


def refuse_to_copy() -> NoReturn:
    """Raise a `CovshiftError`: a model is copied or pickled with our hooks on it."""
    raise CovshiftError(
        "the model is being adapted or estimated, and a copy of it would keep hooks that nothing can remove; copy or "
        "pickle it before that, after remove(), or after covshift.release(model)"
    )


class NormLayer:
    """A layer that normalises by `running_mean` and `running_var`, and the statistics it came with.

    Attributes:
        path: the layer's name in its model, e.g. "layer1.0.bn1".
        module: the layer itself.
        mean, var: copies of the statistics that the layer held when it was found: the source statistics.
    """

    def __init__(self, path: str, module: nn.Module, only: Only = None) -> None:
        self.path = path
        self.module = module
        self.only = only
        self.mean = self.running_mean.clone()
        self.var = self.running_var.clone()

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

    def write(self, mean: Tensor, var: Tensor) -> None:
        """Put these statistics into the layer's buffers; with `only`, the other moment stays as it is."""
        with _unlocked(self.running_mean):
            for buffer, value in self._pairs(mean, var):
                buffer.copy_(value)

    def _pairs(self, mean: Tensor, var: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Return the buffers to write to, each with its value."""
        pairs = [] if self.only == "var" else [(self.running_mean, mean)]
        return pairs if self.only == "mean" else [*pairs, (self.running_var, var)]

    def mix(self, mean: Tensor, var: Tensor, weight: float | Tensor) -> None:
        """Write (1 - weight) source + weight target into the layer's buffers (Eq. 3)."""
        source_mean, source_var = self.mean, self.var
        if mean.dtype is not source_mean.dtype:
            source_mean, source_var = self._wide
            mean, var = widen(mean), widen(var)
        weight = weight.to(mean.dtype) if isinstance(weight, Tensor) else weight
        self.write(torch.lerp(source_mean, mean, weight), torch.lerp(source_var, var, weight))

    def chosen(self, moments: Moments) -> Moments:
        """Return these moments; with `only`, the other moment is that of the source."""
        if self.only == "mean":
            return replace(moments, var=self.var)
        return replace(moments, mean=self.mean) if self.only == "var" else moments

    def check(self, moments: Moments, prior: float = 0) -> None:
        """Raise a `CovshiftError` unless the layer can normalise by these moments, in its own precision."""
        if moments.count == 1 and prior == 0:
            raise one_value(self.path)
        if not moments.var.to(self.var.dtype).isfinite().all():
            raise not_finite(self.path)

    def check_holds(self, moments: Moments) -> None:
        """Raise a `CovshiftError` if a value is too large for the precision of the layer's buffers."""
        if not (moments.mean.to(self.mean.dtype).isfinite() & moments.var.to(self.var.dtype).isfinite()).all():
            raise CovshiftError(
                f"expected statistics that layer {self.path!r} can hold as {self.var.dtype}, got larger ones; use the "
                "model in a wider type"
            )

    @cached_property
    def _wide(self) -> tuple[Tensor, Tensor]:
        return widen(self.mean), widen(self.var)

    @property
    def eps(self) -> float:
        """The number that the layer adds to the variance."""
        eps = getattr(self.module, "eps", None)
        if not isinstance(eps, int | float):
            raise CovshiftError(
                f"layer {self.path!r} has no eps; leave it out with layers=, or use Batch without size="
            )
        return eps

    def restore(self) -> None:
        """Put the source statistics back, bit for bit."""
        self.write(self.mean, self.var)

    def hook(self, before: Before) -> RemovableHandle:
        """Have `before(layer, args, kwargs)` called before every call of the layer."""
        return self.module.register_forward_pre_hook(Hook(self, before), with_kwargs=True)

    def hook_state_dict(self) -> RemovableHandle:
        """Have `state_dict()` return the source statistics, whatever the buffers hold."""

        def give_source(module: nn.Module, state: dict[str, Any], prefix: str, metadata: object) -> None:
            for name, tensor in (("running_mean", self.mean), ("running_var", self.var)):
                if prefix + name in state:
                    state[prefix + name] = tensor.clone()

        handle: RemovableHandle = self.module.register_state_dict_post_hook(give_source)
        return handle

    def input(self, args: tuple[object, ...], kwargs: dict[str, object]) -> Tensor:
        """Return the tensor to be normalised among the arguments of a call, or raise a `CovshiftError`."""
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
        if x.device != self.mean.device:
            raise CovshiftError("the model was moved to another device while adapted; move it first, then adapt it")
        if self.module.training:
            raise CovshiftError(
                f"layer {self.path!r} is in training mode and would ignore its statistics; call model.eval()"
            )
        return x


def give_back(layers: list[NormLayer], handles: Iterable[RemovableHandle]) -> None:
    """Restore the layers, and only then remove the hooks that other threads wait in."""
    for layer in layers:
        layer.restore()
    for handle in handles:
        handle.remove()


def mix_all(layers: list[NormLayer], moments: list[Moments], weights: list[float | Tensor]) -> None:
    """Mix the statistics of many layers at once, in few operations, which makes swapping streams quick."""
    numbers = [weight for weight in weights if not isinstance(weight, Tensor)]
    if len(numbers) < len(weights):
        for layer, target, weight in zip(layers, moments, weights, strict=True):
            layer.mix(target.mean, target.var, weight)
        return
    sources = [tensor for layer in layers for tensor in layer._wide]
    targets = [widen(tensor) for target in moments for tensor in (target.mean, target.var)]
    mixed = torch._foreach_lerp(sources, targets, [number for number in numbers for _ in ("mean", "var")])
    pairs = [
        pair
        for layer, mean, var in zip(layers, mixed[::2], mixed[1::2], strict=True)
        for pair in layer._pairs(mean, var)
    ]
    with _unlocked(pairs[0][0]):
        torch._foreach_copy_([buffer for buffer, _ in pairs], [value for _, value in pairs])


def _unlocked(buffer: Tensor) -> AbstractContextManager[object]:
    # A model that was built in inference mode can only be written to in that mode.
    locked = buffer.is_inference() and not torch.is_inference_mode_enabled()
    return torch.inference_mode() if locked else nullcontext()


def find_layers(model: AnyModel, patterns: Patterns = None, only: Only = None) -> list[NormLayer]:
    """Return all layers of `model` that hold running statistics, or those whose path matches one of `patterns`.

    Args:
        model: any model in eval mode.
        patterns: shell patterns such as "layer1.*"; None for all layers.
        only: "mean" or "var" to write only that moment; None for both.

    Returns:
        The layers in the order in which the model registers them; a layer with two parents is listed once.

    >>> net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.BatchNorm2d(8)).eval()
    >>> [layer.path for layer in find_layers(net)]
    ['1', '3']
    """
    if only is not None and not (isinstance(only, str) and only in ("mean", "var")):
        raise CovshiftError(f"only= takes 'mean', 'var' or None, got {only!r}")
    root = unwrap(model)
    modules = norm_modules(root)
    if root.training:
        raise CovshiftError("the model is in training mode; call model.eval() first")
    wanted = [patterns] if isinstance(patterns, str) else patterns
    wanted = None if wanted is None else check_list(wanted, "layers", "patterns of layer paths, such as 'layer1.*'")
    if wanted is not None and not all(isinstance(pattern, str) for pattern in wanted):
        raise CovshiftError(f"layers= takes patterns of layer paths, such as 'layer1.*', got {patterns!r}")
    paths = [path for path in modules if wanted is None or any(fnmatchcase(path, pattern) for pattern in wanted)]
    if not paths:
        known = ", ".join([*list(modules)[:6], "..."][: len(modules)])
        raise CovshiftError(f"layers={patterns!r} matches no normalisation layer; the model has {known}")
    for path in paths:
        if any(isinstance(hook, Hook) for hook in modules[path]._forward_pre_hooks.values()):
            raise CovshiftError(f"layer {path!r} is being adapted already; remove() that adapter first")
    return [NormLayer(path, modules[path], only) for path in paths]


def norm_modules(model: nn.Module) -> dict[str, nn.Module]:
    """Return the modules of an unwrapped model that hold running statistics, by path."""
    norms = {path: module for path, module in model.named_modules() if holds_statistics(module)}
    if not norms:
        raise _nothing_to_adapt(model.modules())
    for path, module in norms.items():
        if nn.parameter.is_lazy(module.running_mean):
            raise CovshiftError(f"layer {path!r} has no shape yet; run the model once, then adapt it")
        if cast(Tensor, module.running_mean).is_meta:
            raise CovshiftError(f"layer {path!r} is on the meta device, without values; load the model's weights first")
    return norms


def check_not_compiled(model: nn.Module) -> None:
    """Raise a `CovshiftError` if calling `model` runs what `torch.compile` made of it or of a part of it."""
    for module in model.modules():
        if hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None:
            # Seen with torch 2.13: hooks that come after compilation are silently ignored.
            raise CovshiftError(
                "code compiled by torch.compile ignores new hooks; adapt or estimate on the model before it is "
                "compiled (statistics can be applied to a compiled model)"
            )


def not_finite(path: str) -> CovshiftError:
    """Return the error for activations that are NaN or infinite, which the layer at `path` is the first to see."""
    return CovshiftError(
        f"the input of layer {path!r} has NaN or infinite values; check the images and the model's precision"
    )


def one_value(path: str) -> CovshiftError:
    """Return the error for a layer that would have to normalise a single value by itself."""
    return CovshiftError(
        f"layer {path!r} sees one single value in each channel, which has no variance to normalise by; "
        "give it more images at once, or let the source statistics help with prior= above 0"
    )


def holds_statistics(module: nn.Module) -> bool:
    """Return whether a module is a normalisation layer with statistics of its training data."""
    return isinstance(getattr(module, "running_mean", None), Tensor) and isinstance(
        getattr(module, "running_var", None), Tensor
    )


def _nothing_to_adapt(modules: Iterable[nn.Module]) -> CovshiftError:
    names = {type(module).__name__ for module in modules if "norm" in type(module).__name__.lower()}
    has = f"its norm layers ({', '.join(sorted(names))}) keep none" if names else "it has no norm layers"
    return CovshiftError(
        "the model holds no statistics of its training data (running_mean, running_var) that could be corrected: " + has
    )
