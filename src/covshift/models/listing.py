"""The models that can be opened, how much of each is normalisation, and the places where each is adapted."""

from fnmatch import fnmatchcase
from functools import partial
from importlib import import_module
from typing import Any, Literal, NamedTuple

from covshift.core.finding import choose_places
from covshift.core.places import Patterns, holds_statistics
from covshift.models.base import count
from covshift.models.open import LISTED, SOURCES, open_bare
from covshift.models.untrained import untrained
from covshift.support.errors import CovshiftError
from covshift.support.progress import progress_bar


class ListedModel(NamedTuple):
    """A model that can be opened, with the columns of the paper's table of models."""

    uri: str
    family: str
    params: int
    bn_params: int
    weights: list[str]
    about: dict[str, Any] = {}  # noqa: RUF012

    def as_dict(self) -> dict[str, Any]:
        """Return the row as a dictionary, with everything else that a source records about its models."""
        return {name: value for name, value in self._asdict().items() if name != "about"} | self.about


def find_models(pattern: str | None = None) -> list[ListedModel]:
    """Return the models whose URI or name matches a shell pattern or, without stars, contains it.

    timm has thousands of models, which are searched only if the pattern begins with "timm:".

    >>> find_models("torchvision:resnet18")
    [ListedModel(uri='torchvision:resnet18', family='resnet', params=11689512, bn_params=9600, weights=\
['IMAGENET1K_V1'], about={})]
    """
    pattern = pattern or "*"
    sources = ("timm",) if pattern.startswith("timm:") else LISTED
    # A source that can be listed has these functions: names, family, build and, where there is more to say,
    # weights_of and about.
    rooms: dict[str, Any] = {source: import_module(SOURCES[source]) for source in sources}
    found = [(f"{source}:{name}", name, room) for source, room in rooms.items() for name in room.names()]
    found = [entry for entry in found if _fits(entry[0], pattern)]
    if not found:
        raise CovshiftError(f"no model matches {pattern!r}; try a pattern such as 'resnet*' or 'timm:resnet*'")
    rows = []
    with progress_bar("counting parameters", len(found)) as advance:
        for uri, name, room in found:
            counts = count(untrained(partial(room.build, name), shapes_only=True))
            weights = room.weights_of(name) if hasattr(room, "weights_of") else []
            about = room.about(name) if hasattr(room, "about") else {}
            rows.append(ListedModel(uri, room.family(name), *counts, weights, about))
            advance(1)
    return rows


def _fits(uri: str, pattern: str) -> bool:
    if not set(pattern) & set("*?["):
        return pattern in uri
    return fnmatchcase(uri, pattern) or fnmatchcase(uri.partition(":")[2], pattern)


class ListedPlace(NamedTuple):
    """A place of a model where a source is measured and activations are corrected.

    Attributes:
        path: the path of the layer in the model.
        layer: the name of the layer's class.
        side: the input of a layer that holds statistics, the output of any other.
        channels: the number of channels there.
    """

    path: str
    layer: str
    side: Literal["input", "output"]
    channels: int


def find_model_places(uri: str, patterns: Patterns = "auto") -> list[ListedPlace]:
    """Return the places of a model that `Source.measure` chooses; weights that would be fetched are not needed.

    Args:
        uri: the URI of a model, as for `open_model`.
        patterns: "auto" or patterns of layer paths, as for `Source.measure`.

    >>> find_model_places("torchvision:vgg11/none")[0]
    ListedPlace(path='features.0', layer='Conv2d', side='output', channels=64)
    """
    module = open_bare(uri)

    def listed(path: str, channels: int) -> ListedPlace:
        layer = module.get_submodule(path)
        return ListedPlace(path, type(layer).__name__, "input" if holds_statistics(layer) else "output", channels)

    return [listed(path, channels) for path, channels in choose_places(module, patterns).items()]
