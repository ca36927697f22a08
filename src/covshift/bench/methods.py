"""What is done about the shift: the methods that a benchmark compares, and how they are written."""

import math
import re
from dataclasses import dataclass, replace
from typing import Literal

from covshift.core.policies import Stream
from covshift.support.errors import CovshiftError, unknown

Kind = Literal["none", "batch", "stream", "reverse"]

SCENARIOS = ("none", "partial", "full")
"""The paper's: ad hoc, and adapted with little and with all data."""

PARTIAL_IMAGES = 8
PARTIAL_PRIOR = 16.0
"""N for `partial` where no holdout corruption helps to choose it."""

PRIORS = tuple(2.0**power for power in range(11))
"""The values of N that are tried on the holdout corruptions: 1, 2, 4 … 1024."""

GRID_IMAGES = tuple(2**power for power in range(10))
GRID_PRIORS = tuple(2.0**power for power in range(9))

_NAMED = ("none", "partial", "full", "reverse", "batch", "stream")
_EXAMPLE = "batch:n=8,N=16"


@dataclass(frozen=True)
class Method:
    """One way to evaluate a model in a condition.

    Attributes:
        name: how it is written, and what results are filed under.
        kind: `none`, the model as it is; `batch`, statistics of n images at a time; `stream`, statistics that follow
            the images; `reverse`, statistics of the whole condition, but evaluated on the clean images.
        n: images in a statistical batch; None for all.
        prior: N, how many images the source statistics count for; None where it is chosen on holdout corruptions.
        decay: the memory of a stream, as in `covshift.Stream`.
    """

    name: str
    kind: Kind
    n: int | None = None
    prior: float | None = 0.0
    decay: float | None = None

    def with_prior(self, prior: float) -> "Method":
        """The same, with this N where it is still to be chosen."""
        return replace(self, prior=prior) if self.needs_choice else self

    @property
    def needs_choice(self) -> bool:
        """Whether N is still to be chosen."""
        return self.prior is None

    def __str__(self) -> str:
        return self.name


def batch(n: int, prior: float) -> Method:
    """Statistics of every n images, with a prior of N.

    >>> batch(8, 16).name
    'batch:n=8,N=16'
    """
    return Method(f"batch:n={n},N={prior:g}", "batch", n, prior)


def grid() -> list[Method]:
    """The table of the paper's appendix: n = 1 … 512 by N = 1 … 256."""
    return [batch(n, prior) for n in GRID_IMAGES for prior in GRID_PRIORS]


def parse_methods(text: str) -> list[Method]:
    """Methods as a user writes them, one after the other.

    >>> [method.name for method in parse_methods("none,batch:n=8,N=16,full")]
    ['none', 'batch:n=8,N=16', 'full']
    """
    # A comma also separates what belongs to one method; only before a word without "=" does the next one begin.
    return [parse_method(part) for part in re.split(r",(?!\s*\w+\s*=)", text)]


def parse_method(text: str) -> Method:
    """One method.

    >>> parse_method("stream:N=4")
    Method(name='stream:n=1,N=4', kind='stream', n=1, prior=4.0, decay=None)
    """
    name, _, rest = text.strip().partition(":")
    if name not in _NAMED:
        raise unknown("method", name, _NAMED)
    values = _values(text, rest)
    if name == "batch":
        if "n" not in values:
            raise CovshiftError(f"expected how many images, as in {_EXAMPLE}, got {text!r}")
        method = batch(_whole(text, values.pop("n")), values.pop("N", PARTIAL_PRIOR))
    elif name == "stream":
        n, prior, decay = _whole(text, values.pop("n", 1)), values.pop("N", PARTIAL_PRIOR), values.pop("decay", None)
        written = f"stream:n={n},N={prior:g}" + ("" if decay is None else f",decay={decay:g}")
        Stream(prior, decay)  # complains about values that it cannot work with
        method = Method(written, "stream", n, prior, decay)
    else:
        method = {
            "none": Method("none", "none", prior=math.inf),
            "partial": Method("partial", "batch", PARTIAL_IMAGES, None),
            "full": Method("full", "batch"),
            "reverse": Method("reverse", "reverse"),
        }[name]
    if values:
        raise CovshiftError(f"method {name!r} takes no {', '.join(values)}; write e.g. {_EXAMPLE}")
    return method


def _values(text: str, rest: str) -> dict[str, float]:
    values = {}
    for part in filter(None, rest.split(",")):
        key, _, value = (piece.strip() for piece in part.partition("="))
        try:
            values[key] = float(value)
        except ValueError:
            raise CovshiftError(f"expected a method such as {_EXAMPLE}, got {text!r}") from None
        if math.isnan(values[key]) or values[key] < 0:
            raise CovshiftError(f"expected {key} in {text!r} to be 0 or more")
    return values


def _whole(text: str, number: float) -> int:
    if number < 1 or not float(number).is_integer():
        raise CovshiftError(f"expected n in {text!r} to be a whole number of images from 1")
    return int(number)
