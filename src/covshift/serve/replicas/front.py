"""The front of replicas: what the routes of the server take for its service."""

import asyncio
import time
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, TypeVar

from torch import Tensor

from covshift.models.preprocess import Preprocess
from covshift.serve.backend import Backend, Outcome
from covshift.serve.brief import Brief
from covshift.serve.replicas.placing import Ask, Placing
from covshift.serve.replicas.replica import Known
from covshift.serve.settings import Settings
from covshift.support.errors import CovshiftError

Result = TypeVar("Result")


class Front(Backend):
    """Has requests answered by the replicas of their cameras.

    Args:
        settings: how requests are batched, and what is refused; limits on what waits or is in memory are for each
            replica.
        replicas: the names of the replicas.
        ask: calls a method of a replica.
        lost: the errors of `ask` that mean that the replica is lost.
        predicts: whether errors are predicted.
    """

    def __init__(
        self,
        settings: Settings,
        replicas: list[str],
        ask: Ask,
        lost: tuple[type[Exception], ...],
        *,
        predicts: bool = False,
    ) -> None:
        super().__init__(settings, predicts=predicts)
        self.placing = Placing(replicas, ask, lost, 2 * settings.limits.cameras)
        self._cameras = RemoteCameras(self.placing)
        self._known: Known | None = None

    async def start(self) -> None:
        """Wait for a replica, and ask it what the model is like."""
        self.placing.start()
        while not self.placing.up:
            await asyncio.sleep(0.05)
        self._known = await self.placing.call(None, "describe")
        self.cameras.start(self._known.names)
        self.ready = True

    async def finish(self) -> None:
        """End; the replicas save their cameras by themselves."""
        await self.placing.stop()

    @property
    def cameras(self) -> "RemoteCameras":
        """The cameras of all replicas."""
        return self._cameras

    @property
    def sample(self) -> tuple[int, int | None, int | None]:
        """The shape of one image of the model's input; None where any size will do."""
        return self._model.sample

    @property
    def classes(self) -> int:
        """The number of classes of the model."""
        return self._model.classes

    @property
    def preprocess(self) -> Preprocess:
        """What turns pictures into the model's input."""
        return self._model.preprocess

    @property
    def waiting(self) -> int:
        """The number of images that waited for a forward pass a moment ago."""
        return self.placing.counts.waiting

    @property
    def _model(self) -> Known:
        assert self._known is not None, "the front has not been started"
        return self._known

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
        began = time.perf_counter()
        outcome: Outcome = _unless_refused(
            await self.placing.call(camera, "answer", images.numpy(), camera, start, end)
        )
        if camera is not None:
            self.cameras.note(camera, gone=end)
        assert outcome.event is not None
        self.feed.publish(replace(outcome.event, latency=time.perf_counter() - began, thumbnail=thumbnail))
        return outcome


class RemoteCameras:
    """The cameras of all replicas; its methods are those of `Cameras`, and called from threads."""

    def __init__(self, placing: Placing) -> None:
        self._placing = placing
        self._known: set[str] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self, names: list[str]) -> None:
        """Begin with the cameras in the store."""
        self._loop = asyncio.get_running_loop()
        self._known = set(names)

    def note(self, name: str, *, gone: bool = False) -> None:
        """Note that a camera is there, or not any more."""
        (self._known.discard if gone else self._known.add)(name)

    def reset(self, name: str) -> None:
        """Have a camera forget what it has seen."""
        self._control(name, "reset")

    def freeze(self, name: str, frozen: bool = True) -> None:
        """Keep what a camera remembers as it is, or let it follow again."""
        self._control(name, "freeze", frozen)

    def save(self, name: str) -> bytes:
        """Return the state of a camera as the content of a file that `Statistics.load` reads."""
        content: bytes = self._control(name, "save")
        return content

    def load(self, name: str, content: bytes) -> None:
        """Let a camera resume from the content of a file that `Statistics.save` wrote; makes it if it is new."""
        self._control(name, "load", content)
        self.note(name)

    def forget(self, name: str) -> None:
        """Remove a camera, from memory and from the store."""
        self._control(name, "forget")
        self.note(name, gone=True)

    def listed(self) -> dict[str, Brief | None]:
        """Return what is done for each camera, by name; None for those in the store only."""
        return self._wait(self._listed())

    async def _listed(self) -> dict[str, Brief | None]:
        placing = self._placing
        lists = await placing.call_all("control", "listed")
        return {
            name: lists.get(placing.replica_of(name) or "", {}).get(name)  # others may have had it before
            for name in sorted(self._known)
        }

    def __contains__(self, name: object) -> bool:
        return name in self._known

    def __len__(self) -> int:
        return len(self._known)

    @property
    def resident(self) -> int:
        """The number of cameras in memory a moment ago."""
        return self._placing.counts.resident

    def _control(self, name: str, action: str, *arguments: Any) -> Any:
        return _unless_refused(self._wait(self._placing.call(name, "control", action, name, *arguments)))

    def _wait(self, doing: Coroutine[Any, Any, Result]) -> Result:
        assert self._loop is not None, "the front has not been started"
        return asyncio.run_coroutine_threadsafe(doing, self._loop).result()


def _unless_refused(result: Any) -> Any:
    if isinstance(result, CovshiftError):
        raise result
    return result
