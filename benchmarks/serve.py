"""The server under load, on this machine: images per second against the bare model, latency, memory.

    python benchmarks/serve.py                    # images per second beside the bare model's, and latency at half of it
    python benchmarks/serve.py pass               # CPU time of a pass without HTTP, and of the bare model
    python benchmarks/serve.py many --seconds 120 # 1,000 cameras that send one frame a second: memory
    python benchmarks/serve.py many --model py:serve:small # the same with a network that keeps up
    python benchmarks/serve.py soak --seconds 600 # a mix of good and bad requests at a low rate: memory, errors

The load comes from this process, the server is another one, and the bare model a third. Server and bare model take
turns, and the best turn of each counts, so that other work on the machine changes little.
"""

import argparse
import asyncio
import io
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn

from covshift import Fleet, Live, open_model
from covshift.models.cifar import ResNet
from covshift.models.preprocess import IMAGENET, Preprocess
from covshift.support.allocator import keep_freed_memory

HERE = Path(__file__).parent

BARE = """
import sys, time, torch, covshift
from covshift.support.allocator import keep_freed_memory
torch.set_num_threads(int(sys.argv[3]) or torch.get_num_threads())
if sys.argv[4] == "keep":
    keep_freed_memory()
model = covshift.open_model(sys.argv[1])
images = torch.randn(int(sys.argv[2]), 3, model.side, model.side)
print(model.side, flush=True)
for line in sys.stdin:
    taken = []
    with torch.inference_mode():
        while sum(taken) < float(line) or len(taken) < 3:
            start = time.perf_counter()
            model.module(images)
            taken.append(time.perf_counter() - start)
    print(sorted(taken)[len(taken) // 2], flush=True)
"""


def small() -> tuple[nn.Module, Preprocess]:
    """Return a network so small that HTTP takes most of the time; the server knows it as py:serve:small."""
    return ResNet(depth=8, width=4).eval(), IMAGENET.with_(size=32, resize=32)


@dataclass
class Load:
    """What the clients have seen."""

    latencies: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    began: float = field(default_factory=time.perf_counter)
    seconds: float = 0.0

    @property
    def errors(self) -> int:
        """The number of requests that were not answered well."""
        return self.statuses.total() - self.statuses[200]


def post(path: str, body: bytes, *headers: str) -> bytes:
    """A whole request, as bytes to send again and again."""
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}", *headers]
    return "".join(f"{line}\r\n" for line in lines).encode() + b"\r\n" + body


def tensor_of(camera: int, images: int, side: int) -> bytes:
    """A request of one camera with images of noise."""
    pixels = np.random.default_rng(camera).normal(size=(images, 3, side, side)).astype("<f4").tobytes()
    tensor: dict[str, object] = {"name": "images", "shape": [images, 3, side, side], "datatype": "FP32"}
    tensor["parameters"] = {"binary_data_size": len(pixels)}
    asked = {"inputs": [tensor], "parameters": {"sequence_id": camera, "binary_data_output": True}}
    head = json.dumps(asked).encode()
    return post("/v2/models/model/infer", head + pixels, f"Inference-Header-Content-Length: {len(head)}")


