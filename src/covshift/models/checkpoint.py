"""Checkpoints on disk, in whatever layout: reading them without running their code, and fitting them to a model."""

import pickle
import re
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from covshift.support.errors import CovshiftError, plural

StateDict = dict[str, Tensor]
"""The tensors of a model by name, as `state_dict()` returns them."""

_WRAPPERS = ("state_dict", "model_state_dict", "model", "net")
"""Names under which training scripts keep the weights, beside their optimizer and the like."""

_PREFIXES = ("module.", "_orig_mod.", "model.", "net.")
"""Prefixes that DataParallel, torch.compile and training scripts put before every name."""

_CHANNELS = ("out_channels", "out_features", "num_channels", "num_features")
"""Attributes of layers that hold the number of their output's channels."""

_SCALAR = np.float64().__reduce__()[0]
_SAFE: list[Any] = [
    *(_SCALAR, (_SCALAR, "numpy.core.multiarray.scalar"), np.dtype),
    *(type(np.dtype(kind)) for kind in ("f4", "f8", "i4", "i8")),
]
"""NumPy's types for single numbers, allowed as well: scripts keep the best accuracy beside the weights."""


def read_state(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a checkpoint by name, whatever they are wrapped in.

    Args:
        path: a safetensors file, or one that `torch.save` wrote and that holds only what `weights_only` allows.
    """
    if not path.exists():
        raise CovshiftError(f"there is no checkpoint at {path}")
    if not path.is_file():
        raise CovshiftError(f"expected a checkpoint, got the folder {path}; name the file in it")
    content = _read_safetensors(path) if _is_safetensors(path) else _read_torch(path)
    unwrapped: set[int] = set()
    while isinstance(content, Mapping):
        if id(content) in unwrapped:
            raise CovshiftError(f"{path} holds itself under {', '.join(map(repr, _WRAPPERS))}; save model.state_dict()")
        unwrapped.add(id(content))
        wrapped = [content[key] for key in _WRAPPERS if isinstance(content.get(key), Mapping)]
        if not wrapped:
            break
        content = wrapped[0]
    state = {}
    if isinstance(content, Mapping):
        state = {str(name): tensor for name, tensor in content.items() if isinstance(tensor, Tensor)}
    if not state:
        has = _some(map(str, content)) if isinstance(content, Mapping) else f"a {type(content).__name__}"
        raise CovshiftError(
            f"expected weights by name in {path}, or under {', '.join(map(repr, _WRAPPERS))}, got {has or 'nothing'}; "
            "save model.state_dict()"
        )
    return state


def _is_safetensors(path: Path) -> bool:
    with path.open("rb") as file:
        # The length of the header in eight bytes, then the header, which is JSON.
        return path.suffix == ".safetensors" or file.read(9)[8:] == b"{"


def _read_safetensors(path: Path) -> object:
    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        raise CovshiftError(f"{path} is not a whole safetensors file ({error}); fetch or save it again") from error


def _read_torch(path: Path) -> object:
    try:
        with warnings.catch_warnings(), torch.serialization.safe_globals(_SAFE):
            warnings.simplefilter("ignore")  # torch warns of TorchScript, and our error says the same
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        more = re.search(r"(?:GLOBAL|class) `?([\w.]+)", str(error))
        if more is None:
            raise CovshiftError(f"{path} is not a checkpoint that torch can read; fetch or save it again") from error
        raise CovshiftError(
            f"{path} holds more than weights ({more[1]}), and loading that could run any code; where you trust it, "
            "load it yourself and save model.state_dict() alone"
        ) from error
    except Exception as error:  # torch passes on the errors of zip, pickle and its own reader
        why = str(error).split("\n")[0]
        raise CovshiftError(f"{path} is not a whole checkpoint ({why}); fetch or save it again") from error


def load_weights(
    module: nn.Module, state: Mapping[str, Tensor], path: Path, arch: str, advice: str = "give another arch="
) -> None:
    """Load the weights of a checkpoint into a model; raise a `CovshiftError` that lists those that do not fit."""
    state = without_prefix(state, module.state_dict())
    _make_room(module, state)
    own = module.state_dict()
    wrong = {key: tensor for key, tensor in state.items() if key in own and tensor.shape != own[key].shape}
    # Checkpoints of old versions of torch have no such counters, and in eval mode nothing reads them.
    counters = {key: tensor for key, tensor in own.items() if key.endswith("num_batches_tracked")}
    fitting = counters | {key: tensor for key, tensor in state.items() if key not in wrong}
    # Modules that changed their layout ask for its version, which most checkpoints do not record.
    versioned = type(own)(fitting)
    versioned._metadata = own._metadata  # type: ignore[attr-defined]
    try:
        missing, unexpected = module.load_state_dict(versioned, strict=False)
    except (RuntimeError, ValueError, KeyError) as error:  # from modules that load in a way of their own
        raise CovshiftError(f"{path} does not fit {arch}: {error}") from error
    missing = [key for key in missing if key not in wrong]
    if not (missing or unexpected or wrong):
        return
    shapes = [f"{key} {_shape(tensor)} instead of {_shape(own[key])}" for key, tensor in wrong.items()]
    kinds = {"missing": missing, "unexpected": unexpected, "of another shape": shapes}
    misfits = "; ".join(f"{len(keys)} {kind}: {_some(keys)}" for kind, keys in kinds.items() if keys)
    raise CovshiftError(f"{path} does not fit {arch}, which has {plural(len(own), 'tensor')}: {misfits}; {advice}")


def _make_room(module: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Give layers that have no weight or no bias those that a checkpoint has: folding a correction in makes such."""
    layers = dict(module.named_modules())
    for key, tensor in state.items():
        path, _, part = key.rpartition(".")
        layer = layers.get(path)
        if layer is None or part not in ("weight", "bias") or layer._parameters.get(part, tensor) is not None:
            continue
        if tensor.ndim == 1 and len(tensor) in [getattr(layer, name, None) for name in _CHANNELS]:
            setattr(layer, part, nn.Parameter(torch.empty_like(tensor)))


def without_prefix(state: Mapping[str, Tensor], own: Iterable[str]) -> dict[str, Tensor]:
    """Return the weights under the names that a model uses.

    >>> list(without_prefix({"module.conv.weight": torch.zeros(1)}, ["conv.weight"]))
    ['conv.weight']
    """
    own, state = set(own), dict(state)
    for _ in _PREFIXES:
        for prefix in _PREFIXES:
            if all(key.startswith(prefix) for key in state) and not any(key.startswith(prefix) for key in own):
                state = {key.removeprefix(prefix): tensor for key, tensor in state.items()}
    return state


def classes_in(state: Mapping[str, Tensor], module: nn.Module, usual: int) -> int:
    """Return the number of classes of a checkpoint, taken from the layer that has `usual` outputs in the model.

    >>> classes_in({"weight": torch.zeros(10, 4)}, nn.Linear(4, 1000), usual=1000)
    10
    """
    own, found = module.state_dict(), usual
    for key, tensor in without_prefix(state, own).items():
        here = own.get(key, torch.empty(()))
        if here.ndim == tensor.ndim > 0 and len(here) == usual and here.shape[1:] == tensor.shape[1:]:
            found = len(tensor)
    return found


def _shape(tensor: Tensor) -> str:
    return " x ".join(map(str, tensor.shape)) or "one value"


def _some(names: Iterable[str], most: int = 3) -> str:
    names = list(names)
    return ", ".join([*names[:most], f"… {len(names) - most} more"] if len(names) > most else names)
