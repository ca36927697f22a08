"""Workers on a Ray cluster: kept busy, replaced when they die, and their cells tried again elsewhere."""

from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from covshift.bench.engines.worker import Failure, Worker, WorkerSetup
from covshift.bench.plan import Cell
from covshift.bench.results.store import Finished
from covshift.support.errors import CovshiftError, plural

TRIES = 3
"""Number of times that a cell is tried before it is given up."""

Outcome = tuple[Cell, Finished | Failure]
"""A cell, with its results or with the reason why it has none."""

_PATIENCE = 30.0  # seconds without any worker until the user is told why


@dataclass
class _Hand:
    """A worker: the cells it is to do next, which share a condition, and the one it is at; None while it opens."""

    actor: Any
    cells: deque[Cell] = field(default_factory=deque)
    cell: Cell | None = None


class WorkerPool:
    """The workers of a run: as many as were requested, or as the cluster has room for.

    Args:
        job: everything that a worker has to know.
        say: a function that prints a line for the user.
    """

    def __init__(self, job: WorkerSetup, say: Callable[[str], None]) -> None:
        import ray

        self._ray = ray
        self._job = job
        self._say = say
        self._gpus = self._gpus_each()
        room = self._room()
        if not room and job.where.address is None:  # a cluster may grow, this machine may not
            raise CovshiftError(f"expected workers that fit on this machine, got ones that take {self._takes()} each")
        self._wanted = job.where.workers or max(1, room)
        self._worker = ray.remote(Worker).options(
            num_cpus=job.where.cpus, num_gpus=self._gpus, scheduling_strategy="SPREAD"
        )
        self._idle: list[_Hand] = []
        self._busy: dict[Any, _Hand] = {}
        self._tried: Counter[str] = Counter()
        self._deaths = 0
        self._refused: list[str] = []

    def __enter__(self) -> Self:
        self._say(f"{plural(self._wanted, 'worker')} on Ray, each with {self._takes()}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for hand in [*self._idle, *self._busy.values()]:
            self._ray.kill(hand.actor)

    def run(self, groups: list[list[Cell]]) -> Iterator[Outcome]:
        """Compute all cells; each comes out once, in the order in which they are done.

        Args:
            groups: cells that share what a worker keeps, those of a condition.
        """
        waiting = deque(deque(group) for group in self._cut(groups))
        while self._idle:  # some may have died since, which is not the fault of a cell
            hand = self._idle.pop()
            self._busy[hand.actor.greet.remote()] = hand
        while waiting or any(hand.cell for hand in self._busy.values()):
            self._hire(len(waiting))
            while waiting and self._idle:
                hand = self._idle.pop()
                hand.cells = waiting.popleft()
                self._next(hand)
            ready, _ = self._ray.wait(list(self._busy), timeout=_PATIENCE)
            if not ready and not any(hand.cell for hand in self._busy.values()):
                self._say(f"waiting for a worker, which takes {self._takes()} and opens the model and the data first")
            for task in ready:
                done = self._take(task, waiting)
                if done is not None:
                    yield done

    def _take(self, task: Any, waiting: deque[deque[Cell]]) -> Outcome | None:
        """Read the result of a worker, and return it if it is final."""
        hand = self._busy.pop(task)
        try:
            result = self._ray.get(task)
        except self._ray.exceptions.RayTaskError as error:
            if hand.cell is None:  # opening failed: it would again
                self._ray.kill(hand.actor)
                self._refused.append(str(error.cause))
                return None
            result = Failure(str(error.cause))
        except self._ray.exceptions.RayError as error:
            return self._bury(hand, error, waiting)
        cell = hand.cell
        self._deaths = 0
        self._next(hand)
        if cell is None:
            return None
        if isinstance(result, Failure):
            return self._again(cell, result, deque([cell]), waiting)
        return cell, result

    def _bury(self, hand: _Hand, error: Exception, waiting: deque[deque[Cell]]) -> Outcome | None:
        """Give the cells of a worker that is dead, or out of reach, to another one."""
        self._ray.kill(hand.actor)
        self._deaths += 1
        what = str(error).splitlines()[0]
        if self._deaths > TRIES * self._wanted:
            raise CovshiftError(f"one worker after the other dies, {self._deaths} so far, the last one: {what}")
        if hand.cell is None:
            return None
        if getattr(error, "preempted", False):  # which says nothing about the cell
            self._tried[hand.cell.name] -= 1
        self._say(f"a worker died at {hand.cell.name} and is replaced")
        failure = Failure(f"its worker died every time; was there enough memory? The last one: {what}")
        done = self._again(hand.cell, failure, deque([hand.cell, *hand.cells]), waiting)
        if done is not None and hand.cells:
            waiting.appendleft(hand.cells)
        return done

    def _again(self, cell: Cell, failure: Failure, cells: deque[Cell], waiting: deque[deque[Cell]]) -> Outcome | None:
        """Try a cell, and those after it, again; or give it up."""
        self._tried[cell.name] += 1
        if self._tried[cell.name] >= TRIES:
            return cell, failure
        waiting.append(cells)
        return None

    def _next(self, hand: _Hand) -> None:
        """Give a worker its next cell, or count it among those who have none."""
        hand.cell = hand.cells.popleft() if hand.cells else None
        if hand.cell is None:
            self._idle.append(hand)
        else:
            self._busy[hand.actor.run.remote(hand.cell)] = hand

    def _hire(self, groups: int) -> None:
        """Ask for the workers that are missing, but for no more than there is work for."""
        there = len(self._idle) + len(self._busy)
        if self._refused and not there:
            raise CovshiftError(f"no worker can open the model and the data: {self._refused[0]}")
        for _ in range(min(self._wanted - len(self._refused), len(self._busy) + groups) - there):
            actor = self._worker.remote(self._job)
            self._busy[actor.open.remote(self._share())] = _Hand(actor)

    def _cut(self, groups: list[list[Cell]]) -> Iterator[list[Cell]]:
        """Cut groups smaller where there are more workers than conditions: images are then made more than once."""
        parts = max(1, self._wanted // max(1, len(groups)))
        for group in groups:
            size = -(-len(group) // parts)
            yield from (group[start : start + size] for start in range(0, len(group), size))

    def _gpus_each(self) -> float:
        if self._job.where.gpus is not None:
            return self._job.where.gpus
        wanted = self._job.settings.device == "auto" or self._job.settings.device.startswith("cuda")
        return 1.0 if wanted and self._ray.cluster_resources().get("GPU", 0) else 0.0

    def _room(self) -> int:
        """Return the number of workers that the machines have room for now."""
        return sum(map(self._room_on, self._machines()))

    def _share(self) -> float:
        """Return a worker's share of its machine's memory, if that runs as many workers as it has room for."""
        most = max(map(self._room_on, self._machines()), default=1)
        return 1 / max(1, min(most, self._wanted))

    def _room_on(self, machine: dict[str, float]) -> int:
        by_gpu = machine.get("GPU", 0) / self._gpus if self._gpus else float("inf")
        return int(min(machine.get("CPU", 0) / self._job.where.cpus, by_gpu))

    def _machines(self) -> list[dict[str, float]]:
        return [node["Resources"] for node in self._ray.nodes() if node["Alive"]]

    def _takes(self) -> str:
        return f"{self._job.where.cpus:g} CPU" + (f" and {self._gpus:g} GPU" if self._gpus else "")
