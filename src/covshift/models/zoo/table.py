"""All models of the paper, by name."""

from covshift.models.zoo import assemble_weights, normfree, robust, simclr, torchvisions
from covshift.models.zoo.entry import Entry
from covshift.support.errors import unknown

ENTRIES = {
    entry.name: entry
    for entry in (
        *torchvisions.ENTRIES,
        *robust.ENTRIES,
        assemble_weights.ENTRY,
        *simclr.ENTRIES,
        *normfree.ENTRIES,
    )
}


def find_entry(name: str) -> Entry:
    """Return the entry of this name."""
    if name not in ENTRIES:
        raise unknown("model of the zoo", name, ENTRIES)
    return ENTRIES[name]
