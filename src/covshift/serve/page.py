"""The live page: its files, its events, metrics, and the dashboard for Grafana."""

import asyncio
import base64
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from importlib.metadata import version
from importlib.resources import files
from typing import Any, TypeVar
from weakref import WeakSet

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import StreamingResponse
from prometheus_client import CONTENT_TYPE_LATEST

from covshift.serve.alarms import Kind
from covshift.serve.answers import REFUSED, service_of
from covshift.serve.backend import Backend
from covshift.serve.board import Board, Seen
from covshift.serve.metrics import Metrics
from covshift.serve.protocol import to_json
from covshift.serve.refusals import Busy
from covshift.serve.security import check_token

VIEWERS = 32
"""Number of open pages, at most."""

_PERIOD, _ALIVE = 0.5, 15.0  # seconds between two messages, and between two signs of life
_TOGETHER = 40  # cameras in a message
Item = TypeVar("Item")
_FILES = files("covshift.serve") / "assets"


async def needs_view(request: Request) -> None:
    """Refuse a request with neither the token for inference nor that for control; where all may infer, all may look."""
    settings = service_of(request).settings
    if settings.token is not None:
        check_token(request, settings.token, settings.control)


def make_router(service: Backend, board: Board, metrics: Metrics, limits: Mapping[Kind, float]) -> APIRouter:
    """Return the routes of the live page and of metrics.

    Args:
        service: the service that is watched.
        board: what is known of its cameras.
        metrics: its metrics.
        limits: the limits that alarms are raised beyond, which the page draws.
    """
    router = APIRouter(tags=["Watch"], responses=REFUSED)
    may_view = [Depends(needs_view)]
    viewers: WeakSet[AsyncIterator[bytes]] = WeakSet()  # also without those whose client left before the first message

    @router.get("/", response_class=Response)
    async def page() -> Response:
        """Return the live page."""
        return _file("index.html", "text/html")

    @router.get("/page.css", response_class=Response, include_in_schema=False)
    async def style() -> Response:
        return _file("page.css", "text/css")

    @router.get("/page.js", response_class=Response, include_in_schema=False)
    async def script() -> Response:
        return _file("page.js", "text/javascript")

    @router.get("/grafana.json", response_class=Response)
    async def dashboard() -> Response:
        """Return a dashboard for Grafana, to import there."""
        return _file("dashboard.json", "application/json")

    @router.get("/metrics", response_class=Response, dependencies=may_view)
    async def scrape() -> Response:
        """Return metrics in Prometheus's text format."""
        return Response(metrics.text(), media_type=CONTENT_TYPE_LATEST)

    @router.get("/v1/events", response_class=StreamingResponse, dependencies=may_view)
    async def events() -> Response:
        """Return the cameras and, as server-sent events, what changes."""
        if len(viewers) >= VIEWERS:
            raise Busy(f"{VIEWERS} pages are open already; close one", retry=5)
        messages = _messages(service, board, limits)
        viewers.add(messages)
        return StreamingResponse(messages, media_type="text/event-stream")

    return router


def _file(name: str, kind: str) -> Response:
    return Response((_FILES / name).read_bytes(), media_type=kind)


async def _messages(service: Backend, board: Board, limits: Mapping[Kind, float]) -> AsyncIterator[bytes]:
    """Yield all cameras with their histories, and from then on those that have changed.

    Nothing waits for a slow page: it is told less often, and then the last of each camera.
    """
    yield _message("hello", {"model": service.settings.name, "version": version("covshift"), "limits": limits})
    async for message in _all(service, board):
        yield message
    told, last, quiet = set(board), board.version, 0.0
    while not service.stopping.is_set():
        await asyncio.sleep(_PERIOD)
        board.keep(service.cameras.__contains__)
        changed, before, last = list(board.since(last)), last, board.version
        for some in _parts(changed):
            yield _message("cameras", {"cameras": [_described(*each, before) for each in some]})
        told.update(name for name, _ in changed)
        if gone := [name for name in told if name not in service.cameras]:
            told.difference_update(gone)
            yield _message("gone", {"cameras": gone})
        quiet = 0.0 if changed or gone else quiet + _PERIOD
        if quiet >= _ALIVE:
            quiet = 0.0
            yield b": alive\n\n"


async def _all(service: Backend, board: Board) -> AsyncIterator[bytes]:
    """Yield all cameras: those on the board with their histories, then those that have not been seen yet."""
    listed = list(await asyncio.to_thread(service.cameras.listed))
    board.keep(service.cameras.__contains__)
    for some in _parts(list(board.since(0))):
        yield _message("cameras", {"cameras": [_described(*each, 0, history=True) for each in some]})
        await asyncio.sleep(0)  # others have their turn
    for names in _parts([name for name in listed if name not in board]):
        yield _message("cameras", {"cameras": [{"camera": name, "state": "stored"} for name in names]})
    yield _message("only", {"cameras": listed})


def _parts(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    for start in range(0, len(items), _TOGETHER):
        yield items[start : start + _TOGETHER]


def _message(kind: str, value: object) -> bytes:
    return b"event: " + kind.encode() + b"\ndata: " + to_json(value) + b"\n\n"


def _described(name: str, seen: Seen, before: int, *, history: bool = False) -> dict[str, Any]:
    """Return what the page shows of a camera; its picture only if it is newer than a version of the board."""
    last, predicted = seen.last, seen.last.predicted
    described: dict[str, Any] = {
        "camera": name,
        "state": last.done,
        "why": last.why,
        "time": round(last.time, 2),
        "shift": _rounded(last.shift),
        "error": None if predicted is None else [_rounded(v) for v in (predicted.error, predicted.low, predicted.high)],
        "images": seen.images,
        "remembered": round(last.remembered),
        "resets": seen.resets,
        "alarms": list(seen.alarms.values()),
    }
    if seen.picture is not None and seen.pictured > before:
        described["picture"] = base64.b64encode(seen.picture).decode()
    if history:
        described["history"] = seen.history.points
    return described


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
