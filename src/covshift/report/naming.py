"""Names in a report: of files, of models and their families, and of the ways to normalise."""

import re

from covshift.bench.methods import ANCHORED, FULL, PARTIAL
from covshift.report.gather import Result

NORMS = {"batch": "BN", "group": "GN", "layer": "LN", "instance": "IN", "fixup": "Fixup"}
"""Ways to normalise as tables name them, by the names that runs record."""

WITHOUT = ("GN", "LN", "Fixup")
"""Ways to normalise that hold no statistics, so that there is nothing to adapt."""

_NORM_WORDS = r"([-_.]|(?<=\d))(gn|group_?norm)(?![a-z])|[-_.]?fixup"


_METHODS = {
    FULL: "full adaptation",
    PARTIAL: "partial adaptation",
    f"{FULL}:{ANCHORED}": "anchored full adaptation",
    f"{PARTIAL}:{ANCHORED}": "anchored partial adaptation",
}


def method_words(method: str) -> str:
    """Return a method as a sentence names it.

    >>> method_words("full:anchored"), method_words("batch:n=8,N=0")
    ('anchored full adaptation', 'the method batch:n=8,N=0')
    """
    return _METHODS.get(method, f"the method {method}")


def file_name(result: Result) -> str:
    """Return the result's name, fit for a file; different names stay different."""
    return re.sub(r"[^\w.-]", lambda odd: "-" if odd[0] == "/" else f"-{ord(odd[0]):x}-", result.name)


def class_name(result: Result, label: int) -> str:
    """Return the name of a class, as far as the run kept it with its answers, or its number."""
    known = result.class_names
    return known[label] if label < len(known) and known[label] else f"class {label}"


def model_name(result: Result) -> str:
    """Return the model's name without its source: `resnet20` of `builtin:resnet20`.

    The name of a file or a function means less than that of the run, which someone chose.
    """
    source, _, name = result.run.settings.model.partition(":")
    return result.name if source in ("file", "py") or not name else name.partition("?")[0]


def family(result: Result) -> str:
    """Return the family of the model's architecture, as the run recorded it."""
    return result.run.model_family


def norm(result: Result) -> str:
    """Return how the model is normalised, e.g. "BN", as the run recorded it; "" where that is not known."""
    return NORMS.get(result.run.model_norm, result.run.model_norm)


def without_norm(result: Result) -> str:
    """Return the model's name without the word for its normalisation: models of the same name are compared."""
    return re.sub(_NORM_WORDS, "", model_name(result), flags=re.IGNORECASE)


def pretraining(result: Result) -> str:
    """Return how the model was pre-trained, "large-scale" or "simclr", as the run recorded it; else ""."""
    return result.run.model_pretraining or ""
