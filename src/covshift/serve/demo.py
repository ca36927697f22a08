"""A demonstration: three cameras of built-in images, two of which run into fog and out of it again."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.resources import files
from itertools import count
from typing import Any

import numpy as np
from fastapi import APIRouter
from numpy.typing import NDArray

from covshift.data.open import open_data
from covshift.serve.alarms import DAY, Rules
from covshift.serve.pictures import thumbnail
from covshift.serve.refusals import Busy
from covshift.serve.service import Service

MODEL, DATA = "builtin:resnet20", "builtin:cifar10"
"""What is served and what the cameras show."""

SHOWN: dict[str, Any] = {"limit": 300, "order": "shuffled", "seed": 1}
"""The choice of images that the cameras show, as `Data.pixels` takes it."""

FOG = "fog/5"
CYCLE = 600
"""Number of frames after which a camera is in the same weather again."""

PREDICTOR = str(files("covshift.serve") / "assets" / "demo.predictor")
"""The predictor of its errors, which was fitted on other images than the cameras show."""

RULES = Rules(shift=0.06, days=300 / DAY)
"""The alarm: quick, since nobody wants to wait, and so with a false one every five minutes, at most."""

_FRAMES = 12.0  # of a camera in a second
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Scene:
    """A camera of the demonstration.

    Attributes:
        camera: its name.
        start: the frame of the cycle at which fog comes.
        stop: the frame at which it goes.
    """

    camera: str
    start: int = 0
    stop: int = 0

    def foggy(self, frame: int) -> bool:
        """Return whether there is fog in a frame.

        >>> [Scene("gate", 180, 420).foggy(frame) for frame in (0, 180, 420, CYCLE + 180)]
        [False, True, False, True]
        """
        return self.start <= frame % CYCLE < self.stop


SCENES = (Scene("gate", 150, 420), Scene("harbour"), Scene("tower", 300, 570))


class Demo:
    """Cameras that send the same images again and again, clean or in fog.

    Args:
        service: the service that answers.
        clean: the images, uint8 NHWC.
        foggy: the same images in fog.
        scenes: the cameras.
        frames: frames of each camera in a second, at most.
    """

    def __init__(
        self,
        service: Service,
        clean: NDArray[np.uint8],
        foggy: NDArray[np.uint8],
        scenes: Sequence[Scene] = SCENES,
        frames: float = _FRAMES,
    ) -> None:
        self._service, self._scenes, self._pause = service, scenes, 1 / frames
        self._weather = {False: clean, True: foggy}

    async def run(self) -> None:
        """Send frames until cancelled, or until the service stops."""
        for frame in count():
            if self._service.stopping.is_set():
                return
            began = time.monotonic()
            # Images come one after the other, from another place for each camera.
            await asyncio.gather(*(self._send(scene, frame, place) for place, scene in enumerate(self._scenes)))
            await asyncio.sleep(max(self._pause - (time.monotonic() - began), 0.001))

    async def _send(self, scene: Scene, frame: int, place: int) -> None:
        pixels = self._weather[scene.foggy(frame)]
        image = pixels[(frame + place * len(pixels) // len(self._scenes)) % len(pixels)]
        small = thumbnail(image) if self._service.settings.thumbnails else None
        try:
            inputs = self._service.preprocess.tensor(image[None])
            await self._service.answer(inputs, scene.camera, thumbnail=small)
        except Busy:
            _log.info("a frame of the demonstration was left out: the server is busy")


def open_demo(service: Service) -> APIRouter:
    """Return a router without routes, which runs the demonstration as long as its application."""
    data = open_data(DATA)
    clean = data.pixels(service.model, **SHOWN).images
    foggy = data.pixels(service.model, condition=FOG, **SHOWN).images
    return running(Demo(service, clean, foggy))


def running(demo: Demo) -> APIRouter:
    """Return a router without routes, which runs a demonstration as long as its application."""

    @asynccontextmanager
    async def lifespan(app: object) -> AsyncIterator[None]:
        task = asyncio.create_task(demo.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    return APIRouter(lifespan=lifespan)
