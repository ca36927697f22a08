"""Results on disk: a run folder with `run.json`, what the run is, and `rows.jsonl`, one line for each finished cell.

Lines are only ever appended, each the moment its cell is done, by one process at a time. Whatever ends a process in the
middle of a line, the next one cuts that line off and runs the cell again. Processes share the work of a folder: each
takes the conditions that nobody else is at.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict, ValidationError

from covshift.bench.methods import PARTIAL_PRIOR
from covshift.bench.settings import FREE, PLANNED, Settings
from covshift.support.errors import CovshiftError
from covshift.support.files import replacing
from covshift.support.locks import locks

SCHEMA = 1
_RUN, _ROWS, _LOCK = "run.json", "rows.jsonl", ".lock"
_AGAIN = "delete that line, and the same covshift bench runs it again"


class Row(BaseModel):
    """A finished cell: what was run, and what came out."""

    model_config = ConfigDict(frozen=True, ser_json_inf_nan="strings")

    cell: str
    model: str
    data: str
    corruption: str
    severity: int
    method: str
    n: int | None
    prior: float | None
    images: int
    top1_errors: int
    top5_errors: int
    seconds: float
    broken: int = 0
    limit: int | None = None
    order: str = "shuffled"
    seed: int = 0
    batch_size: int | None = None
    device: str | None = None


class Run(BaseModel):
    """What a run is: everything that its rows depend on."""

    model_config = ConfigDict(frozen=True, protected_namespaces=())

    schema_version: int = SCHEMA
    settings: Settings
    model_digest: str
    model_classes: int
    model_params: int
    model_uri: str = ""
    preprocess: dict[str, Any]
    data_digest: str
    data_images: int
    data_remark: str = ""
    imagenet: bool
    versions: dict[str, str]
    revision: str | None = None

    @property
    def image_count(self) -> int:
        """How many images are shown in a condition."""
        return min(self.settings.limit or self.data_images, self.data_images)


class RunFolder(Protocol):
    """A folder with the run that it holds."""

    @property
    def folder(self) -> Path:
        """Where the run is."""

    @property
    def run(self) -> Run:
        """What the run is."""


class Store:
    """A run folder.

    Args:
        folder: one that `Store.create` has made.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.run = _read_run(folder / _RUN)
        self._rows: list[Row] = []
        self._names: set[str] = set()
        self._read_to = 0
        self._lock = locks(folder / _LOCK)

    @classmethod
    def create(cls, folder: Path, run: Run, *, extend: bool = False) -> "Store":
        """Make a run folder, or open the one that is there if it holds the same run.

        Args:
            folder: is made if it is not there.
            run: what is about to be run.
            extend: add the conditions and methods of `run` to a run that has others.
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
        """What the folder's run is when `run` goes on with it."""
        check_same(self.folder, self.run, run, extend)
        if not extend:
            return self.run
        settings = _joined(self.run.settings, run.settings)
        chosen = {method.name for method in settings.plan.chosen}
        held = self.run.settings.plan.holdout
        if settings.plan.holdout != held and any(row.method in chosen for row in self.rows()):
            if held:
                raise CovshiftError(
                    f"{self.folder} has rows of {', '.join(chosen)}, whose N was chosen on its holdout corruptions; "
                    "adding others would change it; use another --out"
                )
            settings = settings.model_copy(update={"prior": PARTIAL_PRIOR})  # as its rows have it, chosen on nothing
        return self.run.model_copy(update={"settings": settings})

    def rows(self) -> list[Row]:
        """All finished cells, in the order in which they were finished."""
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
                    f"line {number} of {self.folder / _ROWS} is no row: {line[:80]!r}; {_AGAIN}"
                ) from error
            if row.images < 1 or not all(0 <= errors <= row.images for errors in (row.top1_errors, row.top5_errors)):
                raise CovshiftError(
                    f"line {number} of {self.folder / _ROWS} cannot be: {row.top1_errors} and {row.top5_errors} errors "
                    f"in {row.images} images of {row.cell}; {_AGAIN}"
                )
            self._rows.append(row)
            self._names.add(row.cell)
        self._read_to += len(whole)
        return self._rows

    def done(self) -> set[str]:
        """The names of the finished cells."""
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
        """Try to be the one process that works at a condition; give whether it worked out.

        Args:
            place: the condition's number in the run.
            wait: until the other one is done, or dead.
        """
        with self._lock.hold(place + 1, wait=wait) as mine:
            yield mine


def holds_a_run(folder: Path) -> bool:
    """Whether this is a run folder."""
    return (folder / _RUN).exists()


def watch(folders: Sequence[Path]) -> Callable[[], list[Row]]:
    """A function that gives the rows in those of the folders that hold a run by now; it reads each row once."""
    stores: dict[Path, Store] = {}

    def rows() -> list[Row]:
        stores.update({folder: Store(folder) for folder in folders if folder not in stores and holds_a_run(folder)})
        return [row for store in stores.values() for row in store.rows()]

    return rows


def _read_run(file: Path) -> Run:
    try:
        text = file.read_text()
    except FileNotFoundError:
        raise CovshiftError(f"there is no run in {file.parent}: expected a {file.name} there") from None
    except (OSError, UnicodeDecodeError) as error:
        raise CovshiftError(f"cannot read {file}: {error}; use another folder, or delete this one") from error
    try:
        run = Run.model_validate_json(text)
    except ValidationError as error:
        raise CovshiftError(f"{file} is no run of schema {SCHEMA}: {error.errors()[0]['msg']}") from error
    if run.schema_version != SCHEMA:
        raise CovshiftError(f"{file} has schema {run.schema_version}, this covshift reads {SCHEMA}; use its version")
    return run


def check_same(folder: Path, held: Run, new: Run, extend: bool) -> None:
    """Raise a `CovshiftError` where rows of the two runs would not belong together."""
    check_settings(folder, held.settings, new.settings, extend)
    _check_values(folder, {name: (getattr(held, name), getattr(new, name)) for name in ("data_digest", "preprocess")})
    if held.model_digest != new.model_digest:
        raise CovshiftError(
            f"{folder} holds a run of other weights (model_digest differs); does the model have the same each time it "
            "is opened? Use another --out"
        )


def check_settings(folder: Path, held: Settings, new: Settings, extend: bool) -> None:
    """The same as far as settings tell, before model and data are opened."""
    before, now = _comparable(held), _comparable(new)
    free = {*FREE, *(PLANNED if extend else ())}
    _check_values(folder, {name: (before[name], now[name]) for name in now if name not in free})


def _check_values(folder: Path, values: Mapping[str, tuple[object, object]]) -> None:
    other = {name: pair for name, pair in values.items() if pair[0] != pair[1]}
    if other:
        name, (was, wants) = next(iter(other.items()))
        more = f" (and {len(other) - 1} more)" if len(other) > 1 else ""
        hint = ", or add to it with --extend" if set(other) <= set(PLANNED) else ""
        raise CovshiftError(
            f"{folder} holds a run with other settings: {name} is {_short(was)} there and {_short(wants)} here{more}; "
            f"use another --out{hint}"
        )


def _comparable(settings: Settings) -> dict[str, Any]:
    return settings.model_dump() | {"methods": sorted(settings.methods)}


def _joined(held: Settings, new: Settings) -> Settings:
    """The conditions and methods of both."""
    update: dict[str, Any] = {}
    for name in PLANNED:
        before, now = getattr(held, name), getattr(new, name)
        update[name] = (before or now) if isinstance(now, bool) else tuple(dict.fromkeys([*before, *now]))
    return held.model_copy(update=update)


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 60 else text[:57] + "..."
