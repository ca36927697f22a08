"""`py:MODULE:FUNCTION`: a model that the user's own code makes."""

from types import ModuleType

from torch import nn

from covshift.models.base import Model
from covshift.models.checkpoint import StateDict
from covshift.models.preprocess import IMAGENET, Preprocess
from covshift.models.query import KEYS
from covshift.support.errors import CovshiftError, unknown
from covshift.support.plugins import failed, import_users
from covshift.support.uri import Uri

AS_IT_IS = IMAGENET.with_(size=0, resize=0)
"""Preprocessing where a factory gives none: ImageNet's mean and std, and images as large as they are."""


def load(uri: Uri) -> Model:
    """Return the factory's result as a `Model`: a module, a pair of module and `Preprocess`, or a `Model`."""
    uri.check_query(*KEYS)
    module_name, colon, name = uri.name.partition(":")
    if not (module_name and colon and name):
        raise CovshiftError(f"expected py:module:function, e.g. py:nets:resnet20, got {uri.text!r}")
    text = f"py:{uri.name}"
    made = _make(text, import_users(module_name, text), name)
    if isinstance(made, Model):
        return Model(text, made.module, made.preprocess, made.pretraining)
    module, preprocess = made if isinstance(made, tuple) and len(made) == 2 else (made, AS_IT_IS)
    if not isinstance(module, nn.Module) or not isinstance(preprocess, Preprocess):
        kinds = ", ".join(type(part).__name__ for part in made) if isinstance(made, tuple) else type(made).__name__
        raise CovshiftError(f"expected {text} to return a torch.nn.Module, or (module, Preprocess), got {kinds}")
    return Model(text, module, preprocess)


def architecture(uri: Uri, state: StateDict, classes: int | None) -> Model:
    """Return the model that the factory builds; the factory itself decides on the number of classes."""
    if classes is not None:
        raise CovshiftError(f"classes= has no effect on {uri.text}; let the function build the model for {classes}")
    return load(uri)


def _make(text: str, module: ModuleType, name: str) -> object:
    if not hasattr(module, name):
        raise unknown(f"function in {module.__name__}", name, (known for known in vars(module) if known[0] != "_"))
    factory = getattr(module, name)
    if isinstance(factory, nn.Module):
        return factory
    if not callable(factory):
        raise CovshiftError(f"expected {text} to name a function, got a {type(factory).__name__}")
    try:
        return factory()
    except CovshiftError:
        raise
    except Exception as error:
        raise failed(text, "failed", error) from error