def mixed(number: int, side: int) -> bytes:
    """A request of another kind for each number: tensors and pictures, with a camera or without, control, damage."""
    rng, kind, camera = np.random.default_rng(number), number % 8, 1 + number // 8 % 200
    if kind < 4:
        return tensor_of(camera, 1 + kind // 3, side)
    if kind == 4:
        content = io.BytesIO()
        Image.fromarray(rng.integers(0, 256, (240, 320, 3), np.uint8)).save(content, "JPEG")
        return post(f"/v1/images?camera=picture-{camera}", content.getvalue())
    if kind == 5:
        return post(f"/v1/cameras/{camera}/{('reset', 'freeze', 'follow')[number % 3]}", b"")
    if kind == 6:
        return tensor_of(0, 1, side)  # of no camera
    spoilt = bytearray(tensor_of(1, 1, side))
    place = spoilt.index(b"{")
    spoilt[place + rng.integers(200)] = rng.integers(256)
    return bytes(spoilt)


class Client(asyncio.Protocol):
    """A connection on which requests are sent, one after the other, with little work: it shares the server's cores."""

    def __init__(self, port: int, request: bytes = b"") -> None:
        self._port, self.request = port, request
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[int] | None = None
        self._came = b""

    def data_received(self, data: bytes) -> None:
        """Note the status of an answer that is complete."""
        self._came += data
        end = self._came.find(b"\r\n\r\n")
        if end < 0 or self._answer is None or self._answer.done():
            return
        head = self._came[:end].lower()
        start = head.index(b"content-length:") + 15
        if len(self._came) >= end + 4 + int(head[start:].split(b"\r\n", 1)[0]):
            self._answer.set_result(int(head[9:12]))

    def connection_lost(self, error: Exception | None) -> None:
        """Note that the server has closed the connection."""
        self._transport = None
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionResetError())

    async def send(self, load: Load, since: float | None = None) -> None:
        """Send the request, wait for its answer, and note how long that took since it was due."""
        start = time.perf_counter() if since is None else since
        try:
            status = await self._ask()
        except ConnectionError:  # it was idle for too long
            status = await self._ask()
        now = time.perf_counter()
        load.statuses[status] += 1
        load.latencies.append(now - start)
        load.seconds = now - load.began

    async def _ask(self) -> int:
        """Send the request, and return the status of the answer."""
        loop = asyncio.get_running_loop()
        if self._transport is None:
            self._transport, _ = await loop.create_connection(lambda: self, "127.0.0.1", self._port)
        self._came, self._answer = b"", loop.create_future()
        self._transport.write(self.request)
        return await self._answer


async def closed(clients: list[Client], seconds: float) -> Load:
    """Every camera sends its next request as soon as it is answered."""
    load, end = Load(), time.perf_counter() + seconds

    async def run(client: Client) -> None:
        while time.perf_counter() < end:
            await client.send(load)

    await asyncio.gather(*map(run, clients))
    return load


async def paced(clients: list[Client], rate: float, seconds: float, *, skip: bool = False) -> Load:
    """Requests come at a rate, whatever the answers take; a camera whose answer is late sends late, or skips frames."""
    load, gap = Load(), len(clients) / rate
    begin = time.perf_counter()

    async def run(number: int, client: Client) -> None:
        due = begin + gap * number / len(clients)
        while due < begin + seconds:
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            await client.send(load, due)
            due += gap
            while skip and due < time.perf_counter():
                due += gap

    await asyncio.gather(*(run(number, client) for number, client in enumerate(clients)))
    return load


def memory(process: int) -> float:
    """The memory of a process, in MB."""
    status = Path(f"/proc/{process}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+)", status)
    return int(found[1]) / 1024 if found else 0.0


