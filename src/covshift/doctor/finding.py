"""`Finding`: the result of one check."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Level = Literal["ok", "warning", "problem"]


@dataclass(frozen=True)
class Finding:
    """The result of one check.

    Attributes:
        level: `ok`; `warning`, worth knowing; `problem`, results are not what they are taken for.
        text: the result in words, with the figure that shows it.
        remedy: the advice to the user, with settings as `name=value` in backquotes; empty where there is none.
        figures: the same numbers for programs; errors are shares from 0 to 1.
    """

    level: Level
    text: str
    remedy: str = ""
    figures: Mapping[str, float | str] = field(default_factory=dict)


def percent_text(share: float) -> str:
    """Return a share as text.

    >>> percent_text(0.0831)
    '8.3 %'
    """
    return f"{100 * share:.1f} %"
