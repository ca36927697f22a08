"""The placing of cameras on replicas, and their moves when replicas come and go."""

import asyncio
import hashlib
import itertools
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from covshift.serve.refusals import Busy

Ask = Callable[..., Awaitable[Any]]
"""Calls a method of a replica: takes the name of the replica, the name of the method, and its arguments."""

_PATIENCE = 30.0  # seconds that a request waits for a replica, if all are lost
_PERIOD, _PAUSE = 1.0, 0.05  # seconds between two questions to a replica, and before a request is sent again


class Counts(NamedTuple):
    """What a replica has to do: the number of cameras in its memory, and of images that wait."""

    resident: int = 0
    waiting: int = 0


@dataclass(eq=False)
class _Replica:
    """A replica, whether it answers at the moment, and what it has to do."""

    name: str
    up: bool = False
    counts: Counts = field(default_factory=Counts)


@dataclass(eq=False)
class _Place:
    """The replica that has a camera, and the number of requests that it has not answered yet."""

    replica: _Replica | None = None
    users: int = 0
    moving: asyncio.Lock = field(default_factory=asyncio.Lock)


def ranked(camera: str, replicas: Sequence[str]) -> list[str]:
    """Return replicas in the order in which they are to have a camera, by hashes of both names.

    A replica that is lost or added changes the place of its own cameras only.

    >>> ranked("gate", ["a", "b", "c"])
    ['a', 'c', 'b']
    >>> ranked("gate", ["a", "b"])
    ['a', 'b']
    """
    return sorted(replicas, key=lambda replica: hashlib.sha256(f"{replica}\n{camera}".encode()).digest())


class Placing:
    """Sends what concerns a camera to its replica.

    A camera whose replica is lost goes to the next one, which reads its state from the store, and returns when its
    own is back; the one that it leaves writes its state first.

    Args:
        replicas: the names of the replicas.
        ask: calls a method of a replica.
        lost: the errors of `ask` that mean that the replica is lost.
        cameras: the number of cameras whose places are remembered.
    """

    def __init__(self, replicas: Sequence[str], ask: Ask, lost: tuple[type[Exception], ...], cameras: int) -> None:
        self._replicas = {name: _Replica(name) for name in replicas}
        self._ask, self._lost, self._most = ask, lost, cameras
        self._places: OrderedDict[str, _Place] = OrderedDict()
        self._turn = itertools.count()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin to ask the replicas whether they are there."""
        self._tasks = [asyncio.create_task(self._watch(replica)) for replica in self._replicas.values()]

    async def stop(self) -> None:
        """Ask them no more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def counts(self) -> Counts:
        """What all replicas together have to do."""
        there = [replica.counts for replica in self._replicas.values() if replica.up]
        return Counts(sum(each.resident for each in there), sum(each.waiting for each in there))

    @property
    def up(self) -> list[str]:
        """The names of the replicas that answer at the moment."""
        return [name for name, replica in self._replicas.items() if replica.up]

    def replica_of(self, camera: str) -> str | None:
        """Return the name of the replica that has a camera; None if it is not known."""
        place = self._places.get(camera)
        return None if place is None or place.replica is None else place.replica.name

    async def call(self, camera: str | None, method: str, *arguments: Any) -> Any:
        """Call a method of the replica that has a camera, or of the next one if that is lost meanwhile.

        Args:
            camera: the name of the camera; None for any replica.
            method: the name of the method.
            arguments: its arguments.
        """
        until = time.monotonic() + _PATIENCE
        while time.monotonic() < until:
            if not self.up:
                await asyncio.sleep(_PAUSE)
                continue
            place = _Place() if camera is None else self._place(camera)
            replica = await self._enter(place, camera)
            try:
                return await self._ask(replica.name, method, *arguments)
            except self._lost:
                replica.up = False
                await asyncio.sleep(_PAUSE)
            finally:
                place.users -= 1
        raise Busy("no replica of the server can be reached; try again later", retry=5)

    async def call_all(self, method: str, *arguments: Any) -> dict[str, Any]:
        """Call a method of all replicas that answer at the moment, and return what each of them returned."""
        names = self.up
        results = await asyncio.gather(*(self._ask(name, method, *arguments) for name in names), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, self._lost):
                raise result
        return {name: each for name, each in zip(names, results, strict=True) if not isinstance(each, self._lost)}

    async def _enter(self, place: _Place, camera: str | None) -> _Replica:
        """Return the replica for one more request of a camera, which is moved there first if that is due."""
        async with place.moving:
            best, current = self._best(camera), place.replica
            if current is None or not current.up:
                place.replica = best
            elif current is not best and not place.users:  # else it stays until these are answered
                place.replica = best if await self._released(current, camera) else current
            place.users += 1
            assert place.replica is not None
            return place.replica

    def _best(self, camera: str | None) -> _Replica:
        names = self.up or list(self._replicas)
        return self._replicas[names[next(self._turn) % len(names)] if camera is None else ranked(camera, names)[0]]

    async def _released(self, replica: _Replica, camera: str | None) -> bool:
        """Have a replica write a camera and forget it, and return whether another one may take it over."""
        try:
            return bool(await self._ask(replica.name, "release", camera))
        except self._lost:
            replica.up = False
            return True

    def _place(self, camera: str) -> _Place:
        place = self._places.setdefault(camera, _Place())
        self._places.move_to_end(camera)
        if len(self._places) > self._most:
            oldest = next(iter(self._places))
            if not self._places[oldest].users:
                del self._places[oldest]
        return place

    async def _watch(self, replica: _Replica) -> None:
        """Note whether a replica answers; the question to one that is lost is answered when it is replaced."""
        while True:
            try:
                replica.counts = await self._ask(replica.name, "counts")
                replica.up = True
            except self._lost:
                replica.up = False
            await asyncio.sleep(_PERIOD)
