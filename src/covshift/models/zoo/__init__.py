"""The paper's models, each by its name: architecture, where its weights are, in which layout, and whose they are."""

from covshift.models.zoo.entry import Entry, File
from covshift.models.zoo.table import ENTRIES, find_entry

__all__ = ["ENTRIES", "Entry", "File", "find_entry"]
