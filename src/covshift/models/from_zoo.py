"""`zoo:NAME[?file=PATH]`: the paper's models, with the weights that their authors have published."""

from pathlib import Path
from typing import Any

from torch import nn

from covshift.models.base import Model
from covshift.models.checkpoint import load_weights
from covshift.models.query import KEYS
from covshift.models.untrained import untrained
from covshift.models.zoo import ENTRIES, find_entry
from covshift.models.zoo.fetch import fetch
from covshift.support.errors import CovshiftError
from covshift.support.uri import Uri, escape


def names() -> list[str]:
    """Return all models of the paper."""
    return list(ENTRIES)


def family(name: str) -> str:
    """Return the family of architectures that a model belongs to."""
    return find_entry(name).family


def build(name: str) -> nn.Module:
    """Return the model, for its counts."""
    return find_entry(name).build()


def weights_of(name: str) -> list[str]:
    """Return the published files, if there are any."""
    return [file.name for file in find_entry(name).files]


def about(name: str) -> dict[str, Any]:
    """Return where the weights are, whose they are, and what images they expect; unpublished facts are left out."""
    entry = find_entry(name)
    found = {
        "address": [file.by_hand for file in entry.files] or [entry.page] * bool(entry.page),
        "sha256": [file.sha256 for file in entry.files if file.sha256],
        "train": f"covshift train {entry.recipe}" if entry.recipe else "",
        "licence": entry.licence,
        "citation": entry.citation,
        "preprocess": entry.preprocess.as_dict(),
        "note": entry.note,
    }
    return {key: value for key, value in found.items() if value}


def load(uri: Uri) -> Model:
    """Return the model with its published weights, or with those of a file in the same layout."""
    uri.check_query("file", *KEYS)
    entry = find_entry(uri.name)
    named = uri.query.get("file")
    path = Path(named).expanduser() if named else fetch(entry)
    try:
        state = entry.rename(entry.read(path))
        module = untrained(entry.build)
        load_weights(module, state, path, f"zoo:{entry.name}", "it may be of another model")
    except CovshiftError as error:
        if named:
            raise
        raise CovshiftError(f"{error}. It was downloaded; delete it to have it fetched again") from error
    full = f"zoo:{entry.name}" + (f"?file={escape(named)}" if named else "")
    return Model(full, module, entry.preprocess, entry.pretraining)
