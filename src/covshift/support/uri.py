"""Names of models and data: `source:name?key=value&…`."""

import re
from dataclasses import dataclass, field
from urllib.parse import parse_qsl

from covshift.support.errors import CovshiftError, unknown


@dataclass(frozen=True)
class Uri:
    """The parts of a name.

    Attributes:
        text: the name as it was given.
        source: the part before the colon, e.g. "torchvision".
        name: the part after the colon, e.g. "resnet50/IMAGENET1K_V1".
        query: the values after the question mark, by key, still as text.
    """

    text: str
    source: str
    name: str
    query: dict[str, str] = field(default_factory=dict)

    def check_query(self, *known: str) -> None:
        """Raise a `CovshiftError` for a key that has no meaning for this source."""
        for key in self.query:
            if not known:
                raise CovshiftError(f"expected nothing after the question mark, got {key!r} in {self.text!r}")
            if key not in known:
                raise unknown(f"setting of {self.source}:", key, known)

    def flag(self, key: str) -> bool:
        """Return whether a key of the query is "yes"; a missing key counts as "no"."""
        wish = self.query.get(key, "no")
        if wish not in ("yes", "no"):
            raise CovshiftError(f"expected {key}=yes or {key}=no, got {wish!r}")
        return wish == "yes"

    def whole(self, key: str) -> int | None:
        """Return the whole number that the query gives for a key; None if the key is missing.

        >>> parse("npz:set.npz?classes=5", "data", "npz:FILE").whole("classes")
        5
        """
        text = self.query.get(key)
        if text is not None and not text.isdecimal():
            raise CovshiftError(f"expected {key} as a whole number, got {text!r}")
        return None if text is None else int(text)


def parse(text: str, what: str, example: str) -> Uri:
    """Split a name into its parts.

    Args:
        text: the name that a user gave.
        what: the kind of thing that it should name, for error messages.
        example: an example of such a name, for error messages.

    >>> parse("file:net.pth?arch=torchvision:resnet18", "model", "timm:resnet50").query
    {'arch': 'torchvision:resnet18'}
    """
    if not isinstance(text, str) or not text.strip():
        raise CovshiftError(f"expected a {what} such as {example}, got {text!r}")
    source, colon, rest = text.strip().partition(":")
    if not colon:
        raise CovshiftError(f"expected a {what} as source:name, such as {example}, got {text!r}")
    # A file may have a question mark in its name, a key and its value stand behind the last one.
    name, mark, query = rest.rpartition("?")
    if not mark or "=" not in query:
        name, query = rest, ""
    if not name:
        raise CovshiftError(f"expected a name after {source}: in {text!r}")
    if query and any("=" not in part for part in query.split("&")):
        raise CovshiftError(f"expected key=value&key=value after the question mark, got {query!r}")
    # A plus in a file name is a plus.
    pairs = parse_qsl(query.replace("+", "%2B"), keep_blank_values=True)
    if len({key for key, _ in pairs}) < len(pairs):
        raise CovshiftError(f"expected every key once after the question mark, got {query!r}")
    return Uri(text, source, name, dict(pairs))


def escape(value: str) -> str:
    """Return a value, such as the name of a file, as it is written in a query.

    >>> parse(f"zoo:augmix?file={escape('R&D/net.pth')}", "model", "timm:resnet50").query
    {'file': 'R&D/net.pth'}
    """
    return re.sub("[%&?]", lambda char: f"%{ord(char[0]):02X}", value)
