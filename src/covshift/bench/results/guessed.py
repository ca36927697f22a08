"""Family and normalisation of the models of old runs, which did not record them: guessed from the model's name."""

import re
from typing import NamedTuple

from covshift.models.architecture import FAMILIES

_FAMILIES = {
    "wide_?resnet|wrn": "Wide ResNet",
    "resnext": "ResNeXt",
    "se_?resnet|resnest": "ResNet, attention",
} | FAMILIES
_NORMS = {"group": r"([-_.]|(?<=\d))(gn|group_?norm)(?![a-z])", "fixup": r"[-_.]?fixup", "batch": r"[-_.]bn(?![a-z])"}
_WITHOUT = ("VGG", "ConvNeXt", "AlexNet", "SqueezeNet", "Swin Transformer", "Vision Transformer")
"""Families that have batch normalisation only where the name says so."""


class Guess(NamedTuple):
    """A family, and a kind of normalisation, or "" where the name does not tell."""

    family: str
    norm: str


def guess(name: str, *, adapted: bool) -> Guess:
    """Return the family and the normalisation that the name of a model suggests.

    Args:
        name: a model's URI, or what someone called it.
        adapted: whether the run adapted it, so that it holds statistics.

    >>> guess("builtin:resnet20-gn", adapted=False)
    Guess(family='ResNet', norm='group')
    """
    source, _, rest = name.partition(":")
    own = (rest or source).partition("?")[0]
    family = next((word for pattern, word in _FAMILIES.items() if re.search(pattern, own.lower())), "")
    norm = next((word for word, pattern in _NORMS.items() if re.search(pattern, own.lower())), "")
    usual = family not in ("", *_WITHOUT)
    return Guess(family or own, norm or ("batch" if adapted or usual else ""))
