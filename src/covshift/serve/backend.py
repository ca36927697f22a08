"""What the routes of the server need of whatever answers: the service itself, or the front of several replicas."""

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from covshift.models.preprocess import Preprocess
from covshift.serve.brief import Brief
from covshift.serve.events import Answered, Feed
from covshift.serve.settings import Settings


@dataclass(frozen=True)
class Outcome:
    """The logits of one request, what was done for its camera, and the event that tells of it."""

    logits: NDArray[np.float32]
    brief: Brief
    reset: bool
    event: Answered | None = None


class Control(Protocol):
    """Control over cameras by their names. All methods may be called from any thread, and may wait for the store."""

    def reset(self, name: str) -> None:
        """Have a camera forget what it has seen."""

    def freeze(self, name: str, frozen: bool = True) -> None:
        """Keep what a camera remembers as it is, or let it follow again."""

    def save(self, name: str) -> bytes:
        """Return the state of a camera as the content of a file that `Statistics.load` reads."""

    def load(self, name: str, content: bytes) -> None:
        """Let a camera resume from the content of a file that `Statistics.save` wrote; makes it if it is new."""

    def forget(self, name: str) -> None:
        """Remove a camera, from memory and from the store."""

    def listed(self) -> Mapping[str, Brief | None]:
        """Return what is done for each camera, by name; None for those in the store only."""

    @property
    def resident(self) -> int:
        """The number of cameras in memory."""

    def __contains__(self, name: object) -> bool: ...

    def __len__(self) -> int: ...


class Backend(ABC):
    """Answers the requests of the server.

    Args:
        settings: how requests are batched, and what is refused.
        predicts: whether errors are predicted.

    Attributes:
        feed: the events of all requests that were answered.
        refused: the number of requests that were refused, by status.
        at_end: what is called when all is answered and saved, in a thread of its own, such as `Webhook.close`.
        ready: whether requests can be answered at once.
        stopping: set when the server is told to stop.
    """

    def __init__(self, settings: Settings, *, predicts: bool) -> None:
        self.settings, self.predicts = settings, predicts
        self.feed = Feed()
        self.refused: Counter[int] = Counter()
        self.at_end: list[Callable[[], object]] = []
        self.ready = False
        self.stopping = asyncio.Event()

    @property
    @abstractmethod
    def cameras(self) -> Control:
        """Control over cameras."""

    @property
    @abstractmethod
    def sample(self) -> tuple[int, int | None, int | None]:
        """The shape of one image of the model's input; None where any size will do."""

    @property
    @abstractmethod
    def classes(self) -> int:
        """The number of classes of the model."""

    @property
    @abstractmethod
    def preprocess(self) -> Preprocess:
        """What turns pictures into the model's input."""

    @property
    @abstractmethod
    def waiting(self) -> int:
        """The number of images that wait for a forward pass."""

    @abstractmethod
    async def start(self) -> None:
        """Begin to answer."""

    @abstractmethod
    async def finish(self) -> None:
        """Answer what still waits, and save what has to be saved."""

    async def stop(self) -> None:
        """Answer what still waits, save all cameras, and end."""
        self.ready = False
        self.stopping.set()
        await self.finish()
        for end in self.at_end:
            await asyncio.to_thread(end)

    @abstractmethod
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
