"""The server under load, on this machine: images per second against the bare model, latency, memory.

    python benchmarks/serve.py                         # throughput, and latency at half of it
    python benchmarks/serve.py --cameras 1000 --seconds 60   # many slow cameras: memory
    python benchmarks/serve.py --seconds 600           # a soak

The load comes from this process, the server is another one, and the bare model is measured in a third, before.
"""

import argparse
import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

BARE = """
import sys, time, torch, covshift
torch.set_num_threads(int(sys.argv[3]))
model = covshift.open_model(sys.argv[1])
images = torch.randn(int(sys.argv[2]), 3, model.side, model.side)
taken = []
with torch.inference_mode():
    for _ in range(12):
        start = time.perf_counter()
        model.module(images)
        taken.append(time.perf_counter() - start)
print(model.side, sorted(taken)[len(taken) // 2])
"""


@dataclass
class Load:
    """What the clients have seen."""

    latencies: list[float] = field(default_factory=list)
    errors: int = 0
    began: float = field(default_factory=time.perf_counter)
    seconds: float = 0.0


def request_of(camera: int, images: int, side: int) -> bytes:
    """A whole request of one camera, as bytes to send again and again."""
    pixels = np.random.default_rng(camera).normal(size=(images, 3, side, side)).astype("<f4").tobytes()
    tensor: dict[str, object] = {"name": "images", "shape": [images, 3, side, side], "datatype": "FP32"}
    tensor["parameters"] = {"binary_data_size": len(pixels)}
    asked = {"inputs": [tensor], "parameters": {"sequence_id": camera, "binary_data_output": True}}
    head = json.dumps(asked).encode()
    lines = f"POST /v2/models/model/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(head) + len(pixels)}\r\n"
    return f"{lines}Inference-Header-Content-Length: {len(head)}\r\n\r\n".encode() + head + pixels


class Client:
    """One camera on one connection."""

    def __init__(self, port: int, camera: int, images: int, side: int) -> None:
        self._port, self._request = port, request_of(camera, images, side)
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def send(self, load: Load, since: float | None = None) -> None:
        """Send the request, wait for its answer, and note how long that took since it was due."""
        start = time.perf_counter() if since is None else since
        try:
            reader, head = await self._ask()
        except (asyncio.IncompleteReadError, ConnectionError):  # it was idle for too long
            self._streams = None
            reader, head = await self._ask()
        length = re.search(rb"\r\ncontent-length: (\d+)", head.lower())
        assert length is not None
        await reader.readexactly(int(length[1]))
        load.errors += b" 200 " not in head[:20]
        load.latencies.append(time.perf_counter() - start)
        load.seconds = time.perf_counter() - load.began

    async def _ask(self) -> tuple[asyncio.StreamReader, bytes]:
        """Send the request, and return the head of the answer."""
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        writer.write(self._request)
        await writer.drain()
        return reader, await reader.readuntil(b"\r\n\r\n")


async def together(tasks: list[Callable[[], Awaitable[None]]]) -> None:
    """Run all tasks at once."""
    await asyncio.gather(*(task() for task in tasks))


async def closed(clients: list[Client], seconds: float) -> Load:
    """Every camera sends its next request as soon as it is answered."""
    load, end = Load(), time.perf_counter() + seconds

    async def run(client: Client) -> None:
        while time.perf_counter() < end:
            await client.send(load)

    await together([lambda client=client: run(client) for client in clients])  # type: ignore[misc]
    return load


async def paced(clients: list[Client], rate: float, seconds: float) -> Load:
    """Requests come at a rate, whatever the answers take; a camera whose answer is late sends late."""
    load, gap = Load(), len(clients) / rate
    begin = time.perf_counter()

    async def run(number: int, client: Client) -> None:
        due = begin + gap * number / len(clients)
        while due < begin + seconds:
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            await client.send(load, due)
            due += gap

    await together([lambda n=n, c=c: run(n, c) for n, c in enumerate(clients)])  # type: ignore[misc]
    return load


