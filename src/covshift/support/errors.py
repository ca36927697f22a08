"""The one error that covshift raises on purpose."""

import unicodedata
from collections.abc import Iterable
from difflib import get_close_matches
from numbers import Integral, Real


class CovshiftError(Exception):
    """An error that a user can fix; the message says what was expected, what came instead and what to do."""


class Stopped(CovshiftError):  # noqa: N818
    """The end of a run by Ctrl-C; the message says what is kept and how to resume."""


_LISTED = 40
"""Number of known names that an error lists at most."""


def unknown(kind: str, name: str, known: Iterable[str]) -> CovshiftError:
    """Return the error for an unknown name, which suggests the nearest known one.

    >>> unknown("corruption", "gausian_noise", ["fog", "gaussian_noise"])
    CovshiftError("unknown corruption 'gausian_noise'; did you mean 'gaussian_noise'?")
    """
    known = list(known)
    close = get_close_matches(str(name), known, n=1, cutoff=0.6)
    listed = [*known[:_LISTED], "…"] if len(known) > _LISTED else known
    hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(listed)}"
    return CovshiftError(f"unknown {kind} {name!r}; {hint}")


def printable(text: str, keep: str = "") -> str:
    r"""Return a text whose control characters, such as those in a file's name, a terminal shows and does not obey.

    Args:
        text: to be printed.
        keep: characters that stay as they are, such as the line breaks of a text with several lines.

    >>> printable("new\nline, \x1b[31m red"), printable("Käse")
    ('new\\nline, \\x1b[31m red', 'Käse')
    """
    return "".join(char if char.isprintable() or char in keep else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    # Blanks other than ASCII's, as between a number and its unit, do no harm.
    return char if unicodedata.category(char) == "Zs" else char.encode("unicode_escape").decode("ascii")


def is_number(value: object, *, whole: bool = False) -> bool:
    """Return whether this is a number of Python or of NumPy.

    >>> is_number(2.5), is_number(2.5, whole=True), is_number("8")
    (True, False, False)
    """
    return isinstance(value, Integral if whole else Real)


def plural(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural where it is not 1.

    >>> plural(1, "layer"), plural(20, "layer"), plural(2, "class")
    ('1 layer', '20 layers', '2 classes')
    """
    ending = "es" if noun.endswith("s") else "s"
    return f"{number} {noun}" if number == 1 else f"{number} {noun}{ending}"
