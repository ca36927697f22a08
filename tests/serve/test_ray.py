"""`covshift serve --engine ray`: a replica is killed under load; no answer is wrong, and no camera is lost."""

import http.client
import os
import re
import signal
import subprocess
import sys
import threading
import time
import uuid
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
from covshift.serve.replicas.placing import ranked
from covshift.serve.settings import Settings

pytest.importorskip("ray.serve")

_START = 300  # seconds; on an idle machine it takes about fifteen
_MARK = "COVSHIFT_TEST_MARK"
NAMES = ("Replica-0", "Replica-1")
CAMERAS = ("gate", "yard", "hall")


def frame_of(camera: str, number: int) -> np.ndarray:
    generator = np.random.default_rng([CAMERAS.index(camera), number])
    return (generator.normal(size=(1, 3, 32, 32)) + CAMERAS.index(camera)).astype(np.float32)


@contextmanager
def replicated(folder: Path) -> Iterator[tuple["subprocess.Popen[str]", int, str]]:
    """`covshift serve` with two replicas, on a free port; the mark is in the environment of all its processes."""
    command = [sys.executable, "-m", "covshift", "serve", "--model", "builtin:resnet20", "--policy", "stream"]
    command += ["--engine", "ray", "--replicas", "2", "--port", "0", "--threads", "1", "--delay", "1"]
    command += ["--state", str(folder / "cameras.sqlite")]
    mark = uuid.uuid4().hex
    log = folder / "stderr"
    with log.open("w") as stderr:
        server = subprocess.Popen(command, stderr=stderr, env={**os.environ, _MARK: mark, "SPT_NOENV": "1"})
        try:
            yield server, _port(server, log), mark
        finally:
            server.kill()  # all processes of its Ray end with it
            server.wait()


def _port(server: "subprocess.Popen[str]", log: Path) -> int:
    for _ in range(_START * 10):
        if found := re.search(r"http://127\.0\.0\.1:(\d+)", log.read_text()):
            return int(found[1])
        assert server.poll() is None, log.read_text()
        time.sleep(0.1)
    raise AssertionError(f"the server does not start: {log.read_text()}")


def pid_of(replica: str, mark: str) -> int | None:
    """The process of a replica of the server with this mark."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            name = (folder / "cmdline").read_bytes().split(b"\0")[0].decode()
            marked = f"{_MARK}={mark}".encode() in (folder / "environ").read_bytes()
        except OSError:  # it has ended meanwhile
            continue
        if marked and name.startswith("ray::ServeReplica") and f"{replica}" in name:
            return int(folder.name)
    return None


class Camera:
    """A camera that sends frames until it is told to stop, and keeps all answers."""

    def __init__(self, port: int, name: str) -> None:
        self.client, self.until = Client(port, name), threading.Event()
        self.answers: list[dict[str, object]] = []
        self.failure: BaseException | None = None
        self.thread = threading.Thread(target=self._run)
        self.client.connection.timeout = 120
        self.thread.start()

    def _run(self) -> None:
        try:
            for number in range(100_000):
                if self.until.is_set():
                    return
                self.answers.append(self.client.send(frame_of(self.client.name, number)))
        except (AssertionError, OSError, http.client.HTTPException) as error:
            self.failure = error

    def stop(self) -> None:
        self.until.set()
        self.thread.join(130)
        self.client.connection.close()


def wait_for_answers(cameras: list[Camera], more: int) -> None:
    """Wait until each camera has had so many more answers, and a second has passed, in which states are written."""
    wanted = [len(camera.answers) + more for camera in cameras]
    start = time.monotonic()
    while time.monotonic() < start + 1 or any(
        len(camera.answers) < number and not camera.failure for camera, number in zip(cameras, wanted, strict=True)
    ):
        assert time.monotonic() < start + 200, "the cameras are not answered"
        time.sleep(0.05)


def check(name: str, answers: list[dict[str, object]]) -> int:
    """Compute all answers again in one process; each says how many frames it remembers. Return how often it forgot.

    A camera that was moved by a kill remembers its first frames up to the last write, and all since.
    """
    model = covshift.open_model("builtin:resnet20")
    states, losses = [], 0
    with torch.inference_mode(), covshift.adapt(model, Stream()) as adapter:
        for number, answer in enumerate(answers):
            remembered = round(answer["parameters"]["images_remembered"])
            if states and remembered != round(states[-1].images) + 1:
                losses += 1
                assert 0 < remembered <= round(states[-1].images) + 2, "a frame counts twice at most"
                adapter.reset()
                if remembered > 1:
                    adapter.state = next(state for state in states if round(state.images) == remembered - 1)
            wanted = model(torch.from_numpy(frame_of(name, number)))
            states.append(adapter.state)
            got = torch.tensor(answer["outputs"][0]["data"]).reshape(wanted.shape)
            torch.testing.assert_close(got, wanted, rtol=0, atol=1e-4)
    return losses


def wait_for_process(replica: str, mark: str, *, other: int | None = None) -> int:
    start = time.monotonic()
    while (pid := pid_of(replica, mark)) in (None, other):
        assert time.monotonic() < start + _START, "the replica is not replaced"
        time.sleep(0.1)
    assert pid is not None
    return pid


@pytest.mark.slow
def test_a_killed_replica_loses_no_camera_and_gives_no_wrong_answer(tmp_path):
    homes = {camera: ranked(camera, NAMES)[0] for camera in CAMERAS}
    assert set(homes.values()) == set(NAMES), "both replicas have cameras"
    with replicated(tmp_path) as (server, port, mark):
        cameras = [Camera(port, name) for name in CAMERAS]
        try:
            wait_for_answers(cameras, 10)
            first = wait_for_process("Replica-0", mark)
            os.kill(first, signal.SIGKILL)
            wait_for_answers(cameras, 10)
            wait_for_process("Replica-0", mark, other=first)
            os.kill(wait_for_process("Replica-1", mark), signal.SIGKILL)
            wait_for_answers(cameras, 10)
        finally:
            for camera in cameras:
                camera.stop()
        assert [camera.failure for camera in cameras] == [None] * len(cameras)
        server.terminate()
        assert server.wait(120) == 0
    for name, camera in zip(CAMERAS, cameras, strict=True):
        assert check(name, camera.answers) <= 3, name
    service = build("builtin:resnet20", Settings(), policy="stream", state=str(tmp_path / "cameras.sqlite"))
    for name, camera in zip(CAMERAS, cameras, strict=True):
        with service.cameras.held(name) as held:
            assert round(held.state.images) == round(camera.answers[-1]["parameters"]["images_remembered"]), name
