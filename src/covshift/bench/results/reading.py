"""Reading `rows.jsonl`: a line that is not a row of its run is refused, and so is a file that others have changed."""

import math
from pathlib import Path

from pydantic import ValidationError

from covshift.bench.methods import stored_method
from covshift.bench.results.records import Row, Run
from covshift.support.errors import CovshiftError

_AGAIN = "delete that line, and resume the run, which computes it again"


def read_row(line: bytes, run: Run, where: str) -> Row:
    """Return the row of a line, which must be one of this run.

    Args:
        line: its JSON.
        run: the run that the row must belong to.
        where: the line's number and file, for errors.
    """
    try:
        row = Row.model_validate_json(line)
    except ValidationError as error:
        raise CovshiftError(f"{where} is not a valid row: {line[:80]!r}; {_AGAIN}") from error
    if problem := _foreign(row, run) or _impossible(row):
        raise CovshiftError(f"{where} cannot be: {problem}; {_AGAIN}")
    return row


def twice(where: str, row: Row, first: int) -> CovshiftError:
    """Return the error of a line whose cell an earlier line, the `first`, has already."""
    return CovshiftError(f"{where} cannot be: line {first} is a row of {row.cell} already; {_AGAIN}")


def _foreign(row: Row, run: Run) -> str | None:
    """Return what shows that a row comes from another run; None where nothing does."""
    for name in ("model", "data"):
        got, wanted = getattr(row, name), getattr(run.settings, name)
        if got != wanted:
            return f"its {name} is {got}, and that of the run is {wanted}"
    return None


def _impossible(row: Row) -> str | None:
    """Return what no computation of this cell can have given; None where all fits."""
    if row.cell != f"{row.corruption}/{row.severity}/{row.method}":
        return f"its cell is {row.cell}, and its fields are {row.corruption}, {row.severity} and {row.method}"
    if row.images < 1 or not all(0 <= errors <= row.images for errors in (row.top1_errors, row.top5_errors)):
        return f"{row.top1_errors} and {row.top5_errors} errors in {row.images} images of {row.cell}"
    if row.top5_errors > row.top1_errors:
        return f"{row.top5_errors} top-5 errors and only {row.top1_errors} top-1 errors of {row.cell}"
    if row.broken < 0:
        return f"{row.broken} broken images of {row.cell}"
    if row.over_time is not None and sum(row.over_time) != row.top1_errors:
        return f"{sum(row.over_time)} errors over time and {row.top1_errors} in all of {row.cell}"
    if not math.isfinite(row.seconds) or row.seconds < 0:
        return f"{row.seconds} seconds for {row.cell}"
    return _unlike_its_method(row)


def _unlike_its_method(row: Row) -> str | None:
    """Return where n and N are not those that the method's name gives; None where they are."""
    if ":" not in row.method:
        return None
    try:
        method = stored_method(row.method)
    except CovshiftError:
        return None  # of another version of covshift: whoever shows it says so
    takes = method.takes()
    if "n" in takes and method.n and row.n != min(method.n, row.images):
        return f"its n is {row.n}, and its method is {row.method}"
    if "N" in takes and method.prior is not None and row.prior != method.prior:
        return f"its prior is {row.prior}, and its method is {row.method}"
    return None


def changed(file: Path, known: bytes, now: bytes | None) -> CovshiftError:
    """Return the error of a file that something else has changed while this process worked with it.

    Args:
        file: the file with the rows.
        known: what this process has read from it or written to it.
        now: what is in it now; None where there is no file.
    """
    lines = known.splitlines()
    if now is None:
        what = f"was deleted, with {len(lines)} rows in it"
    elif not now:
        what = f"was emptied; it had {len(lines)} rows"
    else:
        pairs = enumerate(zip(lines, now.splitlines(), strict=False), 1)
        other = next((number for number, (before, after) in pairs if before != after), None)
        what = f"was changed at line {other}" if other else f"was cut off after line {len(now.splitlines())}"
        what += f" of {len(lines)}"
    return CovshiftError(
        f"{file} {what}, by something else while this process worked with it, which therefore stops; put the file "
        "back, or run the same command again, which computes what is missing"
    )