def spent(process: int, *, main: bool = False) -> float:
    """The CPU time of a process, or of its main thread, in seconds; other work on the machine hardly changes it."""
    stat = Path(f"/proc/{process}/task/{process}/stat" if main else f"/proc/{process}/stat")
    fields = stat.read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def batches(port: int) -> tuple[float, float]:
    """The images in the forward passes of all requests so far, added up over requests, and the number of these."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        text = answer.read().decode()
    total, count = (re.search(rf"^covshift_batch_images_{name} (\S+)", text, re.MULTILINE) for name in ("sum", "count"))
    assert total is not None
    assert count is not None
    return float(total[1]), float(count[1])


def show(name: str, load: Load, images: int = 1) -> float:
    """Print what the clients have seen; return the images per second, where a request has so many."""
    rate = images * len(load.latencies) / load.seconds
    p50, p99 = np.percentile(load.latencies, [50, 99]) * 1e3
    print(f"{name}: {rate:.0f} images/s, p50 {p50:.1f} ms, p99 {p99:.1f} ms, {load.errors} errors")
    return rate


def start(options: argparse.Namespace, folder: str) -> tuple[subprocess.Popen[str], int]:
    """Start the server on a free port."""
    command = [sys.executable, "-m", "covshift", "serve", "--model", options.model, "--policy", options.policy]
    command += ["--port", "0", "--batch", str(options.batch)]
    command += ["--state", f"{folder}/cameras.sqlite", "--max-queue", "4096"]
    for name in ("passes", "threads"):
        command += [f"--{name}", str(getattr(options, name))] if getattr(options, name) else []
    command += ["--source", options.source] if options.source else []
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=HERE)
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


class Bare:
    """The bare model in a process of its own, which runs when it is asked to.

    Args:
        options: the options of the command.
        keep: whether it keeps freed memory, as the server does, which makes small models faster.
    """

    def __init__(self, options: argparse.Namespace, *, keep: bool = False) -> None:
        arguments = [options.model, str(options.batch), str(options.threads), "keep" if keep else ""]
        command = [sys.executable, "-c", BARE, *arguments]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=HERE)
        self.side = int(self._read())

    def _read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def forward(self, seconds: float) -> float:
        """The seconds of a forward pass: the median over some of them."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{seconds}\n")
        self._process.stdin.flush()
        return float(self._read())

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


async def measure(options: argparse.Namespace, port: int, server: int, bare: Bare) -> None:
    """Print the images per second beside those of the bare model, and the latency at half of them."""
    clients = [Client(port, tensor_of(number + 1, options.images, bare.side)) for number in range(options.cameras)]
    part = options.seconds / options.turns
    await warm(clients[0])
    await closed(clients, 2.0)
    keeping, forwards, kept, loads, each = Bare(options, keep=True), [], [], [], []
    before = batches(port)
    for _ in range(options.turns):
        forwards.append(bare.forward(part / 4))
        kept.append(keeping.forward(part / 4))
        begun = spent(server), spent(server, main=True), time.process_time()
        loads.append(await closed(clients, part))
        ended = spent(server), spent(server, main=True), time.process_time()
        answered = options.images * len(loads[-1].latencies)
        each.append([1e3 * (b - a) / answered for a, b in zip(begun, ended, strict=True)])
    keeping.close()
    total, count = (b - a for a, b in zip(before, batches(port), strict=True))
    forward, load = min(forwards), max(loads, key=lambda load: len(load.latencies) / load.seconds)
    print(f"bare model: {options.batch / forward:.0f} images/s at batch {options.batch}, {forward * 1e3:.1f} ms a pass")
    full = show("full load", load, options.images)
    share, same = full * forward / options.batch, full * min(kept) / options.batch
    print(f"  {share:.0%} of the bare model; {same:.0%} of it where it keeps freed memory, as the server does")
    print(f"  a request shared a pass with {total / count:.0f} images on average, its own included")
    whole, http, client = min(each)
    print(
        f"  CPU for each image: {whole:.2f} ms of the server, {http:.2f} of them HTTP; {client:.2f} ms of the clients"
    )
    halves = [await paced(clients, full / 2 / options.images, part) for _ in range(options.turns)]
    half = min(halves, key=lambda load: float(np.percentile(load.latencies, 99)))
    show("half load", half, options.images)
    p99 = float(np.percentile(half.latencies, 99))
    plain, keeps = p99 / forward, p99 / min(kept)
    print(f"  p99 is {plain:.1f} times the bare model's pass of a full batch, {keeps:.1f} where it keeps freed memory")


async def many(options: argparse.Namespace, port: int, server: int, bare: Bare) -> None:
    """Print how the memory of the server grows with cameras that send one frame a second."""
    clients = [Client(port, tensor_of(number + 1, 1, bare.side)) for number in range(options.cameras)]
    await warm(clients[0])
    print(f"memory with one camera: {memory(server):.0f} MB")
    for part in range(6):
        load = await paced(clients, options.cameras, options.seconds / 6, skip=True)
        show(f"{options.cameras} cameras, 1 frame/s, part {part + 1}", load)
        print(f"  memory: {memory(server):.0f} MB")


