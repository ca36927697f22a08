"""The application of the server: its routes, its errors, and how it starts and ends."""

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import version

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from covshift.serve import control, images, inference
from covshift.serve.answers import json_answer, needs_inference, refuse
from covshift.serve.backend import Backend
from covshift.serve.refusals import Refusal
from covshift.serve.security import Doorkeeper, Rates
from covshift.support.errors import CovshiftError

_log = logging.getLogger(__name__)


def make_app(service: Backend, extras: Sequence[APIRouter] = ()) -> FastAPI:
    """Return the application that answers for a service.

    Args:
        service: what answers; it is started and stopped with the application.
        extras: further routes.
    """

    @asynccontextmanager
    async def running(app: FastAPI) -> AsyncIterator[None]:
        await service.start()
        try:
            yield
        finally:
            await service.stop()

    app = _Application(
        title="covshift",
        version=version("covshift"),
        description="An inference server whose model follows each camera.",
        docs_url=None,  # these pages would be fetched from elsewhere
        redoc_url=None,
        lifespan=running,
    )
    app.state.service = service
    app.state.rates = Rates(service.settings.limits.rate)
    name = service.settings.name
    express = Express(app.routed, app, f"/v2/models/{name}/infer", name)
    app.entrance = Doorkeeper(express, service.settings.hosts, service.refused)
    for router in (inference.router, images.router, control.router, *extras):
        app.include_router(router)
    for kind in (CovshiftError, HTTPException, RequestValidationError, ClientDisconnect, Exception):
        app.add_exception_handler(kind, _explain)
    return app


class _Application(FastAPI):
    """An application whose middleware is in front of all that FastAPI itself wraps around routes.

    Attributes:
        entrance: the middleware that every request goes through first, to end at `routed`.
    """

    entrance: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        await self.entrance(scope, receive, send)

    async def routed(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request by the routes."""
        await super().__call__(scope, receive, send)


class Express:
    """Middleware that answers requests for inference itself, since routing them takes as long as all else done for one.

    Args:
        routed: answers all others.
        app: the application, which has the same route, and describes it.
        path: the path of these requests.
        name: the name of the model.
    """

    def __init__(self, routed: ASGIApp, app: FastAPI, path: str, name: str) -> None:
        self._routed, self._app, self._path, self._name = routed, app, path, name

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        if scope["type"] != "http" or scope["path"] != self._path or scope["method"] != "POST":
            await self._routed(scope, receive, send)
            return
        scope["app"] = self._app
        request = Request(scope, receive, send)
        try:
            await needs_inference(request)
            answer = await inference.infer(request, self._name)
        except Exception as error:
            answer = await _explain(request, error)
        await answer(scope, receive, send)


async def _explain(request: Request, error: Exception) -> Response:
    """Return the answer to a request that has failed."""
    if isinstance(error, CovshiftError):
        return refuse(error if isinstance(error, Refusal) else Refusal(str(error)))
    if isinstance(error, HTTPException):
        return json_answer({"error": str(error.detail)}, error.status_code, error.headers)
    if isinstance(error, RequestValidationError):
        problems = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        return json_answer({"error": problems}, 400)
    if isinstance(error, ClientDisconnect):
        return json_answer({"error": "the client went away"}, 400)
    _log.error("a request failed", exc_info=error)
    return json_answer({"error": "internal error"}, 500)
