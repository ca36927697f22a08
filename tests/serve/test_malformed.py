"""Thousands of damaged requests: each is answered or refused, none is an error of ours, and memory stays flat."""

import http.client
import json
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from networks import images
from serving import SIDE, Served, serving

from covshift.serve.protocol import LENGTH_HEADER
from covshift.serve.settings import Limits, Settings

INFER, PICTURES = "/v2/models/model/infer", "/v1/images"
VALUES = (None, True, -1, 0, 1 << 70, 1e308, "", "images", [], {}, [[]], [None], "\ud800", {"a": [1]}, float("nan"))


def request_of(rng: np.random.Generator) -> tuple[dict[str, object], bytes]:
    """A valid request: its JSON, and the tensor behind it."""
    x = images(1, SIDE, seed=int(rng.integers(100))).float().numpy()
    tensor = {"name": "images", "shape": list(x.shape), "datatype": "FP32"}
    tensor["parameters"] = {"binary_data_size": x.nbytes}
    parameters = {"sequence_id": int(rng.integers(1, 20)), "binary_data_output": True}
    return {"id": "1", "inputs": [tensor], "outputs": [{"name": "logits"}], "parameters": parameters}, x.tobytes()


def swap(value: object, rng: np.random.Generator) -> object:
    """The same JSON with one value replaced, anywhere in it."""
    if rng.random() < 0.25 or not isinstance(value, dict | list) or not value:
        return VALUES[rng.integers(len(VALUES))]
    if isinstance(value, dict):
        key = list(value)[rng.integers(len(value))]
        return {**value, key: swap(value[key], rng)}
    index = int(rng.integers(len(value)))
    return [*value[:index], swap(value[index], rng), *value[index + 1 :]]


def damaged(rng: np.random.Generator) -> tuple[str, bytes, dict[str, str]]:
    """A path, a body and headers, of which something is not as it should be."""
    asked, rest = request_of(rng)
    head = json.dumps(swap(asked, rng) if rng.random() < 0.6 else asked).encode()
    length, body = len(head), head + rest
    kind = rng.integers(5)
    if kind == 0:
        body = body[: rng.integers(len(body))]
    elif kind == 1:
        spoilt = np.frombuffer(body, np.uint8).copy()
        spoilt[rng.integers(len(spoilt), size=8)] = rng.integers(256, size=8)
        body = spoilt.tobytes()
    elif kind == 2:
        length = int(rng.choice([0, 1, length - 1, length + 1, 10**9, -1]))
    path = PICTURES if rng.random() < 0.1 else INFER
    return path, body, {LENGTH_HEADER: str(length)} if kind != 3 else {}


def memory() -> float:
    """The memory of this process, in MB."""
    found = re.search(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


def send_damaged(server: Served, number: int, seed: int) -> Counter[int]:
    """Send damaged requests on one connection, and count their statuses."""
    rng, statuses = np.random.default_rng(seed), Counter[int]()
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    for _ in range(number):
        path, body, headers = damaged(rng)
        connection.request("POST", path, body, headers)
        answer = connection.getresponse()
        content = answer.read()
        statuses[answer.status] += 1
        assert answer.status == 200 or list(json.loads(content)) == ["error"]
    connection.close()
    return statuses


@pytest.mark.parametrize("number", [200, pytest.param(10_000, marks=pytest.mark.slow)])
def test_damaged_requests_are_refused_and_leave_nothing_behind(number):
    x = images(2, SIDE).float().numpy()
    with serving(Settings(delay=0.0, limits=Limits(cameras=50))) as server:
        wanted = server.infer(x, "calm", sequence_start=True).json["outputs"]
        send_damaged(server, number // 5, seed=1)
        before = memory()
        statuses = send_damaged(server, number, seed=2)
        assert memory() - before < 30
        assert server.infer(x, "calm", sequence_start=True).json["outputs"] == wanted
        assert server.service.waiting == 0
    assert set(statuses) <= {200, 400, 413, 415, 429}
    assert statuses[400] > number / 3
