"""Runs the server until it is told to stop."""

import gc
import signal
import socket
import sys
from collections.abc import Callable
from types import FrameType

import uvicorn
from fastapi import FastAPI

from covshift.serve.backend import Backend
from covshift.serve.connections import MOST, Connection, allow_connections
from covshift.support.errors import CovshiftError

_SWITCH = 2e-5  # seconds that a thread keeps the interpreter while another one waits for it
_DRAIN = 20  # seconds for requests that are being answered when the server is told to stop


class Server(uvicorn.Server):
    """A server that tells its service at once when it is to stop, so that streams of events end."""

    def __init__(self, config: uvicorn.Config, service: Backend) -> None:
        super().__init__(config)
        self._service = service

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to serve; Python then leaves all objects alone that stay, such as modules and the model.

        To look for garbage among these takes a quarter of a second, in which no request is answered.
        """
        await super().startup(sockets)
        gc.collect()
        gc.freeze()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to stop: no new connections, and readiness ends. The second Ctrl-C does not wait for requests."""
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True  # without a note of the signal, which would end the process by it
        self._service.ready = False
        self._service.stopping.set()


def serve(
    app: FastAPI, host: str = "127.0.0.1", port: int = 8000, announce: Callable[[str], object] | None = None
) -> None:
    """Serve an application until SIGTERM or Ctrl-C; requests that came before are answered, and cameras saved.

    Args:
        app: what `make_app` returned.
        host: the address to listen on.
        port: the port; 0 for any that is free.
        announce: called with the address of the server before it starts.
    """
    service: Backend = app.state.service
    allow_connections()
    # The thread of the model needs the interpreter for moments only, and would wait this long for each of them.
    sys.setswitchinterval(_SWITCH)
    listener = _bind(host, port)
    if announce is not None:
        name = f"[{host}]" if ":" in host else host
        announce(f"http://{name}:{listener.getsockname()[1]}")
    Server(config_of(app), service).run(sockets=[listener])


def config_of(app: FastAPI) -> uvicorn.Config:
    """Return how uvicorn is to run an application."""
    return uvicorn.Config(
        app,
        port=0,
        http=Connection,
        ws="none",
        log_level="warning",
        server_header=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=_DRAIN,
        limit_concurrency=MOST,
    )


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise CovshiftError(
            f"cannot listen on {host}, port {port}: {error.strerror}; choose another address or port"
        ) from error
    return listener
