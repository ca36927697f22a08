"""States of cameras in a local SQLite file."""

import sqlite3
import threading
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from covshift.serve.stores.base import StoreError
from covshift.support.errors import CovshiftError
from covshift.support.locks import locks

_TABLE = """
CREATE TABLE IF NOT EXISTS cameras (
    scope TEXT NOT NULL, name TEXT NOT NULL, state BLOB NOT NULL, PRIMARY KEY (scope, name)
) WITHOUT ROWID
"""
_OWNERS = """
CREATE TABLE IF NOT EXISTS owners (
    scope TEXT NOT NULL, name TEXT NOT NULL, owner TEXT NOT NULL, PRIMARY KEY (scope, name)
) WITHOUT ROWID
"""
_OWNED = "EXISTS (SELECT 1 FROM owners WHERE scope = ?1 AND name = ?2 AND owner = ?3)"
_PATIENCE = 5.0  # seconds to wait for another process that writes

_open_here: set[Path] = set()  # lock files of this process, to which its own locks are no obstacle
_opening = threading.Lock()


class SqliteStore:
    """States in one file, which several models may share; a killed process leaves whole states only.

    Args:
        path: the file; it is made if it is missing.
        scope: what identifies the model and its policy, whose cameras are not mixed up with those of others.
        owner: what identifies this server among those that share the file; None if it is the only one.
    """

    def __init__(self, path: Path, scope: str, owner: str | None = None) -> None:
        self._scope, self._owner = scope, owner
        self.shared = owner is not None
        self._lock = threading.Lock()
        self._kept = ExitStack()
        if owner is None:
            self._keep_others_out(path)
        with self._released_after_an_error(), self._reported():
            # None leaves it to us where a transaction begins.
            self._database = sqlite3.connect(path, _PATIENCE, isolation_level=None, check_same_thread=False)
            self._database.execute("PRAGMA journal_mode=WAL")
            self._database.execute("PRAGMA synchronous=NORMAL")
            self._database.execute(_TABLE)
            self._database.execute(_OWNERS)

    def _keep_others_out(self, path: Path) -> None:
        """Refuse a file in which another server keeps cameras of the same model: each would overwrite the other's."""
        file = path.resolve()  # by whatever name it was given
        # A file for each model: closing any handle of a file releases all locks that the process has on it.
        file = file.with_name(f"{file.name}-{zlib.crc32(self._scope.encode()):08x}-lock")
        with _opening, ExitStack() as taken:
            is_free = file not in _open_here
            if is_free:
                lock = locks(file)
                taken.callback(lock.close)
                is_free = taken.enter_context(lock.hold(0, wait=False))
            if not is_free:
                raise CovshiftError(
                    f"expected a file for the cameras of one server, got {path}, where another server of this model "
                    "keeps its own; choose another file, or stop that server"
                )
            _open_here.add(file)
            taken.callback(_open_here.discard, file)
            self._kept = taken.pop_all()

    @contextmanager
    def _released_after_an_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self._kept.close()
            raise

    def claim(self, name: str) -> None:
        """Take a camera over from the server that had it."""
        if self._owner is not None:
            self._change("INSERT OR REPLACE INTO owners VALUES (?, ?, ?)", [(self._scope, name, self._owner)])

    def owns(self, name: str) -> bool:
        """Return whether no other server has claimed a camera since."""
        if self._owner is None:
            return True
        with self._reported(), self._lock:
            row = self._database.execute(f"SELECT {_OWNED}", (self._scope, name, self._owner)).fetchone()
        return bool(row[0])

    def names(self) -> list[str]:
        """Return the names of all cameras."""
        with self._reported(), self._lock:
            rows = self._database.execute("SELECT name FROM cameras WHERE scope = ?", (self._scope,)).fetchall()
        return [name for (name,) in rows]

    def get(self, name: str) -> bytes | None:
        """Return the state of a camera; None if there is none."""
        query = "SELECT state FROM cameras WHERE scope = ? AND name = ?"
        with self._reported(), self._lock:
            row = self._database.execute(query, (self._scope, name)).fetchone()
        return None if row is None else bytes(row[0])

    def put(self, states: Mapping[str, bytes]) -> None:
        """Write the states of some cameras, in one transaction."""
        if states and self._owner is None:
            rows = [(self._scope, name, state) for name, state in states.items()]
            self._change("INSERT OR REPLACE INTO cameras VALUES (?, ?, ?)", rows)
        elif states:
            owned = [(self._scope, name, self._owner, state) for name, state in states.items()]
            self._change(f"INSERT OR REPLACE INTO cameras SELECT ?1, ?2, ?4 WHERE {_OWNED}", owned)

    def delete(self, names: Iterable[str]) -> None:
        """Remove some cameras."""
        condition = "scope = ?1 AND name = ?2"
        if self._owner is None:
            rows: list[tuple[object, ...]] = [(self._scope, name) for name in names]
        else:
            rows = [(self._scope, name, self._owner) for name in names]
            condition += f" AND {_OWNED}"
        if rows:
            self._change(f"DELETE FROM cameras WHERE {condition}", rows)  # noqa: S608

    def close(self) -> None:
        """Close the file."""
        with self._lock, _opening, self._kept:
            self._database.close()

    def _change(self, statement: str, rows: Sequence[tuple[object, ...]]) -> None:
        with self._reported(), self._lock:
            self._database.execute("BEGIN IMMEDIATE")
            try:
                self._database.executemany(statement, rows)
                self._database.execute("COMMIT")
            except sqlite3.Error:
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
                raise

    @contextmanager
    def _reported(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise StoreError(f"the file of camera states cannot be used: {error}") from error
