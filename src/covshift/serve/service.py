"""The service behind the server: cameras, batches, the store and events, whatever brings the requests."""

import asyncio
import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from covshift.core.fleet import Camera, Fleet
from covshift.core.policies import Policy
from covshift.core.source import Source
from covshift.models.base import Model
from covshift.models.preprocess import Preprocess
from covshift.serve.backend import Backend, Outcome
from covshift.serve.batcher import Batcher, Job
from covshift.serve.brief import Moment, brief_of
from covshift.serve.cameras import Cameras
from covshift.serve.events import Answered, Predicted
from covshift.serve.refusals import Refusal
from covshift.serve.settings import Settings
from covshift.serve.stores import Store
from covshift.serve.writer import Writer
from covshift.support.errors import CovshiftError

_PASSES = 4  # that run at once if nothing else is asked for; with more, they wait for each other's interpreter

Predict = Callable[[Camera, Tensor], Predicted | None]
"""Predicts the error on the images of a camera from what it remembers and from its last logits."""


class _Passed(NamedTuple):
    """What the thread of the model leaves of a request; the rest is done while the next pass runs."""

    logits: Tensor
    moment: Moment
    predicted: Predicted | None


class Service(Backend):
    """Answers requests of many cameras with one model.

    Args:
        model: the model, with its preprocessing.
        policy: how cameras are followed.
        store: where their states are kept.
        settings: how requests are batched, and what is refused.
        source: what clean images look like inside of the model.
        predict: predicts the error on the images of a camera; None if nothing can be said about it.
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
        super().__init__(settings, predicts=predict is not None)
        self.model = model
        self._classes, self._side = model.classes, model.side  # asked for while the model can still be called
        for layer in model.module.modules():
            if isinstance(layer, nn.Conv2d):  # which would rearrange its images for every pass otherwise
                layer.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        passes, threads = shares(settings, torch.get_num_threads())
        self.fleet = fleet = Fleet(model, policy, source=source, passes=passes)
        self._cameras = Cameras(fleet, store, settings.limits)
        self.writer = Writer(self._cameras)
        self._store = store
        self._predict = predict
        prepare = partial(torch.set_num_threads, threads)
        self._batcher: Batcher[_Passed] = Batcher(
            self._run, settings.batch, settings.delay, settings.limits.queue, fleet.passes, prepare
        )
        self._numbers = itertools.count()

    @property
    def cameras(self) -> Cameras:
        """The cameras in memory and in the store."""
        return self._cameras

    @property
    def classes(self) -> int:
        """The number of classes of the model."""
        return self._classes

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

    async def start(self) -> None:
        """Warm up the model, then begin to answer."""
        self._batcher.start()
        self.writer.start()
        for images in (1, self.settings.batch):
            await asyncio.gather(*(self._warm_up(images) for _ in range(self.fleet.passes)))
        self.ready = True

    async def _warm_up(self, images: int) -> None:
        """Run the model once."""
        await self._answer(Job(self._nameless(), torch.zeros(images, 3, self._side, self._side)))

    async def finish(self) -> None:
        """Answer what still waits, save all cameras, and release the store."""
        await self._batcher.stop()
        await asyncio.to_thread(self.writer.stop)
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
        """Return the logits for images of a camera, and what was done for it; the arguments are those of `Backend`."""
        name = self._nameless() if camera is None else camera
        job: Job[_Passed] = Job(name, images, start)
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

    async def _answer(self, job: Job[_Passed]) -> Outcome:
        try:
            return self._outcome(job, await self._batcher.submit(job))
        finally:
            if job.camera.startswith(" "):
                self.fleet.forget(job.camera)

    def _nameless(self) -> str:
        """Return the name of a camera that no client can have."""
        return f" {next(self._numbers)}"

    def _run(self, jobs: Sequence[Job[_Passed]]) -> list[_Passed | Exception]:
        """Answer jobs of different cameras in one forward pass."""
        cameras = [self.fleet.add(job.camera) for job in jobs]
        for job, camera in zip(jobs, cameras, strict=True):
            if job.start:
                camera.reset()
        answers = self.fleet.answer({job.camera: job.images for job in jobs})
        moments = Moment.of_all(cameras, self.fleet)
        return [self._passed(*each) for each in zip(cameras, answers.values(), moments, strict=True)]

    def _passed(self, camera: Camera, answer: Tensor | CovshiftError, moment: Moment) -> _Passed | Exception:
        if isinstance(answer, CovshiftError):
            return Refusal(str(answer))
        return _Passed(answer, moment, self._predict and self._predict(camera, answer))

    def _outcome(self, job: Job[_Passed], passed: _Passed) -> Outcome:
        logits = passed.logits.float().cpu().numpy()
        if not np.isfinite(logits).all():
            raise Refusal("the model's answer to these images is not finite; check them")
        brief = brief_of(self.fleet, passed.moment, passed.predicted)
        return Outcome(logits, brief, job.start or brief.done == "reset")


def shares(settings: Settings, cores: int) -> tuple[int, int]:
    """Return the number of passes that run at once, and of the threads of each, on so many cores.

    A pass on several threads waits at every layer for the last of them, which may have to share its core with HTTP;
    passes on one thread each wait for nothing.

    >>> shares(Settings(), 2), shares(Settings(), 16), shares(Settings(threads=2), 2), shares(Settings(passes=1), 2)
    ((2, 1), (4, 4), (1, 2), (1, 2))
    """
    passes = settings.passes or max(1, min(_PASSES, cores // (settings.threads or 1)))
    return passes, settings.threads or max(1, cores // passes)


def _event(camera: str, job: Job[_Passed], outcome: Outcome, thumbnail: bytes | None) -> Answered:
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
