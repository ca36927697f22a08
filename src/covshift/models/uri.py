"""Model URIs: `source:name?key=value&…`."""

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

from covshift.errors import CovshiftError, unknown

SETTINGS = ("mean", "std", "size", "resize", "interpolation")
"""What a query can say of the preprocessing; the same names as the keywords of `open_model`."""


@dataclass(frozen=True)
class Uri:
    """A model URI, taken apart.

    Attributes:
        text: as it was given.
        source: what is before the colon, e.g. "torchvision".
        name: what comes after it, e.g. "resnet50/IMAGENET1K_V1".
        query: what follows the question mark, by key, still as text.
    """

    text: str
    source: str
    name: str
    query: dict[str, str] = field(default_factory=dict)

    def settings(self) -> dict[str, Any]:
        """The preprocessing that the query asks for, as keywords of `Preprocess.with_`.

        >>> parse("torchvision:resnet50?size=256&mean=0.5,0.5,0.5").settings()
        {'mean': (0.5, 0.5, 0.5), 'size': 256}
        """
        read = {"mean": numbers, "std": numbers, "size": whole, "resize": whole}
        given = {key: self.query[key] for key in SETTINGS if key in self.query}
        return {key: read[key](key, text) if key in read else text for key, text in given.items()}

    def check_query(self, *known: str) -> None:
        """Raise a `CovshiftError` for a key that says nothing here."""
        for key in self.query:
            if key not in (*known, *SETTINGS):
                raise unknown(f"setting of a {self.source}: model", key, (*known, *SETTINGS))


def parse(text: str) -> Uri:
    """Take a URI apart.

    >>> parse("file:net.pth?arch=torchvision:resnet18").query
    {'arch': 'torchvision:resnet18'}
    """
    if not isinstance(text, str) or not text.strip():
        raise CovshiftError(f"expected a model such as torchvision:resnet50, got {text!r}")
    source, colon, rest = text.strip().partition(":")
    if not colon:
        raise CovshiftError(
            f"expected a model as source:name, got {text!r}; say torchvision:{text}, timm:{text}, "
            f"file:{text}?arch=… or py:module:function"
        )
    # A file may have a question mark in its name, a key and its value stand behind the last one.
    name, mark, query = rest.rpartition("?")
    if not mark or "=" not in query:
        name, query = rest, ""
    if not name:
        raise CovshiftError(f"expected a name after {source}: in {text!r}")
    pairs = parse_qsl(query, keep_blank_values=True)
    if query and any("=" not in part for part in query.split("&")):
        raise CovshiftError(f"expected key=value&key=value after the question mark, got {query!r}")
    if len({key for key, _ in pairs}) < len(pairs):
        raise CovshiftError(f"expected every key once after the question mark, got {query!r}")
    return Uri(text, source, name, dict(pairs))


def whole(key: str, text: str) -> int:
    """A whole number in a query or an option."""
    if not text.isdecimal():
        raise CovshiftError(f"expected {key} as a whole number, got {text!r}")
    return int(text)


def numbers(key: str, text: str) -> tuple[float, ...]:
    """Numbers with commas between them, in a query or an option."""
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise CovshiftError(f"expected {key} as numbers such as 0.5,0.5,0.5, got {text!r}") from None
