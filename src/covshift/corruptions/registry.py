"""The corruptions by name: the published ones, and those that users register.

The category of a published corruption is also the name of the module that holds its function.
"""

import re
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import Any, Literal, NamedTuple, TypeVar, cast, overload

import numpy as np

from covshift.corruptions.seeding import Rng, Stream
from covshift.corruptions.severity import SEVERITY
from covshift.support.arrays import Array
from covshift.support.errors import CovshiftError, unknown
from covshift.support.plugins import is_same_code, unregistered

CorruptionGroup = Literal["test", "holdout", "all", "registered"]
Corruption = Callable[[Array, Any, Rng], Array]
"""What a user registers: returns levels, or floats from 0 to 1."""
Writer = Callable[[Array, Any, Rng, Array], None]
"""A published corruption, or one that was registered, made into one: writes levels to its last argument."""
Function = TypeVar("Function", bound=Callable[..., Any])

_TEST = {
    "gaussian_noise": "noise",
    "shot_noise": "noise",
    "impulse_noise": "noise",
    "defocus_blur": "blur",
    "glass_blur": "blur",
    "motion_blur": "blur",
    "zoom_blur": "blur",
    "snow": "weather",
    "frost": "weather",
    "fog": "weather",
    "brightness": "weather",
    "contrast": "digital",
    "elastic_transform": "digital",
    "pixelate": "digital",
    "jpeg_compression": "digital",
}
_HOLDOUT = {"speckle_noise": "noise", "gaussian_blur": "blur", "spatter": "weather", "saturate": "digital"}
_GROUPS = {"test": _TEST, "holdout": _HOLDOUT, "all": _TEST | _HOLDOUT}

_MOST = 2.0  # a little above 1 is cut off, as in the published corruptions
_RESERVED = ("clean", "mixed", "sequence", "none", "test", "holdout", "all", "registered")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_LEVELS = 5


class _Registered(NamedTuple):
    """A user's corruption."""

    function: Corruption
    severities: tuple[Any, ...]
    category: str


_REGISTERED: dict[str, _Registered] = {}


def names(which: CorruptionGroup = "test") -> tuple[str, ...]:
    """Return the names of corruptions, the published ones in the published order.

    Args:
        which: `test`, the 15 that are reported; `holdout`, the 4 that are held out for tuning; `all`, these 19;
            `registered`, those that `register` has added.

    >>> names("holdout")
    ('speckle_noise', 'gaussian_blur', 'spatter', 'saturate')
    >>> len(names()), len(names("all"))
    (15, 19)
    """
    if isinstance(which, str) and which == "registered":
        return tuple(_REGISTERED)
    if not isinstance(which, str) or which not in _GROUPS:
        raise unknown("group of corruptions", which, _GROUPS)
    return tuple(_GROUPS[which])


def category(name: str) -> str:
    """Return what kind of corruption it is: noise, blur, weather or digital, or as it was registered.

    >>> category("fog")
    'weather'
    """
    if isinstance(name, str) and name in _REGISTERED:
        return _REGISTERED[name].category
    if not isinstance(name, str) or name not in _GROUPS["all"]:
        raise unregistered("corruption", name, [*_GROUPS["all"], *_REGISTERED])
    return _GROUPS["all"][name]


def implementation(name: str) -> Writer:
    """Return the function behind a name. Only now is its module imported, and with it the compiler."""
    if name in _REGISTERED:
        return partial(_write_checked, name, _REGISTERED[name].function)
    return cast(Writer, getattr(import_module(f"covshift.corruptions.{category(name)}"), name))


def severity_constants(name: str, size: int) -> tuple[Any, ...]:
    """Return the constants of a corruption, one for each severity, for images of a published size."""
    return _REGISTERED[name].severities if name in _REGISTERED else SEVERITY[size][name]


@overload
def register(name: str, *, severities: Sequence[Any], category: str = ...) -> Callable[[Function], Function]: ...
@overload
def register(name: str, function: Function, *, severities: Sequence[Any], category: str = ...) -> Function: ...
def register(name: str, function: Any = None, *, severities: Sequence[Any], category: str = "registered") -> Any:
    """Add a corruption, which then works wherever those of ImageNet-C do; in mCE, the 15 published ones count alone.

    Args:
        name: letters, digits and `_`; what a user writes, and what results are filed under.
        function: takes a uint8 image [height, width, 3], the constant of its severity and a NumPy generator, which is
            seeded for the image; returns an image of the same shape, uint8 or floats from 0 to 1. It cannot write to
            the image that it gets. Without it, `register` is a decorator.
        severities: the constants of severities 1 to 5, whatever the function understands.
        category: what kind of corruption it is, for reports.

    Returns:
        The function.

    >>> @register("dusk", severities=(0.8, 0.6, 0.4, 0.3, 0.2), category="light")
    ... def dusk(image, factor, rng):
    ...     return image / 255 * factor
    >>> category("dusk"), "dusk" in names("registered")
    ('light', True)
    """
    if function is None:
        return partial(register, name, severities=severities, category=category)
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise CovshiftError(f"expected a name of letters, digits and _ for a corruption, got {name!r}")
    if not callable(function):
        raise CovshiftError(f"expected a function of (image, constant, rng) for {name!r}, got {function!r}")
    taken = name in _REGISTERED and not is_same_code(_REGISTERED[name].function, function)
    if name in _RESERVED or name in _GROUPS["all"] or taken:
        raise CovshiftError(f"the name {name!r} is taken; register your corruption under another one")
    constants = tuple(severities) if isinstance(severities, Sequence) and not isinstance(severities, str) else ()
    if len(constants) != _LEVELS:
        raise CovshiftError(
            f"expected {_LEVELS} constants as severities of {name!r}, one for each severity from 1 to 5, "
            f"got {severities!r}"
        )
    if not isinstance(category, str) or not category:
        raise CovshiftError(f"expected a word such as 'noise' as the category of {name!r}, got {category!r}")
    _REGISTERED[name] = _Registered(function, constants, category)
    return function


def _write_checked(name: str, function: Corruption, image: Array, constant: Any, rng: Rng, out: Array) -> None:
    """Write what a registered function makes of an image: floats are truncated to levels, as published."""
    from covshift.corruptions.kernels import quantise

    result = _checked(name, function, image, constant, rng)
    if result.dtype == np.uint8:
        out[...] = result
    else:
        quantise(result, out)


def _checked(name: str, function: Corruption, image: Array, constant: Any, rng: Rng) -> Array:
    """Return what a registered function makes of an image, or raise a `CovshiftError`."""
    given = image.view()
    given.flags.writeable = False  # it is the caller's
    result = function(given, constant, rng.generator() if isinstance(rng, Stream) else rng)
    if not isinstance(result, np.ndarray) or result.shape != image.shape:
        got = f"shape {result.shape}" if isinstance(result, np.ndarray) else type(result).__name__
        raise CovshiftError(f"expected corruption {name!r} to return an array of shape {image.shape}, got {got}")
    if result.dtype == np.uint8:
        return result
    if result.dtype.kind != "f":
        raise CovshiftError(
            f"expected corruption {name!r} to return uint8, or floats from 0 to 1, got {result.dtype}; "
            "convert it with .astype(np.uint8)"
        )
    if not np.isfinite(result).all():
        raise CovshiftError(f"corruption {name!r} returned values that are NaN or infinite")
    if result.max(initial=0) > _MOST:
        raise CovshiftError(
            f"expected corruption {name!r} to return uint8, or floats from 0 to 1, got floats up to "
            f"{result.max():.3g}; divide them by 255"
        )
    return np.ascontiguousarray(result, np.float64)
