"""The service behind the server: cameras, batches, the store and events, whatever brings the requests."""

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covshift.core.fleet import Camera, Fleet
from covshift.core.policies import Policy
from covshift.core.source import Source
from covshift.models.base import Model
from covshift.models.preprocess import Preprocess
from covshift.serve.batcher import Batcher, Job
from covshift.serve.brief import Brief, brief_of
from covshift.serve.cameras import Cameras
from covshift.serve.events import Answered, Feed, Predicted
from covshift.serve.refusals import Refusal
from covshift.serve.settings import Settings
from covshift.serve.stores import Store
from covshift.serve.writer import Writer
from covshift.support.errors import CovshiftError

Predict = Callable[[Camera, Tensor], Predicted | None]
"""Predicts the error on the images of a camera from what it remembers and from its last logits."""


@dataclass(frozen=True)
class Outcome:
    """The logits of one request, what was done for its camera, and the event that tells of it."""

    logits: NDArray[np.float32]
    brief: Brief
    reset: bool
    event: Answered | None = None


class Service:
    """Answers requests of many cameras with one model.

    Args:
        model: the model, with its preprocessing.
        policy: how cameras are followed.
        store: where their states are kept.
        settings: how requests are batched, and what is refused.
        source: what clean images look like inside of the model.
        predict: predicts the error on the images of a camera; None if nothing can be said about it.

    Attributes:
        refused: the number of requests that were refused, by status.
        at_end: what is called when the service has stopped, in a thread of its own, such as `Webhook.close`.
    """

    def __init__(
        self,
        model: Model,
        policy: Policy,
        store: Store,
        settings: Settings,
        *,
        source: Source | None = None,
        predict: Predict | None = None,
    ) -> None:
        self.model = model
        self.classes, self._side = model.classes, model.side  # asked for while the model can still be called
        self.fleet = fleet = Fleet(model, policy, source=source)
        self.settings = settings
        self.cameras = Cameras(fleet, store, settings.limits)
        self.feed = Feed()
        self.writer = Writer(self.cameras)
        self.refused: Counter[int] = Counter()
        self.at_end: list[Callable[[], object]] = []
        self.ready = False
        self.stopping = asyncio.Event()
        self._store = store
        self._predict = predict
        self._batcher: Batcher[Outcome] = Batcher(self._run, settings.batch, settings.delay, settings.limits.queue)
        self._numbers = itertools.count()

    @property
    def sample(self) -> tuple[int, int | None, int | None]:
        """The shape of one image of the model's input; None where any size will do."""
        return 3, self.preprocess.size, self.preprocess.size

    @property
    def preprocess(self) -> Preprocess:
        """What turns pictures into the model's input."""
        return self.model.preprocess

    @property
    def waiting(self) -> int:
        """The number of images that wait for a forward pass."""
        return self._batcher.waiting

    @property
    def predicts(self) -> bool:
        """Whether errors are predicted."""
        return self._predict is not None

    async def start(self) -> None:
        """Warm up the model, then begin to answer."""
        self._batcher.start()
        self.writer.start()
        for images in {1, self.settings.batch}:
            await self._answer(Job(self._nameless(), torch.zeros(images, 3, self._side, self._side)))
        self.ready = True

    async def stop(self) -> None:
        """Answer what still waits, save all cameras, and release the store."""
        self.ready = False
        self.stopping.set()
        await self._batcher.stop()
        await asyncio.to_thread(self.writer.stop)
        for end in self.at_end:
            await asyncio.to_thread(end)
        self._store.close()
        self.fleet.remove()

    async def answer(
        self,
        images: Tensor,
        camera: str | None = None,
        *,
        start: bool = False,
        end: bool = False,
        thumbnail: bytes | None = None,
    ) -> Outcome:
        """Return the logits for images of a camera, and what was done for it.

        Args:
            images: the model's input.
            camera: the name of the camera; None for images that belong to none: a camera that is forgotten at once.
            start: whether the camera starts anew with these images.
            end: whether the camera is forgotten after them.
            thumbnail: a small JPEG of the last image, for the events.
        """
        name = self._nameless() if camera is None else camera
        job: Job[Outcome] = Job(name, images, start)
        if camera is None:
            outcome = await self._answer(job)
        else:
            if not self.cameras.hold_resident(name):
                await asyncio.to_thread(self.cameras.hold, name)
            try:
                outcome = await self._answer(job)
                self.cameras.touched([name])
            finally:
                self.cameras.let_go(name)
            if end:
                self.cameras.forget(name)
        event = _event(camera or "", job, outcome, thumbnail)
        self.feed.publish(event)
        return replace(outcome, event=event)

    async def _answer(self, job: Job[Outcome]) -> Outcome:
        try:
            return await self._batcher.submit(job)
        finally:
            if job.camera.startswith(" "):
                self.fleet.forget(job.camera)

    def _nameless(self) -> str:
        """Return the name of a camera that no client can have."""
        return f" {next(self._numbers)}"

    def _run(self, jobs: Sequence[Job[Outcome]]) -> list[Outcome | Exception]:
        """Answer jobs of different cameras in one forward pass."""
        for job in jobs:
            if job.start and job.camera in self.fleet:
                self.fleet[job.camera].reset()
        answers = self.fleet.answer({job.camera: job.images for job in jobs})
        return [self._outcome(job, answers[job.camera]) for job in jobs]

    def _outcome(self, job: Job[Outcome], answer: Tensor | CovshiftError) -> Outcome | Exception:
        if isinstance(answer, CovshiftError):
            return Refusal(str(answer))
        camera = self.fleet[job.camera]
        brief = brief_of(self.fleet, camera)
        if self._predict is not None:
            brief = replace(brief, predicted=self._predict(camera, answer))
        logits = answer.float().cpu().numpy()
        if not np.isfinite(logits).all():
            return Refusal("the model's answer to these images is not finite; check them")
        return Outcome(logits, brief, job.start or brief.done == "reset")


def _event(camera: str, job: Job[Outcome], outcome: Outcome, thumbnail: bytes | None) -> Answered:
    now, brief = time.perf_counter(), outcome.brief
    return Answered(
        camera,
        time.time(),
        len(job.images),
        now - job.arrived,
        job.began - job.arrived,
        job.batch,
        brief.done,
        brief.why,
        brief.shift,
        brief.remembered,
        brief.predicted,
        outcome.reset,
        thumbnail,
    )
