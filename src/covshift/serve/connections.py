"""Connections to the server: how large the head of a request may be, and how long it may take to come."""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD = 64 << 10
"""Bytes of the head of a request, at most."""

MOST = 4096
"""Number of connections, at most."""

_FILES = 256  # that are open besides


class Connection(HttpToolsProtocol):
    """A connection that is closed if the head of a request is too long or does not come in time.

    uvicorn itself would wait for it without end, and keep all of it in memory.

    Attributes:
        patience: seconds for the head of a request, from its first byte on, and for the first one of a connection.
    """

    patience = 30.0

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._deadline: asyncio.TimerHandle | None = None
        self._head = 0  # bytes, of a request whose head is not complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Read what came; what is not the whole head of a request has to be completed in time."""
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._wait_no_more()
            return
        self._head += len(data)
        self._wait()
        if self._head > HEAD and not self.transport.is_closing():
            self.send_400_response(f"expected at most {HEAD} bytes before the body of a request")

    def connection_lost(self, exc: Exception | None) -> None:
        """Release what belongs to the connection."""
        self._wait_no_more()
        super().connection_lost(exc)

    def _wait(self) -> None:
        if self._deadline is None and not self.transport.is_closing():
            self._deadline = self.loop.call_later(self.patience, self.transport.close)

    def _wait_no_more(self) -> None:
        self._head = 0
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def allow_connections() -> None:
    """Allow this process as many open files as `MOST` connections need, if the system lets it."""
    try:
        import resource
    except ImportError:  # not a system with such limits
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST + _FILES if hard == resource.RLIM_INFINITY else min(MOST + _FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