async def soak(options: argparse.Namespace, port: int, server: int, bare: Bare) -> None:
    """Print how memory and answers are over a long time, under a mix of good and bad requests."""
    clients = [Client(port) for _ in range(8)]
    clients[0].request = tensor_of(1, 1, bare.side)
    await warm(clients[0])
    number, statuses = 0, Counter[int]()
    for part in range(10):
        load, end = Load(), time.perf_counter() + options.seconds / 10
        while (now := time.perf_counter()) < end:
            for client in clients:
                client.request = mixed(number, bare.side)
                number += 1
            await asyncio.gather(*(client.send(load) for client in clients))
            await asyncio.sleep(max(0.0, len(clients) / options.rate - (time.perf_counter() - now)))
        statuses += load.statuses
        p99 = np.percentile(load.latencies, 99) * 1e3
        counted = dict(sorted(load.statuses.items()))
        print(f"part {part + 1}: {counted}, p99 {p99:.0f} ms, memory {memory(server):.0f} MB", flush=True)
    print(
        f"{number} requests: {dict(sorted(statuses.items()))}; errors of the server: "
        f"{sum(count for status, count in statuses.items() if status >= 500)}"
    )


def compare(options: argparse.Namespace) -> None:
    """Print the CPU time of a pass of many cameras, an image each, beside that of the bare model, on one thread."""
    keep_freed_memory()
    torch.set_num_threads(1)
    model = open_model(options.model)
    images = torch.randn(options.batch, 3, model.side, model.side)

    def show_time(name: str, run: Callable[[], object]) -> None:
        taken = []
        with torch.inference_mode():
            for _ in range(4 + options.turns):
                begun = time.thread_time()
                run()
                taken.append(time.thread_time() - begun)
        print(f"{name}: {1e3 * min(taken[3:]):.1f} ms of CPU time for {options.batch} images")

    show_time("bare model", lambda: model.module(images))
    for layer in model.module.modules():
        if isinstance(layer, nn.Conv2d):
            layer.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    show_time("bare model, channels last", lambda: model.module(images))
    cameras = {str(number): images[number : number + 1] for number in range(options.batch)}
    with Fleet(model, Live()) as fleet:
        show_time("cameras that are followed", lambda: fleet.answer(cameras))


MODES = {"load": (measure, 128, 24.0), "many": (many, 1000, 120.0), "soak": (soak, 200, 600.0)}
"""What is measured, with the number of cameras and the seconds that it takes if nothing else is said."""


def main() -> None:
    """Measure what the options say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", nargs="?", default="load", choices=[*MODES, "pass"])
    parser.add_argument("--model", default="builtin:resnet20")
    parser.add_argument("--policy", default="live")
    parser.add_argument("--source")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--cameras", type=int)
    parser.add_argument("--images", type=int, default=1, help="images of a request under load")
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--turns", type=int, default=6, help="turns of the server and the bare model under load")
    parser.add_argument("--rate", type=float, default=40, help="requests a second in a soak")
    parser.add_argument("--threads", type=int, default=0, help="of a pass; 0 for what server and torch choose")
    parser.add_argument("--passes", type=int, default=0, help="of the server at once; 0 for what it chooses")
    options = parser.parse_args()
    if options.mode == "pass":
        compare(options)
        return
    run, cameras, seconds = MODES[options.mode]
    options.cameras, options.seconds = options.cameras or cameras, options.seconds or seconds
    bare = Bare(options)
    with tempfile.TemporaryDirectory() as folder:
        server, port = start(options, folder)
        try:
            asyncio.run(run(options, port, server.pid, bare))
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(60)
            bare.close()


if __name__ == "__main__":
    main()
