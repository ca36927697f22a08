"""Results on disk: a run folder with `run.json`, what the run is, and `rows.jsonl`, one line for each finished cell.

The answers to each image are in a file beside the rows, and a row says where; see `covshift.bench.results.blocks`.
Lines are only ever appended, each the moment its cell is done, by one process at a time. Whatever ends a process in the
middle of a line, the next one cuts that line off and runs the cell again. Processes share the work of a folder: each
takes the conditions that nobody else is at.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING

from covshift.bench.methods import PARTIAL_PRIOR
from covshift.bench.results.answers import Answers, ImageTable, to_block
from covshift.bench.results.book import AnswerBook
from covshift.bench.results.reading import changed, read_row, twice
from covshift.bench.results.records import SCHEMA, Block, Finished, Row, Run, RunFolder, read_run
from covshift.bench.results.same import check_same, check_settings, join_settings
from covshift.support.checks import check_path
from covshift.support.errors import CovshiftError, plural
from covshift.support.files import replacing, write_behind
from covshift.support.locks import locks

if TYPE_CHECKING:
    import pandas

__all__ = [
    "SCHEMA",
    "Finished",
    "Row",
    "Run",
    "RunFolder",
    "Store",
    "check_same",
    "check_settings",
    "holds_a_run",
    "watch",
]

_RUN, _ROWS, _LOCK = "run.json", "rows.jsonl", ".lock"


class Store:
    """A run folder.

    Args:
        folder: one that `Store.create` has made.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = folder = check_path(folder, "folder")
        self.run = read_run(folder / _RUN)
        self._file = folder / _ROWS
        self._rows: list[Row] = []
        self._lines: dict[str, int] = {}  # the line that each cell is in
        self._known = b""  # what this process has read of the file, which others may only add to
        self._lock = locks(folder / _LOCK)
        self._images: ImageTable | None = None
        self.book = AnswerBook(folder)

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
                part.write_text(run.model_dump_json(indent=1) + "\n", encoding="utf-8")
        made = cls(folder)
        made._lock = lock
        return made

    def _continued(self, run: Run, extend: bool) -> Run:
        """Return what the folder's run is when `run` resumes it."""
        check_same(self.folder, self.run, run, extend)
        known = {name: getattr(run, name) for name in ("model_family", "model_norm", "model_pretraining")}
        if run.source_digest is not None:
            known |= {name: getattr(run, name) for name in ("source_digest", "source_images")}
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
        return self._learn(self._content())

    def _learn(self, content: bytes | None) -> list[Row]:
        """Take up what the file of rows holds by now, which must begin with what is known, and return all rows."""
        if not (content or b"").startswith(self._known):
            raise changed(self._file, self._known, content)
        new = (content or b"")[len(self._known) :]
        whole = new[: new.rfind(b"\n") + 1]
        rows, lines = list(self._rows), dict(self._lines)
        for number, line in enumerate(whole.splitlines(), len(rows) + 1):
            where = f"line {number} of {self._file}"
            row = read_row(line, self.run, where)
            if row.cell in lines:
                raise twice(where, row, lines[row.cell])
            rows.append(row)
            lines[row.cell] = number
        self._rows, self._lines, self._known = rows, lines, self._known + whole
        return rows

    def _content(self) -> bytes | None:
        """Return all that is in the file of rows by now; None where there is no such file."""
        try:
            return self._file.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise CovshiftError(
                f"cannot read {self._file}: {error.strerror or error}; use another folder, or put that right"
            ) from error

    def done(self) -> set[str]:
        """Return the names of the finished cells."""
        self.rows()
        return set(self._lines)

    def answers(
        self,
        corruption: str | Sequence[str] | None = None,
        severity: int | Sequence[int] | None = None,
        method: str | Sequence[str] | None = None,
    ) -> "pandas.DataFrame":
        """Return the answers to each image as a tidy frame, of the cells whose answers are kept.

        Args:
            corruption: one corruption or several; by default all, `clean` among them.
            severity: one severity or several.
            method: one method or several.
        """
        return self.book.frame(self.rows_of(corruption, severity, method))

    def rows_of(
        self,
        corruption: str | Sequence[str] | None = None,
        severity: int | Sequence[int] | None = None,
        method: str | Sequence[str] | None = None,
    ) -> list[Row]:
        """Return the rows of these conditions and methods, all by default; one that no row has is an error."""
        rows = self.rows()
        for name, value in {"corruption": corruption, "severity": severity, "method": method}.items():
            wanted = [value] if isinstance(value, str | int) else value
            unknown = [each for each in wanted or () if all(getattr(row, name) != each for row in rows)]
            if unknown:
                raise CovshiftError(
                    f"expected cells that {self.folder} has, got {name} {unknown[0]}; covshift bench rows lists them"
                )
            rows = [row for row in rows if wanted is None or getattr(row, name) in wanted]
        return rows

    def keep_answers(self, images: ImageTable) -> None:
        """Keep the answers of the cells that are added from now on.

        Args:
            images: the images of the run, which every cell is evaluated on.
        """
        self._images = images

    def kept(self, row: Row) -> Answers | None:
        """Return the answers of a row for another one; None if this process keeps none, or the row has none."""
        return self.book.of(row) if self._images is not None else None

    def append(self, rows: Sequence[Row], answers: Mapping[str, Answers] | None = None) -> None:
        """Add finished cells; what another process has added already is left as it is.

        Args:
            rows: the rows.
            answers: the answers by cell, where they are known; see `keep_answers`.
        """
        try:
            with self._lock.hold(0):
                done = self.done()  # before the file is opened, which would make a new one where it was deleted
                missing = self._with_answers([row for row in rows if row.cell not in done], answers or {})
                new = "".join(row.model_dump_json() + "\n" for row in missing).encode()
                # Without a buffer: it would write what is left of a row when the file is closed.
                with self._file.open("ab", buffering=0) as file:
                    self._write(file, new)
        except OSError as error:
            raise CovshiftError(
                f"cannot write {self._file}: {error.strerror or error}; the rows before are safe"
            ) from error

    def _with_answers(self, rows: list[Row], answers: Mapping[str, Answers]) -> list[Row]:
        """Write the answers of rows, and return the rows, each with the place of its answers."""
        kept = [row.cell for row in rows if self._images is not None and row.cell in answers]
        blocks: dict[str, Block] = {}
        if self._images is not None and kept:
            end = max((row.answers.at + row.answers.size for row in self._rows if row.answers), default=0)
            contents = [to_block(cell, answers[cell], self._images) for cell in kept]
            head = [] if self._check_images(end) else [self._images.to_block()]
            written = self.book.blocks.append([*head, *contents], end)
            blocks = dict(zip(kept, written[len(head) :], strict=True))
        return [row.model_copy(update={"answers": blocks.get(row.cell)}) for row in rows]

    def _check_images(self, end: int) -> bool:
        """Return whether the file of answers begins with the images already, which must be those of this run."""
        if end == 0:
            return False
        held = self.book.images
        if held is not None and self._images is not None and not held.same_as(self._images):
            raise CovshiftError(
                f"{self.folder} has answers to other images than those of this run; use another folder, or continue "
                "without answers: `answers=False`"
            )
        return True

    def _write(self, file: FileIO, new: bytes) -> None:
        """Write lines to the end of the open file of rows, or nothing at all."""
        end = len(self._known)
        write_behind(file, new, end)
        written = os.fstat(file.fileno())
        try:
            there = os.path.samestat(self._file.stat(), written)
        except FileNotFoundError:
            there = False
        if not there or written.st_size != end + len(new):
            raise changed(self._file, self._known + new, self._content())
        self._learn(self._known + new)

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
