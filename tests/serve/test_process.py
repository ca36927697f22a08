"""The server as a process: killed in the middle of load and started again, or told to stop."""

import http.client
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from serving import Client

import covshift
from covshift import Stream
from covshift.serve.build import build
from covshift.serve.settings import Settings

CAMERAS = ("gate", "yard", "roof")


@contextmanager
def process(folder: Path) -> Iterator[tuple["subprocess.Popen[str]", int]]:
    """`covshift serve` on a free port, warm."""
    command = [sys.executable, "-m", "covshift", "serve", "--model", "builtin:resnet20", "--policy", "stream"]
    command += ["--port", "0", "--threads", "1", "--delay", "1", "--state", str(folder / "cameras.sqlite")]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert server.stderr is not None
        line = server.stderr.readline()
        port = int(re.search(r"http://127\.0\.0\.1:(\d+)", line)[1])
        while _get(port, "/v2/health/ready") != 200:
            assert server.poll() is None
            time.sleep(0.05)
        yield server, port
    finally:
        server.kill()
        server.wait()
        server.stderr.close()


def _get(port: int, path: str) -> int | None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except OSError:
        return None
    finally:
        connection.close()


class Camera(Client):
    """A client that goes on until the server is gone."""

    def run(self, until: threading.Event) -> None:
        """Send frames until the server is gone, or `until` is set."""
        try:
            for number in range(10_000):
                if until.is_set():
                    return
                self.send(frame_of(self.name, number))
        except (OSError, http.client.HTTPException):
            return


def frame_of(camera: str, number: int) -> np.ndarray:
    generator = np.random.default_rng([CAMERAS.index(camera), number])
    return (generator.normal(size=(1, 3, 32, 32)) + CAMERAS.index(camera)).astype(np.float32)


def under_load(port: int, frames: int, stop: signal.Signals, server: "subprocess.Popen[str]") -> dict[str, Camera]:
    """Stop the server while all cameras send, after each has had some answers and a second has passed."""
    clients, until = {name: Camera(port, name) for name in CAMERAS}, threading.Event()
    threads = [threading.Thread(target=client.run, args=(until,)) for client in clients.values()]
    for thread in threads:
        thread.start()
    start = time.monotonic()
    while min(len(client.answered) for client in clients.values()) < frames or time.monotonic() < start + 1.5:
        time.sleep(0.01)
    server.send_signal(stop)
    for thread in threads:
        thread.join(120)
    server.wait(120)
    for client in clients.values():
        client.connection.close()
    return clients


def check_resumed(folder: Path, remembered: dict[str, int]) -> None:
    """The next answer of each camera is the one that it would get after just as many of its own frames."""
    model = covshift.open_model("builtin:resnet20")
    service = build("builtin:resnet20", Settings(), policy="stream", state=str(folder / "cameras.sqlite"))
    for name, number in remembered.items():
        with torch.inference_mode(), covshift.adapt(model, Stream()):
            for step in range(number + 1):
                wanted = model(torch.from_numpy(frame_of(name, step)))
        with service.cameras.held(name):
            got = service.fleet.answer({name: torch.from_numpy(frame_of(name, number))})[name]
        torch.testing.assert_close(got, wanted, rtol=0, atol=1e-4)


def kept(port: int, folder: Path) -> dict[str, int]:
    """The number of frames that each camera of a running server remembers."""
    found = {}
    for name in CAMERAS:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("GET", f"/v1/cameras/{name}/state")
        answer = connection.getresponse()
        assert answer.status == 200, "a camera was lost"
        file = folder / f"{name}.safetensors"
        file.write_bytes(answer.read())
        found[name] = round(covshift.Statistics.load(file).images)
        connection.close()
    return found


def test_a_server_that_is_told_to_stop_answers_saves_and_ends_well(tmp_path):
    with process(tmp_path) as (server, port):
        clients = under_load(port, 5, signal.SIGTERM, server)
        assert server.returncode == 0
        assert server.stderr.read() == ""
    check_resumed(tmp_path, {name: len(client.answered) for name, client in clients.items()})


@pytest.mark.slow
def test_a_killed_server_loses_a_second_at_most(tmp_path):
    with process(tmp_path) as (server, port):
        clients = under_load(port, 20, signal.SIGKILL, server)
        killed = max(client.answered[-1] for client in clients.values())
    with process(tmp_path) as (server, port):
        remembered = kept(port, tmp_path)
        server.terminate()
        server.wait(120)
    for name, client in clients.items():
        safe = sum(time < killed - 1 for time in client.answered)
        assert safe <= remembered[name] <= len(client.answered) + 1, name
    check_resumed(tmp_path, remembered)
