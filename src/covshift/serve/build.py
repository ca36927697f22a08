"""A service from the names of a model, a source and a store."""

import hashlib
import uuid
from collections.abc import Callable
from pathlib import Path

from covshift.core.live.policy import Live
from covshift.core.policies import Batch, Policy, Stream
from covshift.core.source import Source
from covshift.data.open import open_data
from covshift.models.base import Model
from covshift.models.open import open_model
from covshift.serve.predicting import open_predictor
from covshift.serve.service import Service
from covshift.serve.settings import Settings
from covshift.serve.stores import open_store
from covshift.support.checks import check_choice, check_flags, check_kind
from covshift.support.errors import CovshiftError

POLICIES: dict[str, Callable[[], Policy]] = {
    "live": Live,
    "stream": Stream,
    "batch": Batch,
    "none": lambda: Batch(prior=float("inf")),
}
"""Policies by the names that the command has for them."""

CLEAN = 500
"""Number of clean images that a source is measured on."""


def open_policy(name: str) -> Policy:
    """Return the policy of a name."""
    check_choice(name, "policy", POLICIES)
    return POLICIES[name]()


def open_source(name: str | None, model: Model) -> Source | None:
    """Return the source that a name stands for: a file that `Source.save` wrote, or clean images to measure it on."""
    if name is None:
        return None
    if name.endswith(".safetensors") or Path(name).is_file():
        return Source.load(name)
    return Source.measure(model, open_data(name).loader(model, batch_size=50, limit=CLEAN))


def build(
    uri: str,
    settings: Settings,
    *,
    source: str | None = None,
    policy: str = "live",
    state: str = "memory",
    predictor: str | None = None,
    shared: bool = False,
) -> Service:
    """Return the service for a model.

    Args:
        uri: the model, as `open_model` takes it.
        settings: how requests are batched, and what is refused.
        source: a file that `Source.save` wrote, or clean images such as folder:clean; None for what the model holds.
        policy: "live", "stream", "batch" or "none".
        state: the store of cameras, as `open_store` takes it.
        predictor: a file that `Predictor.save` wrote for this model; None not to predict errors.
        shared: whether other services use the same store, so that cameras may move between them.
    """
    check_kind(settings, Settings, "settings", "Settings of a server")
    check_kind(source, str | None, "source", "a file or the URI of clean images")
    check_flags(shared=shared)
    model = open_model(uri)
    rule, anchor = open_policy(policy), open_source(source, model)
    scope = scope_of(model, rule, anchor)
    predict = None if predictor is None else open_predictor(predictor, model, rule)
    store = open_store(state, scope, uuid.uuid4().hex if shared else None)
    try:
        return Service(model, rule, store, settings, source=anchor, predict=predict)
    except CovshiftError as error:
        store.close()
        if anchor is None and policy != "none":
            raise CovshiftError(f"{error}; or give clean images as the source, or choose policy none") from error
        raise


def scope_of(model: Model, policy: Policy, source: Source | None) -> str:
    """Return what states of cameras depend on, in short, so that those of another model are never taken for them."""
    anchor = "" if source is None else repr(source) + source.digest
    content = f"{model.digest}\n{policy!r}\n{anchor}"
    return hashlib.sha256(content.encode()).hexdigest()[:24]
