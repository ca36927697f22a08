"""Measure, predict and repair covariate shift in image classifiers, without labels."""

TYPE_CHECKING = False  # as typing's, whose import would take a moment in which Ctrl-C still shows a traceback

if TYPE_CHECKING:
    __version__: str
    from covshift import export, shift
    from covshift.core.adapter import Adapter, adapt, release
    from covshift.core.choosing import choose_source
    from covshift.core.estimate import estimate
    from covshift.core.fleet import Camera, Fleet
    from covshift.core.live.policy import Live
    from covshift.core.moments import Moments
    from covshift.core.policies import Batch, Memory, Policy, Rows, Stream
    from covshift.core.source import Source
    from covshift.core.statistics import Statistics
    from covshift.corruptions import corrupt
    from covshift.data import Condition, Data, open_data
    from covshift.models import Model, Preprocess, open_model
    from covshift.repairs.make import Repair, repair
    from covshift.support.errors import CovshiftError

__all__ = [
    "Adapter",
    "Batch",
    "Camera",
    "Condition",
    "CovshiftError",
    "Data",
    "Fleet",
    "Live",
    "Memory",
    "Model",
    "Moments",
    "Policy",
    "Preprocess",
    "Repair",
    "Rows",
    "Source",
    "Statistics",
    "Stream",
    "adapt",
    "choose_source",
    "corrupt",
    "estimate",
    "export",
    "open_data",
    "open_model",
    "release",
    "repair",
    "shift",
]

# Names are imported when they are asked for, so that `covshift --help` does not wait for torch.
_MODULES = {
    "covshift.core.adapter": ("Adapter", "adapt", "release"),
    "covshift.core.choosing": ("choose_source",),
    "covshift.core.estimate": ("estimate",),
    "covshift.core.fleet": ("Camera", "Fleet"),
    "covshift.core.live.policy": ("Live",),
    "covshift.core.moments": ("Moments",),
    "covshift.core.policies": ("Batch", "Memory", "Policy", "Rows", "Stream"),
    "covshift.core.source": ("Source",),
    "covshift.core.statistics": ("Statistics",),
    "covshift.corruptions": ("corrupt",),
    "covshift.data": ("Condition", "Data", "open_data"),
    "covshift.models": ("Model", "Preprocess", "open_model"),
    "covshift.repairs.make": ("Repair", "repair"),
    "covshift.support.errors": ("CovshiftError",),
}

_ROOMS = (
    *("bench", "corruptions", "data", "doctor", "export", "models", "repairs", "report", "reproduce", "serve"),
    *("shift", "support", "training"),
)


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name == "__version__":
        return import_module("importlib.metadata").version("covshift")
    if name in _ROOMS:
        return import_module(f"covshift.{name}")
    for module, names in _MODULES.items():
        if name in names:
            value = globals()[name] = getattr(import_module(module), name)
            return value
    raise AttributeError(f"module 'covshift' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
