"""`open_model`: the one door to models, wherever they come from."""

from collections.abc import Sequence
from importlib import import_module
from typing import Protocol, cast

from torch import nn

from covshift.models.base import Model
from covshift.models.checkpoint import StateDict
from covshift.models.query import preprocessing
from covshift.models.untrained import untrained
from covshift.models.zoo import find_entry
from covshift.support.errors import CovshiftError, unknown
from covshift.support.uri import Uri, parse

SOURCES = {
    "builtin": "covshift.models.from_builtin",
    "torchvision": "covshift.models.from_torchvision",
    "timm": "covshift.models.from_timm",
    "zoo": "covshift.models.from_zoo",
    "file": "covshift.models.from_file",
    "py": "covshift.models.from_python",
}
"""Sources by the word that a model's URI begins with, each with the module that opens it, imported when needed.

A new source is a line here and a module with the functions of `ModelSource`.
"""

LISTED = ("builtin", "torchvision", "zoo")
"""The sources whose models are listed unless another one is asked for."""


_EXAMPLE = "torchvision:resnet50"


class ModelSource(Protocol):
    """The functions of a module in `SOURCES`; a source without `architecture` cannot be named by arch=."""

    def load(self, uri: Uri) -> Model:
        """Return the model with its weights; the query's settings of the preprocessing are not applied yet."""

    def architecture(self, uri: Uri, state: StateDict, classes: int | None) -> Model:
        """Return the model without its weights, made to take those of a checkpoint."""


def source(uri: Uri) -> ModelSource:
    """Return the module that opens a URI."""
    if uri.source not in SOURCES:
        raise unknown("model source", uri.source, SOURCES)
    return cast(ModelSource, import_module(SOURCES[uri.source]))


def open_model(
    uri: str,
    *,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    size: int | None = None,
    resize: int | None = None,
    interpolation: str | None = None,
) -> Model:
    """Open a model by its URI, in eval mode, with the preprocessing that belongs to its weights.

    Args:
        uri: `builtin:NAME`, `torchvision:NAME[/WEIGHTS]`, `timm:NAME`, `zoo:NAME`, `file:PATH?arch=URI` or
            `py:MODULE:FUNCTION`.
        mean: the mean, in place of the preprocessing's own; this and the other keywords override the URI's query.
        std: the standard deviation, as in `Preprocess`.
        size: the side of the crop; `resize` grows in proportion. 0 for no crop.
        resize: what the shorter side is resized to before the crop. 0 for no resizing.
        interpolation: the filter for resizing.

    Raises:
        CovshiftError: if there is no such model, or its weights cannot be had or do not fit.

    >>> model = open_model("torchvision:resnet18/none", size=64)
    >>> model.classes, model.params, model.bn_params, model.preprocess.resize
    (1000, 11689512, 9600, 73)
    """
    parsed = parse(uri, "model", _EXAMPLE)
    model = source(parsed).load(parsed)
    keywords = {"mean": mean, "std": std, "size": size, "resize": resize, "interpolation": interpolation}
    given = {key: value for key, value in keywords.items() if value is not None}
    model.preprocess = model.preprocess.with_(**(preprocessing(parsed) | given))
    model.module.eval()
    return model


def open_architecture(uri: str, state: StateDict, classes: int | None = None) -> Model:
    """Build the model that a URI names, for the weights of a checkpoint, which are not loaded into it yet."""
    parsed = parse(uri, "model", _EXAMPLE)
    opener = source(parsed)
    if not hasattr(opener, "architecture"):
        raise CovshiftError(f"expected arch= to name an architecture such as torchvision:resnet50, got {uri!r}")
    return opener.architecture(parsed, state, classes)


def open_bare(uri: str) -> nn.Module:
    """Return the module of a model, to inspect its layers: weights that would have to be fetched are random."""
    parsed = parse(uri, "model", _EXAMPLE)
    if parsed.source in ("torchvision", "timm"):
        return open_model(f"{parsed.source}:{parsed.name.partition('/')[0]}/none").module
    if parsed.source == "zoo":
        return untrained(find_entry(parsed.name).build).eval()
    return open_model(uri).module
