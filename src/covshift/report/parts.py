"""The parts of a page: sections of tables, figures, and gaps with the commands that fill them."""

import shlex
from collections.abc import Sequence
from typing import NamedTuple

from covshift.report.figure import Figure
from covshift.report.gather import Result
from covshift.support.tables import Table


class Gap(NamedTuple):
    """A table or figure that the runs do not give.

    Attributes:
        title: the title of what is missing.
        reason: what the runs lack.
        command: the command that fills the gap.
    """

    title: str
    reason: str
    command: str


def lacking(title: str, reason: str, results: Sequence[Result], each: str = "", then: str = "") -> Gap:
    """Return a gap with the commands that fill it.

    Args:
        title: the title of what is missing.
        reason: what the results lack.
        results: those that lack it.
        each: a command to run for each of them, in which RUN stands for the folder.
        then: a command to run after these.
    """
    whose = f"{reason} ({', '.join(result.name for result in results)})" if results else reason
    folders = [shlex.quote(str(result.folder)) for result in results] or ["RUN"]
    commands = [each.replace("RUN", folder) for folder in folders]
    return Gap(title, whose, "\n".join(filter(None, [*commands, then])))


Part = Table | Figure | Gap


class Section(NamedTuple):
    """Parts under one heading.

    Attributes:
        name: the anchor of links.
        title: the heading.
        text: what the parts show, for someone who has not read the paper.
        parts: tables, figures and gaps, in the order in which they are shown.
    """

    name: str
    title: str
    text: str
    parts: tuple[Part, ...]
