"""What a page is made of: sections of tables, figures, and gaps that say how to fill them."""

import shlex
from collections.abc import Sequence
from typing import NamedTuple

from covshift.report.figure import Figure
from covshift.report.gather import Result
from covshift.support.tables import Table


class Gap(NamedTuple):
    """A table or figure that the runs do not give.

    Attributes:
        title: what it would be.
        reason: what is missing.
        command: that would fill it.
    """

    title: str
    reason: str
    command: str


def lacking(title: str, reason: str, results: Sequence[Result], each: str = "", then: str = "") -> Gap:
    """A gap that these results leave: what to run for each of them, where RUN is the folder, and what to run then."""
    told = f"{reason} ({', '.join(result.name for result in results)})" if results else reason
    folders = [shlex.quote(str(result.folder)) for result in results] or ["RUN"]
    commands = [each.replace("RUN", folder) for folder in folders]
    return Gap(title, told, "\n".join(filter(None, [*commands, then])))


Part = Table | Figure | Gap


class Section(NamedTuple):
    """Parts under one heading.

    Attributes:
        name: for links.
        title: the heading.
        text: what they show, for someone who has not read the paper.
        parts: in the order in which they are shown.
    """

    name: str
    title: str
    text: str
    parts: tuple[Part, ...]
