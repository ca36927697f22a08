"""A run as a pandas frame."""

import os
from typing import TYPE_CHECKING

from covshift.bench.results.metrics import rate
from covshift.bench.results.store import Store
from covshift.support.checks import check_path

if TYPE_CHECKING:
    import pandas


def frame(folder: str | os.PathLike[str]) -> "pandas.DataFrame":
    """Return the rows of a run folder, one line for each cell, with its top-1 error from 0 to 1 and the interval."""
    import pandas

    rows = Store(check_path(folder, "folder")).rows()
    found = pandas.DataFrame([row.model_dump() for row in rows])
    if rows:
        rates = [rate(row.top1_errors, row.images) for row in rows]
        found["top1_error"], found["low"], found["high"] = zip(*rates, strict=True)
        found["top5_error"] = found["top5_errors"] / found["images"]
    return found
