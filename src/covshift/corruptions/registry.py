"""Which corruptions there are. The room a corruption belongs to is the module that holds its function."""

from collections.abc import Callable
from importlib import import_module
from typing import Any, Literal, cast

from covshift.corruptions.seeding import Rng
from covshift.support.arrays import Array
from covshift.support.errors import unknown

Which = Literal["test", "holdout", "all"]
Corruption = Callable[[Array, Any, Rng], Array]

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


def names(which: Which = "test") -> tuple[str, ...]:
    """The corruptions, in the published order: the 15 that are reported, the 4 that are held out for tuning, or all.

    >>> names("holdout")
    ('speckle_noise', 'gaussian_blur', 'spatter', 'saturate')
    >>> len(names()), len(names("all"))
    (15, 19)
    """
    if which not in _GROUPS:
        raise unknown("group of corruptions", which, _GROUPS)
    return tuple(_GROUPS[which])


def category(name: str) -> str:
    """What kind of corruption it is: noise, blur, weather or digital.

    >>> category("fog")
    'weather'
    """
    if not isinstance(name, str) or name not in _GROUPS["all"]:
        raise unknown("corruption", name, _GROUPS["all"])
    return _GROUPS["all"][name]


def implementation(name: str) -> Corruption:
    """The function behind a name. Only now is its module imported, and with it the compiler."""
    return cast(Corruption, getattr(import_module(f"covshift.corruptions.{category(name)}"), name))