def memory(process: int) -> float:
    """The memory of a process, in MB."""
    status = Path(f"/proc/{process}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+)", status)
    return int(found[1]) / 1024 if found else 0.0


def spent(process: int) -> float:
    """The CPU time of a process, in seconds, which other work on the machine does not change."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def show(name: str, load: Load, images: int) -> float:
    """Print what the clients have seen; return the images per second."""
    rate = len(load.latencies) * images / load.seconds
    p50, p99 = np.percentile(load.latencies, [50, 99]) * 1e3
    print(f"{name}: {rate:.0f} images/s, p50 {p50:.1f} ms, p99 {p99:.1f} ms, {load.errors} errors")
    return rate


def start(options: argparse.Namespace, folder: str) -> tuple[subprocess.Popen[str], int]:
    """Start the server on a free port."""
    command = [sys.executable, "-m", "covshift", "serve", "--model", options.model, "--policy", options.policy]
    command += ["--port", "0", "--batch", str(options.batch), "--threads", str(options.threads)]
    command += ["--state", f"{folder}/cameras.sqlite", "--max-queue", "4096"]
    command += ["--source", options.source] if options.source else []
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert server.stderr is not None
    for line in server.stderr:
        if found := re.search(r"http://127\.0\.0\.1:(\d+)", line):
            return server, int(found[1])
    raise SystemExit("the server did not start")


async def warm(client: Client) -> None:
    """Wait for the first answer."""
    while True:
        try:
            return await client.send(Load())
        except OSError:
            await asyncio.sleep(0.1)


async def measure(options: argparse.Namespace, port: int, server: int, side: int, forward: float) -> None:
    """Put the server under load and print the figures."""
    clients = [Client(port, number + 1, options.images, side) for number in range(options.cameras)]
    await warm(clients[0])
    if options.cameras > 256:  # slow cameras, many of them
        before = memory(server)
        for part in range(4):
            load = await paced(clients, options.cameras, options.seconds / 4)
            show(f"{options.cameras} cameras, 1 frame/s, part {part + 1}", load, options.images)
            print(f"  memory: {before:.0f} MB before, {memory(server):.0f} MB now")
        return
    await closed(clients, min(3.0, options.seconds))
    before, begun = memory(server), spent(server)
    load = await closed(clients, options.seconds)
    each = (spent(server) - begun) / (len(load.latencies) * options.images)
    full = show("full load", load, options.images)
    print(f"  {full * forward / options.batch:.0%} of the bare model at batch {options.batch}")
    print(f"  {each * 1e3:.2f} ms of CPU for each image, HTTP and writing included")
    print(f"  memory: {before:.0f} MB before, {memory(server):.0f} MB after")
    load = await paced(clients, full / 2 / options.images, options.seconds)
    show("half load", load, options.images)
    p99 = float(np.percentile(load.latencies, 99))
    print(f"  p99 is {p99 / forward:.1f} times the bare forward pass of a full batch ({forward * 1e3:.1f} ms)")


def main() -> None:
    """Measure what the options say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="builtin:resnet20")
    parser.add_argument("--policy", default="live")
    parser.add_argument("--source")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--images", type=int, default=1, help="images in a request")
    parser.add_argument("--cameras", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    arguments = [options.model, str(options.batch), str(options.threads)]
    bare = subprocess.run([sys.executable, "-c", BARE, *arguments], capture_output=True, text=True, check=True)
    side, forward = bare.stdout.split()
    print(f"bare model: {options.batch / float(forward):.0f} images/s at batch {options.batch}")
    with tempfile.TemporaryDirectory() as folder:
        server, port = start(options, folder)
        try:
            asyncio.run(measure(options, port, server.pid, int(side), float(forward)))
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(60)


if __name__ == "__main__":
    main()
