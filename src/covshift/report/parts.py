"""What a page is made of: sections of tables, figures, and gaps that say how to fill them."""

from typing import NamedTuple

from covshift.report.figure import Figure
from covshift.report.sheet import Sheet


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


Part = Sheet | Figure | Gap


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
