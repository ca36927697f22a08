"""Requests of many cameras in one forward pass: they wait a little for each other, each camera in its own order."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, TypeVar

from torch import Tensor

from covshift.serve.refusals import Busy

Result = TypeVar("Result")


@dataclass(eq=False)
class Job(Generic[Result]):
    """The images of one camera that wait for a forward pass, and what is known once they had it.

    Attributes:
        camera: the name of the camera; two jobs of one camera never share a pass.
        images: the model's input.
        start: whether the camera starts anew with these images.
        arrived: when it came, by `time.perf_counter`.
        began: when its forward pass began.
        batch: the number of images in the pass.
    """

    camera: str
    images: Tensor
    start: bool = False
    arrived: float = field(default_factory=time.perf_counter)
    began: float = 0.0
    batch: int = 0
    future: "asyncio.Future[Result]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Batcher(Generic[Result]):
    """Collects jobs and runs them, many at a time, in a thread for each pass that may run at once.

    Args:
        run: answers jobs of different cameras, with images of one shape, in one forward pass: an outcome for each, in
            order; an exception among them is raised to the client of that job only.
        size: images in a pass, at most; a larger job is a pass of its own.
        delay: seconds that a job waits for others.
        queue: images that may wait; more are refused.
        passes: passes that run at once, at most; a camera is in one of them at a time.
        prepare: called in each thread before its first pass.
    """

    def __init__(
        self,
        run: Callable[[Sequence[Job[Result]]], Sequence[Result | Exception]],
        size: int,
        delay: float,
        queue: int,
        passes: int = 1,
        prepare: Callable[[], object] | None = None,
    ) -> None:
        self._run, self._size, self._delay, self._queue, self._most = run, size, delay, queue, passes
        self._jobs: deque[Job[Result]] = deque()
        self._queued = self._ready = self._passes = 0
        self._in_pass: set[str] = set()
        self._changed = asyncio.Event()
        self._threads = ThreadPoolExecutor(passes, thread_name_prefix="covshift-model", initializer=prepare)
        self._task: asyncio.Task[None] | None = None
        self._stopping = False

    @property
    def waiting(self) -> int:
        """The number of images that wait, with those of a pass that waits for another one to end."""
        return self._queued + self._ready

    def start(self) -> None:
        """Begin to run jobs."""
        self._task = asyncio.create_task(self._loop())

    async def stop(self) -> None:
        """Run what still waits, and end."""
        self._stopping = True
        self._changed.set()
        if self._task is not None:
            await self._task
        self._threads.shutdown()

    async def submit(self, job: Job[Result]) -> Result:
        """Return the outcome of a job, after its forward pass."""
        images = len(job.images)
        if self._stopping:
            raise Busy("the server is shutting down; try again later")
        if self.waiting + images > self._queue and self.waiting:
            raise Busy(f"{self.waiting} images are waiting already; try again later")
        self._jobs.append(job)
        self._queued += images
        # While all threads have a pass, the loop waits for one of them, or for the next pass to be full.
        if self._passes < self._most or self._queued - images < self._size <= self._queued:
            self._changed.set()
        return await job.future

    async def _loop(self) -> None:
        while self._jobs or self._passes or not self._stopping:
            self._changed.clear()
            jobs, is_full = self._next()
            left = self._until(jobs, is_full)
            if left is not None and left <= 0:
                self._begin(jobs)
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._changed.wait()

    def _until(self, jobs: list[Job[Result]], is_full: bool) -> float | None:
        """Return the seconds until a pass begins if nothing else happens; None if something has to happen first.

        A pass that is full already waits for a thread while all are busy, so that no thread need wait for us.
        """
        if not jobs or self._passes > self._most:
            return None
        if is_full:
            return 0.0
        return None if self._passes >= self._most else jobs[0].arrived + self._delay - time.perf_counter()

    def _next(self) -> tuple[list[Job[Result]], bool]:
        """Return the jobs of the next pass, and whether it is full: the oldest that can run, and what may join it."""
        taken: list[Job[Result]] = []
        images, is_full, passed = 0, False, set(self._in_pass)
        for job in self._jobs:
            if job.camera not in passed and (not taken or job.images.shape[1:] == taken[0].images.shape[1:]):
                size = len(job.images)
                if not taken or images + size <= self._size:
                    taken.append(job)
                    images += size
                is_full |= images >= self._size or taken[-1] is not job
            passed.add(job.camera)  # what comes later of this camera must not overtake it
            if images >= self._size:
                break
        return taken, is_full

    def _begin(self, jobs: list[Job[Result]]) -> None:
        images = sum(len(job.images) for job in jobs)
        chosen = set(map(id, jobs))
        self._jobs = deque(job for job in self._jobs if id(job) not in chosen)
        self._queued -= images
        self._in_pass.update(job.camera for job in jobs)
        if self._passes >= self._most:
            self._ready = images
        self._passes += 1
        running = asyncio.get_running_loop().run_in_executor(self._threads, self._run_now, jobs)
        running.add_done_callback(partial(self._end, jobs))

    def _run_now(self, jobs: list[Job[Result]]) -> Sequence[Result | Exception]:
        now, images = time.perf_counter(), sum(len(job.images) for job in jobs)
        for job in jobs:
            job.began, job.batch = now, images
        return self._run(jobs)

    def _end(self, jobs: list[Job[Result]], done: "asyncio.Future[Sequence[Result | Exception]]") -> None:
        """Hand the outcomes of a pass to those who wait for them."""
        self._passes -= 1
        self._ready = 0  # that pass, if there is one, runs now
        self._in_pass.difference_update(job.camera for job in jobs)
        self._changed.set()
        error = done.exception()
        outcomes = done.result() if error is None else [error] * len(jobs)
        for job, outcome in zip(jobs, outcomes, strict=True):
            if job.future.done():  # its client has gone
                continue
            if isinstance(outcome, BaseException):
                job.future.set_exception(outcome)
            else:
                job.future.set_result(outcome)
