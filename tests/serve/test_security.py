"""Who may send what to the server: tokens, hosts, websites, sizes, rates, bombs."""

import io
import json
import socket
import struct
import threading
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from networks import images
from PIL import Image
from serving import SIDE, Served, serving

from covshift import Stream
from covshift.serve.connections import Connection
from covshift.serve.pictures import decode
from covshift.serve.refusals import Refusal
from covshift.serve.security import Rates
from covshift.serve.settings import Limits, Settings
from covshift.serve.watch import watch

X = images(1, SIDE, dtype=torch.float32).numpy()


def png(width: int = 20, height: int = 30) -> bytes:
    content = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(content, "PNG")
    return content.getvalue()


def bomb(side: int) -> bytes:
    """A PNG of some bytes that claims to have side² pixels, and would decode to them."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)
    rows = zlib.compress(bytes((side // 8 + 1) * min(side, 1000)))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


ROUTES = {
    ("GET", "/v2"): "open",
    ("GET", "/v2/health/live"): "open",
    ("GET", "/v2/health/ready"): "open",
    ("GET", "/v2/models/model"): "inference",
    ("GET", "/v2/models/model/ready"): "inference",
    ("POST", "/v2/models/model/infer"): "inference",
    ("POST", "/v1/images"): "inference",
    ("GET", "/v1/cameras"): "control",
    ("POST", "/v1/cameras/a/reset"): "control",
    ("POST", "/v1/cameras/a/freeze"): "control",
    ("POST", "/v1/cameras/a/follow"): "control",
    ("GET", "/v1/cameras/a/state"): "control",
    ("PUT", "/v1/cameras/a/state"): "control",
    ("DELETE", "/v1/cameras/a"): "control",
}


def test_tokens_open_only_their_own_routes():
    with serving(Settings(token="in", control="over")) as server:
        for (method, path), needed in ROUTES.items():
            for token in (None, "in", "over", "wrong", "käse"):
                headers = {} if token is None else {"Authorization": f"Bearer {token}".encode().decode("latin-1")}
                status = server.request(method, path, b"", headers).status
                allowed = needed == "open" or token == {"inference": "in", "control": "over"}[needed]
                assert (status == 401) is not allowed, (method, path, token, status)
        assert server.request("GET", "/v1/cameras").headers["www-authenticate"] == "Bearer"


def test_tokens_may_have_any_letters():
    with serving(Settings(token="schlüssel")) as server:
        for token, status in (("schlüssel", 200), ("schluessel", 401)):
            headers = {"Authorization": f"Bearer {token}".encode().decode("latin-1")}
            assert server.request("GET", "/v2/models/model", headers=headers).status == status


def test_one_token_is_for_control_too():
    with serving(Settings(token="in")) as server:
        assert server.request("GET", "/v1/cameras").status == 401
        assert server.request("GET", "/v1/cameras", headers={"Authorization": "Bearer in"}).status == 200
    assert "secret" not in repr(Settings(token="secret", control="secret"))


def test_a_token_for_control_alone_guards_control_alone():
    with serving(Settings(control="over"), extras=lambda service: [watch(service)]) as server:
        assert server.request("GET", "/metrics").status == 200
        assert server.infer(X, "gate").status == 200
        assert server.request("POST", "/v1/cameras/gate/reset").status == 401
    with serving(Settings(token="in", control="over"), extras=lambda service: [watch(service)]) as server:
        for token, status in ((None, 401), ("in", 200), ("over", 200)):
            headers = {} if token is None else {"Authorization": f"Bearer {token}"}
            assert server.request("GET", "/metrics", headers=headers).status == status


def test_refused_requests_are_counted_by_status():
    with serving(extras=lambda service: [watch(service)]) as server:
        server.request("GET", "/nowhere")
        for _ in range(2):
            server.request("POST", "/v2/models/model/infer", b"{}")
        server.request("GET", "/v2", headers={"Host": "evil.example"})
        text = server.request("GET", "/metrics").body.decode()
    for status, number in ((404, 1), (400, 2), (403, 1)):
        assert f'covshift_refused_total{{status="{status}"}} {number}.0' in text


def test_other_hosts_websites_and_encodings_are_refused():
    with serving() as server:
        assert server.request("GET", "/v2", headers={"Host": "evil.example"}).status == 403
        assert server.request("GET", "/v2", headers={"Host": f"localhost:{server.port}"}).status == 200
        elsewhere = {"Origin": "https://evil.example"}
        assert server.request("POST", "/v1/cameras/a/reset", headers=elsewhere).status == 403
        for strange in ("null", "http://[", "x", "http://" + "a" * 5000):
            assert server.request("POST", "/v1/cameras/a/reset", headers={"Origin": strange}).status == 403
        here = {"Origin": f"http://127.0.0.1:{server.port}"}
        assert server.request("POST", "/v1/cameras/a/reset", headers=here).status == 404
        packed = server.request("POST", "/v2/models/model/infer", zlib.compress(b"{}"), {"Content-Encoding": "deflate"})
        assert packed.status == 415
        answer = server.request("GET", "/v2", headers=elsewhere)
        assert "access-control-allow-origin" not in answer.headers
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "server" not in answer.headers


def test_limits_on_bodies_pictures_images_and_cameras():
    limits = Limits(body=20_000, pixels=1_000, images=2, cameras=1)
    with serving(Settings(limits=limits, delay=0)) as server:
        assert server.request("POST", "/v2/models/model/infer", b" " * 20_001).status == 413
        assert server.infer(np.repeat(X, 3, 0)).status == 413
        assert server.request("POST", "/v1/images", png()).status == 200
        assert server.request("POST", "/v1/images", png(40, 40)).status == 413
        assert server.request("POST", "/v1/images", bomb(30_000)).status == 413
        assert server.infer(X, "one").status == 200
        refused = server.infer(X, "two")
        assert (refused.status, refused.json["error"]) == (429, "expected at most 1 cameras; forget one first")
        assert server.infer(X, "one").status == 200
        assert server.request("DELETE", "/v1/cameras/one").status == 200
        assert server.infer(X, "two").status == 200


def test_a_body_in_chunks_has_a_limit_too():
    with (
        serving(Settings(limits=Limits(body=1000))) as server,
        socket.create_connection(("127.0.0.1", server.port), 60) as client,
    ):
        client.sendall(b"POST /v1/images HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        client.sendall(b"7d0\r\n" + b"x" * 2000 + b"\r\n")
        assert b" 413 " in client.recv(100)


def test_slow_clients_block_nobody_and_are_refused():
    with serving(Settings(limits=Limits(patience=2.0), delay=0)) as server:
        slow = [socket.create_connection(("127.0.0.1", server.port), 60) for _ in range(50)]
        for client in slow:
            client.sendall(b"POST /v1/images HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\nx")
        assert server.infer(X, "quick").status == 200
        assert all(b" 408 " in client.recv(100) for client in slow)
        for client in slow:
            client.close()


def test_heads_that_are_too_long_or_never_end_are_refused(monkeypatch):
    whole = b"GET /v2 HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with serving() as server:

        def connect() -> socket.socket:
            return socket.create_connection(("127.0.0.1", server.port), 60)

        with connect() as client:
            client.sendall(whole[:-2] + b"X-A: " + b"a" * 66_000)
            assert b" 400 " in client.recv(1000)
        with connect() as client:
            for parts in ([whole], [whole[:20], whole[20:]]):
                for part in parts:
                    client.sendall(part)
                answer = client.recv(10_000)
                while not answer.endswith(b"}"):
                    answer += client.recv(10_000)
                assert b" 200 " in answer
            monkeypatch.setattr(Connection, "patience", 0.1)
            client.sendall(whole[:20])
            assert client.recv(1000) == b"", "half a head of a later request is not waited for"
        for part in (b"", whole[:20]):
            with connect() as client:
                client.sendall(part)
                assert client.recv(1000) == b""


def test_pictures_are_classified_for_curl_and_browsers():
    with serving(policy=Stream(prior=4)) as server:
        answer = server.request("POST", "/v1/images?camera=gate&top=2", png(), {"Content-Type": "image/png"})
        predictions = answer.json["predictions"]
        assert [len(each) for each in predictions] == [2]
        assert predictions[0][0]["probability"] >= predictions[0][1]["probability"]
        form = b"".join(
            b'--b\r\nContent-Disposition: form-data; name="%s"; filename="a.png"\r\n\r\n%s\r\n' % (name, png())
            for name in (b"one", b"two")
        )
        content = {"Content-Type": "multipart/form-data; boundary=b", "X-Stream-Id": "gate"}
        answer = server.request("POST", "/v1/images", form + b"--b--\r\n", content)
        assert len(answer.json["predictions"]) == 2
        assert answer.json["parameters"]["images_remembered"] == 3
        assert answer.json["parameters"]["camera"] == "gate"


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", "image/png"),
        (b"not a picture", "image/png"),
        (png()[:200], "image/png"),
        (b"GIF89a" + bytes(100), "image/gif"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n", "application/postscript"),
        (b"--b\r\n", "multipart/form-data"),
        (b"--b--\r\n", "multipart/form-data; boundary=b"),
        (b"\xff" * 100, "multipart/form-data; boundary=\xff".encode().decode("latin-1")),
    ],
)
def test_what_is_no_picture_is_refused(body, kind):
    with serving() as server:
        answer = server.request("POST", "/v1/images", body, {"Content-Type": kind})
        assert answer.status == 400
        assert "/" not in answer.json["error"].replace("JPEG/PNG", "")


def test_bombs_are_refused_by_their_header():
    with pytest.raises(Refusal) as refused:
        decode(bomb(60_000), 1_000_000)
    assert refused.value.status == 413


def test_rates_of_clients(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("covshift.serve.security.time", SimpleNamespace(monotonic=lambda: now[0]))
    rates = Rates(1000)
    rates.spend("a", 2000)
    with pytest.raises(Refusal) as refused:
        rates.spend("a", 500)
    assert (refused.value.status, refused.value.retry) == (429, 1)
    rates.spend("b", 5000)  # larger than all that is allowed at once, and paid for afterwards
    now[0] = 2.9
    with pytest.raises(Refusal):
        rates.spend("b", 1)
    rates.spend("a", 2000)
    now[0] = 3.1
    rates.spend("b", 1)


def test_a_client_above_its_rate_is_told_when_to_come_back():
    with serving(Settings(limits=Limits(rate=0.01), delay=0)) as server:
        answers = [server.infer(X) for _ in range(3)]
        assert [answer.status for answer in answers] == [200, 429, 429]
        assert 1 < int(answers[1].headers["retry-after"]) <= 100


def test_a_full_queue_is_refused_with_a_time_to_retry():
    with serving(Settings(limits=Limits(queue=2), batch=1, delay=0)) as server:
        running, gate, answer = threading.Event(), threading.Event(), server.service.fleet.answer
        server.service.fleet.answer = lambda batches: (running.set(), gate.wait(60), answer(batches))[2]

        def send(number: int) -> tuple[int, str | None]:
            got = server.infer(X, f"camera{number}")
            return got.status, got.headers.get("retry-after")

        with ThreadPoolExecutor(3) as pool:
            first = pool.submit(send, 0)
            running.wait()
            waiting = [pool.submit(send, number) for number in (1, 2)]
            while server.service.waiting < 2:
                time.sleep(0.01)
            try:
                assert [send(number) for number in range(3, 8)] == [(503, "1")] * 5
            finally:
                gate.set()
            assert [each.result()[0] for each in (first, *waiting)] == [200] * 3


@pytest.mark.parametrize("path", ["/nothing", "/v2/models/x", "/v1/cameras/a%2fb/reset", "/v1/cameras/%00/state"])
def test_unknown_paths_have_errors_of_json(path):
    with serving() as server:
        for method in ("GET", "POST", "DELETE", "PATCH"):
            answer = server.request(method, path)
            assert 400 <= answer.status < 500
            assert isinstance(json.loads(answer.body)["error"], str)


def test_errors_leak_nothing():
    with serving() as server:
        _break(server)
        answer = server.infer(X, "a")
        assert (answer.status, answer.json) == (500, {"error": "internal error"})


def _break(server: Served) -> None:
    def fail(batches: object) -> None:
        raise RuntimeError("/home/me/secret.py")

    server.service.fleet.answer = fail
