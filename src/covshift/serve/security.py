"""Who may send what: tokens, the names of hosts, requests from other websites, sizes and rates."""

import asyncio
import hmac
import math
import time
from collections import Counter, OrderedDict

from fastapi import Request
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from covshift.serve.protocol import to_json
from covshift.serve.refusals import Refusal, TooLarge
from covshift.serve.settings import Limits

_CLIENTS = 10_000  # whose rates are remembered

_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'"),
)


class Doorkeeper:
    """Middleware that refuses requests under a foreign name, from other websites, or compressed.

    A website that is open in a browser on the same machine could otherwise send requests to the server.

    Args:
        app: the application behind it.
        hosts: the names by which the server may be called; None for any.
        refused: where requests that are answered with an error are counted, by status.
    """

    def __init__(self, app: ASGIApp, hosts: tuple[str, ...] | None, refused: Counter[int]) -> None:
        self._app = app
        self._hosts = hosts
        self._refused = refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it; every answer gets the headers of a careful server."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = {name for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *(each for each in _HEADERS if each[0] not in own)]
                if message["status"] >= 400:
                    self._refused[message["status"]] += 1
            await send(message)

        problem = self._problem(Headers(scope=scope), scope["method"])
        if problem is None:
            await self._app(scope, receive, send_with_headers)
            return
        status, text = problem
        content = to_json({"error": text})
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
        await send_with_headers({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": content})

    def _problem(self, headers: Headers, method: str) -> tuple[int, str] | None:
        host = headers.get("host", "")
        if self._hosts is not None and _without_port(host) not in self._hosts:
            return 403, "expected a name of this server in Host; start it with --allow-host for another one"
        origin = headers.get("origin")
        if origin is not None and method not in ("GET", "HEAD") and origin.rpartition("://")[2] != host:
            return 403, "requests from other websites are refused"
        if headers.get("content-encoding", "identity") != "identity":
            return 415, "expected a body that is not compressed"
        return None


def _without_port(host: str) -> str:
    name, _, port = host.rpartition(":")
    return name if name and port.isdecimal() else host


def check_token(request: Request, *tokens: str | None) -> None:
    """Raise a `Refusal` unless a request has one of these bearer tokens, or none is asked for."""
    wanted = [token for token in tokens if token]
    if not wanted:
        return
    kind, _, given = request.headers.get("authorization", "").partition(" ")
    offered = given.strip().encode("latin-1")  # the bytes that came
    # All are compared, in constant time, so that the time taken says nothing.
    matches = [hmac.compare_digest(offered, token.encode()) for token in wanted]
    if kind.lower() != "bearer" or not any(matches):
        raise Refusal("expected a valid bearer token in Authorization", status=401)


async def read_body(request: Request, limits: Limits) -> bytes:
    """Return the body of a request, or raise a `Refusal` if it is too large or comes too slowly."""
    refusal = TooLarge(f"expected a body of at most {limits.body} bytes")
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length[:20]) > limits.body:
        raise refusal
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(limits.patience):
            async for chunk in request.stream():
                chunks.append(chunk)
                size += len(chunk)
                if size > limits.body:
                    raise refusal
    except TimeoutError:
        raise Refusal(f"expected the whole body within {limits.patience:g} seconds", status=408) from None
    return b"".join(chunks)


class Rates:
    """Limits how many images per second a client sends, with some more at once after a pause.

    >>> rates = Rates(10)
    >>> rates.spend("client", 20)
    >>> rates.spend("client", 20)
    Traceback (most recent call last):
    covshift.serve.refusals.Refusal: expected at most 10 images per second from a client; try again later
    """

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        self._clients: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def spend(self, client: str, images: int) -> None:
        """Count the images of a request, or raise a `Refusal` if they are too many."""
        if self._rate is None:
            return
        now, most = time.monotonic(), max(2 * self._rate, 1.0)
        left, last = self._clients.pop(client, (most, now))
        left = min(most, left + (now - last) * self._rate)
        # A request may be larger than all that is allowed at once; it is then paid for afterwards.
        allowed = left >= min(images, most)
        self._clients[client] = (left - images if allowed else left, now)
        while len(self._clients) > _CLIENTS:
            self._clients.popitem(last=False)
        if not allowed:
            retry = math.ceil((min(images, most) - left) / self._rate)
            text = f"expected at most {self._rate:g} images per second from a client; try again later"
            raise Refusal(text, status=429, retry=retry)
