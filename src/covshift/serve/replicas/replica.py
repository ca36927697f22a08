"""A replica: the service in a process of its own, and what it is made of."""

import asyncio
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray

from covshift.models.preprocess import Preprocess
from covshift.serve.alarms import Rules
from covshift.serve.backend import Outcome
from covshift.serve.build import build
from covshift.serve.metrics import LABELLED
from covshift.serve.replicas.placing import Counts
from covshift.serve.settings import Settings
from covshift.support.errors import CovshiftError


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What a server with replicas is made of.

    Attributes:
        model: the model, as `open_model` takes it.
        state: the store of cameras that all replicas share: a file, if all are on one machine, or redis://HOST:PORT.
        replicas: the number of replicas.
        source: a file that `Source.save` wrote, or clean images; None for what the model holds.
        policy: how cameras are followed: "live", "stream", "batch" or "none".
        predictor: a file that `Predictor.save` wrote for this model; None not to predict errors.
        settings: how requests are batched, and what is refused.
        rules: when alarms are raised.
        webhook: the address that alarms are sent to; None for none.
        webhook_token: the bearer token that goes along.
        labelled: the number of cameras that have metrics of their own.
    """

    model: str
    state: str
    replicas: int = 2
    source: str | None = None
    policy: str = "live"
    predictor: str | None = None
    settings: Settings = field(default_factory=Settings)
    rules: Rules = field(default_factory=Rules)
    webhook: str | None = None
    webhook_token: str | None = field(default=None, repr=False)
    labelled: int = LABELLED

    def __post_init__(self) -> None:
        if self.replicas < 1:
            raise CovshiftError(f"expected at least 1 replica, got {self.replicas}")
        if self.rules.error is not None and self.predictor is None:
            raise CovshiftError("an alarm by the predicted error needs a predictor; give one, or a limit of the shift")
        if self.state == "memory":
            raise CovshiftError(
                "expected a store that all replicas share, got memory; name a file or redis://HOST:PORT"
            )


class Known(NamedTuple):
    """What the front has to know of the model and the store."""

    sample: tuple[int, int | None, int | None]
    classes: int
    preprocess: Preprocess
    names: list[str]


class Replica:
    """One replica. A request that is refused returns the error, so that Ray does not wrap it."""

    async def start(self, recipe: Recipe) -> None:
        """Open the model and the store, and warm up."""
        options: dict[str, Any] = {"source": recipe.source, "policy": recipe.policy, "predictor": recipe.predictor}
        options |= {"state": recipe.state, "shared": True}
        self._service = await asyncio.to_thread(build, recipe.model, recipe.settings, **options)
        await self._service.start()

    async def describe(self) -> Known:
        """Return what the front has to know of the model and the store."""
        service = self._service
        names = await asyncio.to_thread(service.cameras.store.names)
        return Known(service.sample, service.classes, service.preprocess, names)

    async def counts(self) -> Counts:
        """Return what there is to do."""
        return Counts(self._service.cameras.resident, self._service.waiting)

    async def release(self, camera: str) -> bool:
        """Write a camera to the store and forget it, and return whether another replica may take it over."""
        return await asyncio.to_thread(self._service.cameras.release, camera)

    async def answer(self, images: NDArray[Any], camera: str | None, start: bool, end: bool) -> Outcome | CovshiftError:
        """Return the outcome of a request."""
        tensor = torch.from_numpy(images.copy())  # what Ray passes cannot be written to
        try:
            # A client that goes away must not leave its camera half answered.
            return await asyncio.shield(self._service.answer(tensor, camera, start=start, end=end))
        except CovshiftError as error:
            return error

    async def control(self, action: str, *arguments: Any) -> Any:
        """Return the result of a method of `Cameras`."""
        try:
            return await asyncio.to_thread(getattr(self._service.cameras, action), *arguments)
        except CovshiftError as error:
            return error

    async def stop(self) -> None:
        """Answer what still waits, and save all cameras."""
        await self._service.stop()
