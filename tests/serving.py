"""A server for tests: in a thread of this process, with a small network, and plain HTTP to call it."""

import http.client
import json
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
import uvicorn
from fastapi import APIRouter
from networks import tiny

from covshift import Live, Model, Policy, Preprocess, Source
from covshift.serve.app import make_app
from covshift.serve.backend import Backend
from covshift.serve.run import config_of
from covshift.serve.service import Service
from covshift.serve.settings import Settings
from covshift.serve.stores.base import MemoryStore, Store

SIDE = 12


def tiny_model() -> Model:
    preprocess = Preprocess(SIDE, SIDE, "bilinear", (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
    return Model("py:networks:tiny", tiny(dtype=torch.float32), preprocess)


@dataclass
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Served:
    """A running server: its service, and requests to it."""

    service: Any
    port: int

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def request(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            connection.request(method, path, body, dict(headers or {}))
            answer = connection.getresponse()
            return Answer(answer.status, {key.lower(): value for key, value in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def infer(self, images: np.ndarray, camera: object = None, **parameters: object) -> Answer:
        tensor = {"name": "images", "shape": list(images.shape), "datatype": "FP32", "data": images.ravel().tolist()}
        given = parameters if camera is None else {"sequence_id": camera, **parameters}
        body = json.dumps({"inputs": [tensor], "parameters": given}).encode()
        return self.request("POST", "/v2/models/model/infer", body)


@contextmanager
def serving(
    settings: Settings | None = None,
    *,
    policy: Policy | None = None,
    store: Store | None = None,
    model: Model | None = None,
    source: Source | None = None,
    period: float = 0.05,
    extras: Callable[[Service], Sequence[APIRouter]] = lambda service: (),
) -> Iterator[Served]:
    """A server for the length of a block."""
    service = Service(
        model or tiny_model(), policy or Live(), store or MemoryStore(), settings or Settings(delay=0.0), source=source
    )
    service.writer._period = period
    with running(service, extras(service)) as served:
        yield served


@contextmanager
def running(service: Backend, extras: Sequence[APIRouter] = ()) -> Iterator[Served]:
    """The server of whatever answers, for the length of a block."""
    server = uvicorn.Server(config_of(make_app(service, extras)))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started and thread.is_alive():
        time.sleep(0.01)
    assert server.started, "the server does not start"
    try:
        yield Served(service, server.servers[0].sockets[0].getsockname()[1])
    finally:
        service.stopping.set()  # as the server of `covshift serve` does, so that open pages end
        server.should_exit = True
        thread.join(60)
        assert not thread.is_alive(), "the server does not stop"


class Client:
    """A camera that sends its frames, one after the other, on one connection."""

    def __init__(self, port: int, name: str) -> None:
        self.name = name
        self.answered: list[float] = []
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)

    def send(self, frame: np.ndarray) -> dict[str, object]:
        tensor = {"name": "images", "shape": [1, 3, 32, 32], "datatype": "FP32"}
        tensor["parameters"] = {"binary_data_size": frame.nbytes}
        head = json.dumps({"inputs": [tensor], "parameters": {"sequence_id": self.name}}).encode()
        headers = {"Inference-Header-Content-Length": str(len(head))}
        self.connection.request("POST", "/v2/models/model/infer", head + frame.tobytes(), headers)
        answer = self.connection.getresponse()
        content = answer.read()
        assert answer.status == 200, content
        self.answered.append(time.monotonic())
        return json.loads(content)


@contextmanager
def redis_server() -> Iterator[str]:
    """A Redis of our own at a socket in a folder, for the length of a block."""
    if shutil.which("redis-server") is None:
        pytest.skip("redis-server is not installed; apt-get install redis-server does")
    with tempfile.TemporaryDirectory() as folder:
        url = f"unix://{folder}/redis?db=0"
        with restarted_redis(url):
            yield url


@contextmanager
def restarted_redis(url: str) -> Iterator[None]:
    """Redis, without any data, at a URL that `redis_server` gave."""
    path = url.removeprefix("unix://").partition("?")[0]
    options = ["--port", "0", "--unixsocket", path, "--save", "", "--appendonly", "no"]
    process = subprocess.Popen(["redis-server", *options], stdout=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 60
        while not _listens(path):
            assert process.poll() is None, "Redis does not start"
            assert time.monotonic() < until, "Redis does not start"
            time.sleep(0.02)
        yield
    finally:
        process.kill()
        process.wait()


def _listens(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(path) == 0
