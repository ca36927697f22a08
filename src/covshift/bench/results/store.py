"""Results on disk: a run folder with `run.json`, what the run is, and `rows.jsonl`, one line for each finished cell.

Lines are only ever appended, each the moment its cell is done, by one process at a time. Whatever ends a process in the
middle of a line, the next one cuts that line off and runs the cell again. Processes share the work of a folder: each
takes the conditions that nobody else is at.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pydantic import ValidationError

from covshift.bench.methods import PARTIAL_PRIOR
from covshift.bench.results.records import SCHEMA, Row, Run, RunFolder, read_run
from covshift.bench.results.same import check_same, check_settings, join_settings
from covshift.support.errors import CovshiftError, plural
from covshift.support.files import replacing
from covshift.support.locks import locks

__all__ = ["SCHEMA", "Row", "Run", "RunFolder", "Store", "check_same", "check_settings", "holds_a_run", "watch"]

_RUN, _ROWS, _LOCK = "run.json", "rows.jsonl", ".lock"
_AGAIN = "delete that line, and the same covshift bench run runs it again"


class Store:
    """A run folder.

    Args:
        folder: one that `Store.create` has made.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.run = read_run(folder / _RUN)
        self._rows: list[Row] = []
        self._names: set[str] = set()
        self._read_to = 0
        self._lock = locks(folder / _LOCK)

    def __repr__(self) -> str:
        return f"Store({str(self.folder)!r}, {plural(len(self.rows()), 'row')})"

    @classmethod
    def create(cls, folder: Path, run: Run, *, extend: bool = False) -> "Store":
        """Make a run folder, or open the one that is there if it holds the same run.

        Args:
            folder: the run folder, which is created if it does not exist.
            run: the run that is about to begin.
            extend: whether to add the conditions and methods of `run` to a run that has others.
        """
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CovshiftError(f"cannot make the folder {folder}: {error.strerror or error}") from error
        lock = locks(folder / _LOCK)
        with lock.hold(0):
            alone = lock.enter()
            if (folder / _RUN).exists():
                store = cls(folder)
                # What was only begun, with a setting that turned out to be wrong, may begin again.
                if store.rows() or not alone:
                    run = store._continued(run, extend)
            elif (folder / _ROWS).exists():
                raise CovshiftError(f"{folder} has rows but no {_RUN}; put that back, or use another folder")
            with replacing(folder / _RUN) as part:
                part.write_text(run.model_dump_json(indent=1) + "\n")
        made = cls(folder)
        made._lock = lock
        return made

    def _continued(self, run: Run, extend: bool) -> Run:
        """Return what the folder's run is when `run` resumes it."""
        check_same(self.folder, self.run, run, extend)
        known = {"model_family": run.model_family, "model_norm": run.model_norm}
        if not extend:
            return self.run.model_copy(update=known)
        settings = join_settings(self.run.settings, run.settings)
        chosen = {method.name for method in settings.plan.chosen}
        held = self.run.settings.plan.holdout
        if settings.plan.holdout != held and any(row.method in chosen for row in self.rows()):
            if held:
                raise CovshiftError(
                    f"{self.folder} has rows of {', '.join(chosen)}, whose N was chosen on its holdout corruptions; "
                    "adding others would change it; use another folder"
                )
            settings = settings.model_copy(update={"prior": PARTIAL_PRIOR})  # as its rows have it, chosen on nothing
        return self.run.model_copy(update={"settings": settings, **known})

    def rows(self) -> list[Row]:
        """Return all finished cells, in the order in which they were finished."""
        try:
            with (self.folder / _ROWS).open("rb") as file:
                file.seek(self._read_to)
                new = file.read()
        except FileNotFoundError:
            return self._rows
        except OSError as error:
            raise CovshiftError(
                f"cannot read {self.folder / _ROWS}: {error.strerror or error}; use another folder, or put that right"
            ) from error
        whole = new[: new.rfind(b"\n") + 1]
        for line in whole.splitlines():
            number = len(self._rows) + 1
            try:
                row = Row.model_validate_json(line)
            except ValidationError as error:
                raise CovshiftError(
                    f"line {number} of {self.folder / _ROWS} is not a valid row: {line[:80]!r}; {_AGAIN}"
                ) from error
            if row.images < 1 or not all(0 <= errors <= row.images for errors in (row.top1_errors, row.top5_errors)):
                raise CovshiftError(
                    f"line {number} of {self.folder / _ROWS} is not possible: {row.top1_errors} and {row.top5_errors} errors "
                    f"in {row.images} images of {row.cell}; {_AGAIN}"
                )
            self._rows.append(row)
            self._names.add(row.cell)
        self._read_to += len(whole)
        return self._rows

    def done(self) -> set[str]:
        """Return the names of the finished cells."""
        self.rows()
        return self._names

    def append(self, rows: Sequence[Row]) -> None:
        """Add finished cells; what another process has added already is left as it is."""
        try:
            # Without a buffer: it would write what is left of a row when the file is closed.
            with self._lock.hold(0), (self.folder / _ROWS).open("ab", buffering=0) as file:
                done = self.done()
                if file.tell() > self._read_to:
                    file.truncate(self._read_to)  # half a line, of a process that was killed
                new = "".join(row.model_dump_json() + "\n" for row in rows if row.cell not in done).encode()
                try:
                    while new:
                        new = new[file.write(new) :]
                    os.fsync(file.fileno())
                except OSError:
                    file.truncate(self._read_to)
                    raise
        except OSError as error:
            raise CovshiftError(
                f"cannot write {self.folder / _ROWS}: {error.strerror or error}; the rows before are safe"
            ) from error

    @contextmanager
    def claim(self, place: int, *, wait: bool = False) -> Iterator[bool]:
        """Try to be the one process that works at a condition, and yield whether it is.

        Args:
            place: the condition's number in the run.
            wait: until the other one is done, or dead.
        """
        with self._lock.hold(place + 1, wait=wait) as mine:
            yield mine


def holds_a_run(folder: Path) -> bool:
    """Return whether this is a run folder."""
    return (folder / _RUN).exists()


def watch(folders: Sequence[Path]) -> Callable[[], list[Row]]:
    """Return a function that returns the rows of those folders that hold a run by then; it reads each row once."""
    stores: dict[Path, Store] = {}

    def rows() -> list[Row]:
        stores.update({folder: Store(folder) for folder in folders if folder not in stores and holds_a_run(folder)})
        return [row for store in stores.values() for row in store.rows()]

    return rows
