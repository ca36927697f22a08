"""What a store of camera states does."""

from collections.abc import Iterable, Mapping
from typing import Protocol

from covshift.support.errors import CovshiftError


class StoreError(CovshiftError):
    """A store that cannot be read or written at the moment."""


class Store(Protocol):
    """Keeps the states of cameras by their names; every method raises a `StoreError` if the store is out of reach.

    Several servers may share a store that was opened with an owner for each. A camera then belongs to the server that
    claimed it last; what others still want to write of it is ignored.

    Attributes:
        shared: whether other servers may claim cameras.
    """

    shared: bool

    def claim(self, name: str) -> None:
        """Take a camera over from the server that had it; call this before its state is read."""

    def owns(self, name: str) -> bool:
        """Return whether no other server has claimed a camera since."""

    def names(self) -> list[str]:
        """Return the names of all cameras."""

    def get(self, name: str) -> bytes | None:
        """Return the state of a camera; None if there is none."""

    def put(self, states: Mapping[str, bytes]) -> None:
        """Write the states of some cameras: all of them or, after an error, none."""

    def delete(self, names: Iterable[str]) -> None:
        """Remove some cameras."""

    def close(self) -> None:
        """Release the store."""


class MemoryStore:
    """A store that lasts as long as the server."""

    shared = False

    def __init__(self) -> None:
        self._states: dict[str, bytes] = {}

    def claim(self, name: str) -> None:
        """Do nothing: nobody shares this store."""

    def owns(self, name: str) -> bool:
        """Return True: nobody shares this store."""
        return True

    def names(self) -> list[str]:
        """Return the names of all cameras."""
        return list(self._states)

    def get(self, name: str) -> bytes | None:
        """Return the state of a camera; None if there is none."""
        return self._states.get(name)

    def put(self, states: Mapping[str, bytes]) -> None:
        """Keep the states of some cameras."""
        self._states.update(states)

    def delete(self, names: Iterable[str]) -> None:
        """Remove some cameras."""
        for name in names:
            self._states.pop(name, None)

    def close(self) -> None:
        """Do nothing: there is nothing to release."""
