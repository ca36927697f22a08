"""Finding the places of a model: the layers that hold statistics, or those whose outputs a source was measured at."""

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import cast

from torch import Tensor, nn

from covshift.core.hooks import hooks_on
from covshift.core.moments import Moments, possible
from covshift.core.outputs import Output, output_channels
from covshift.core.places import NormLayer, Only, Patterns, Place, holds_statistics
from covshift.core.wrappers import AnyModel, unwrap_eval
from covshift.support.checks import check_list
from covshift.support.errors import CovshiftError


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
    modules = norm_modules(_ready(model, only))
    return [NormLayer(path, modules[path], only) for path in _free(modules, patterns)]


def find_places(
    model: AnyModel,
    anchors: Mapping[str, Moments] | None,
    patterns: Patterns = None,
    only: Only = None,
    clean: Mapping[str, Moments] | None = None,
) -> list[Place]:
    """Return the places to correct: all layers that hold statistics or, with `anchors`, the places of these.

    Args:
        model: any model in eval mode.
        anchors: the source statistics of each place, by path; None for those that the model holds.
        patterns: shell patterns such as "layer1.*", to return only the places that match one.
        only: "mean" or "var" to correct only that moment; None for both.
        clean: what clean images look like at each place, by path, where that is not the anchor.
    """
    if anchors is None:
        return [*find_layers(model, patterns, only)]
    root = _ready(model, only)
    modules = {path: module for path, module in root.named_modules() if path in anchors}
    if missing := anchors.keys() - modules.keys():
        raise CovshiftError(f"the source was measured at {min(missing)!r}, which this model does not have")
    return [
        NormLayer(path, modules[path], only, anchors[path], (clean or {}).get(path))
        if holds_statistics(modules[path])
        else Output(path, modules[path], anchors[path], only)
        for path in _free(modules, patterns)
    ]


def choose_places(model: AnyModel, patterns: Patterns = None) -> dict[str, int]:
    """Return the paths of places to measure a source at, with their numbers of channels.

    Args:
        model: any model in eval mode.
        patterns: "auto" or None to choose by the kind of network; else shell patterns of paths, which may name any
            layer that can be a place.
    """
    root = _ready(model)
    sizes = {path: size for path, module in root.named_modules() if (size := _channels(module)) is not None}
    modules = {path: root.get_submodule(path) for path in sizes}
    if not _is_auto(patterns):
        return {path: sizes[path] for path in _free(modules, patterns)}
    for wanted in (holds_statistics, _normalises, _convolves):
        chosen = {path: sizes[path] for path, module in modules.items() if wanted(module)}
        if chosen:
            return chosen
    linear = dict(list(sizes.items())[:-1])  # what are left are linear layers, and the last one gives the answers
    if linear:
        return linear
    raise CovshiftError(
        "the model has no layer whose activations can be corrected: none that holds statistics, no normalisation, no "
        "convolution, and no linear layer before the last (one whose weight is computed, as by weight_norm, does not "
        "count)"
    )


def check_met(patterns: Patterns, met: Iterable[str]) -> None:
    """Raise a `CovshiftError` unless each pattern that a user has given matches one of the places that were met."""
    given = [] if _is_auto(patterns) else [patterns] if isinstance(patterns, str) else list(patterns or [])
    for pattern in given:
        if not any(fnmatchcase(path, pattern) for path in met):
            raise CovshiftError(
                f"expected places={pattern!r} to match a layer that the model calls once in a pass, got only "
                "layers that it never calls, or calls several times; choose others"
            )


def _is_auto(patterns: Patterns) -> bool:
    return patterns is None or (isinstance(patterns, str) and patterns == "auto")


def _normalises(module: nn.Module) -> bool:
    return isinstance(module, nn.LayerNorm | nn.GroupNorm | nn.modules.instancenorm._InstanceNorm)


def _convolves(module: nn.Module) -> bool:
    return isinstance(module, nn.modules.conv._ConvNd)


def _channels(module: nn.Module) -> int | None:
    return len(module.running_mean) if holds_statistics(module) else output_channels(module)  # type: ignore[arg-type]


def _ready(model: AnyModel, only: Only = None) -> nn.Module:
    if only is not None and not (isinstance(only, str) and only in ("mean", "var")):
        raise CovshiftError(f"only= takes 'mean', 'var' or None, got {only!r}")
    return unwrap_eval(model)


def _free(modules: Mapping[str, nn.Module], patterns: Patterns) -> list[str]:
    """Return the paths that match one of the patterns, all of intact layers that no hook of ours is on."""
    wanted = [patterns] if isinstance(patterns, str) else patterns
    wanted = None if wanted is None else check_list(wanted, "layers", "patterns of layer paths, such as 'layer1.*'")
    if wanted is not None and not all(isinstance(pattern, str) for pattern in wanted):
        raise CovshiftError(f"layers= takes patterns of layer paths, such as 'layer1.*', got {patterns!r}")
    paths = [path for path in modules if wanted is None or any(fnmatchcase(path, pattern) for pattern in wanted)]
    if not paths:
        known = ", ".join([*list(modules)[:6], "..."][: len(modules)])
        raise CovshiftError(f"layers={patterns!r} matches no layer to adapt; the model has {known}")
    for path in paths:
        if hooks_on(modules[path]):
            raise CovshiftError(f"layer {path!r} is being adapted already; remove() that adapter first")
    _check_held({path: modules[path] for path in paths if holds_statistics(modules[path])})
    return paths


def _check_held(norms: Mapping[str, nn.Module]) -> None:
    """Raise a `CovshiftError` unless layers hold statistics that data can have."""
    held = {
        path: Moments(0, 0, cast(Tensor, norm.running_mean), cast(Tensor, norm.running_var))
        for path, norm in norms.items()
    }
    # All layers are checked together, which is quick and, on a GPU, has to be waited for once.
    if not all(possible(held.values())):
        path = next(path for path, moments in held.items() if not all(possible([moments])))
        raise CovshiftError(
            f"expected layer {path!r} to hold finite means and finite variances from 0, got NaN, infinite or negative "
            "ones; load the weights of a model whose training did not diverge, in a type wide enough for them"
        )


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


def _nothing_to_adapt(modules: Iterable[nn.Module]) -> CovshiftError:
    names = {type(module).__name__ for module in modules if "norm" in type(module).__name__.lower()}
    has = f"its norm layers ({', '.join(sorted(names))}) keep none" if names else "it has no norm layers"
    return CovshiftError(
        "the model holds no statistics of its training data (running_mean, running_var) that could be corrected: "
        f"{has}; measure its source on clean images with Source.measure(model, loader)"
    )
