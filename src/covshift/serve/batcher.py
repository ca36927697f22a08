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
    """Collects jobs and runs them, many at a time, in one thread.

    Args:
        run: answers jobs of different cameras, with images of one shape, in one forward pass: an outcome for each, in
            order; an exception among them is raised to the client of that job only.
        size: images in a pass, at most; a larger job is a pass of its own.
        delay: seconds that a job waits for others.
        queue: images that may wait; more are refused.
    """

    def __init__(
        self, run: Callable[[Sequence[Job[Result]]], Sequence[Result | Exception]], size: int, delay: float, queue: int
    ) -> None:
        self._run, self._size, self._delay, self._queue = run, size, delay, queue
        self._jobs: deque[Job[Result]] = deque()
        self._queued = self._ready = self._passes = 0
        self._changed = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="covshift-model")
        self._task: asyncio.Task[None] | None = None
        self._stopping = False

    @property
    def waiting(self) -> int:
        """The number of images that wait, with those of a pass that waits for the one before it to end."""
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
        self._thread.shutdown()

    async def call(self, function: Callable[[], None]) -> None:
        """Call a function in the thread that runs jobs."""
        await asyncio.get_running_loop().run_in_executor(self._thread, function)

    async def submit(self, job: Job[Result]) -> Result:
        """Return the outcome of a job, after its forward pass."""
        images = len(job.images)
        if self._stopping:
            raise Busy("the server is shutting down; try again later")
        if self.waiting + images > self._queue and self.waiting:
            raise Busy(f"{self.waiting} images are waiting already; try again later")
        self._jobs.append(job)
        self._queued += images
        # Jobs in between need not wake the loop, which waits for the first one, and then for the pass to be full.
        if len(self._jobs) == 1 or self._queued - images < self._size <= self._queued:
            self._changed.set()
        return await job.future

    async def _loop(self) -> None:
        while self._jobs or self._passes or not self._stopping:
            self._changed.clear()
            left = self._until_next()
            if left is not None and left <= 0:
                self._begin(self._take())
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._changed.wait()

    def _until_next(self) -> float | None:
        """Return the seconds until the next pass begins if nothing else happens; None if something has to happen first.

        A pass that is full already waits in the thread while another one runs, so that the thread need not wait for us.
        """
        if not self._jobs or self._passes > 1:
            return None
        if self._queued >= self._size:
            return 0.0
        return None if self._passes else self._jobs[0].arrived + self._delay - time.perf_counter()

    def _begin(self, jobs: list[Job[Result]]) -> None:
        if self._passes:
            self._ready = sum(len(job.images) for job in jobs)
        self._passes += 1
        running = asyncio.get_running_loop().run_in_executor(self._thread, self._run_now, jobs)
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

    def _take(self) -> list[Job[Result]]:
        """Return the jobs of the next pass: the oldest, and those behind it that may share its pass."""
        first = self._jobs[0]
        taken: dict[str, Job[Result]] = {}
        left: deque[Job[Result]] = deque()
        images, passed = 0, set()
        for job in self._jobs:
            size = len(job.images)
            alike = job.images.shape[1:] == first.images.shape[1:]
            if alike and job.camera not in passed and (not taken or images + size <= self._size):
                taken[job.camera] = job
                images += size
            else:
                left.append(job)
            passed.add(job.camera)  # what comes later of this camera must not overtake it
        self._jobs = left
        self._queued -= images
        return list(taken.values())
