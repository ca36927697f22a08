"""Downloads of the zoo: resumed, checked, and never half-written under their final name."""

import hashlib
import shutil
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace

import pytest
import torch
from networks import Tiny, images, tiny

from covshift import CovshiftError, open_model
from covshift.models.zoo import Entry, File
from covshift.models.zoo.table import ENTRIES


class Server:
    """Gives one file, or the first `limit` bytes of it before the connection breaks, or a web page."""

    def __init__(self, content: bytes) -> None:
        self.content, self.limit, self.kind, self.ranges = content, None, "application/octet-stream", []
        self.in_pieces = False
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                wanted = self.headers.get("Range")
                outer.ranges.append(wanted)
                begin = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0
                if begin >= len(outer.content):
                    self.send_response(416)
                    self.send_header("Content-Range", f"bytes */{len(outer.content)}")
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                self.send_response(206 if wanted else 200)
                self.send_header("Content-Type", outer.kind)
                if outer.in_pieces:
                    self.send_header("Transfer-Encoding", "chunked")
                else:
                    self.send_header("Content-Length", str(len(outer.content) - begin))
                self.end_headers()
                end = len(outer.content) if outer.limit is None else min(begin + outer.limit, len(outer.content))
                if outer.in_pieces:
                    self.wfile.write(b"%x\r\n" % (len(outer.content) - begin))
                self.wfile.write(outer.content[begin:end])
                if outer.in_pieces and end == len(outer.content):
                    self.wfile.write(b"\r\n0\r\n\r\n")
                self.close_connection = True

            def log_message(self, *arguments):
                pass

        self.http = HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.http.serve_forever, daemon=True).start()


@pytest.fixture
def zoo(tmp_path, monkeypatch):
    """A zoo with one small model, on a server of ours."""
    source = tiny(dtype=torch.float32)
    torch.save({"state_dict": {f"module.{k}": v for k, v in source.state_dict().items()}}, tmp_path / "made.pth")
    server = Server((tmp_path / "made.pth").read_bytes())
    digits = hashlib.sha256(server.content).hexdigest()[:8]
    url = f"http://127.0.0.1:{server.http.server_port}/tiny-{digits}.pth"
    entry = Entry(
        "tiny", "tiny", Tiny, "none", "us", (File(url, f"tiny-{digits}.pth", digits, page="https://by.hand"),)
    )
    monkeypatch.setitem(ENTRIES, "tiny", entry)
    monkeypatch.setenv("COVSHIFT_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path / "hub"))
    folder = tmp_path / "home" / "zoo"
    yield SimpleNamespace(server=server, entry=entry, source=source, folder=folder, file=folder / entry.files[0].name)
    server.http.shutdown()
    server.http.server_close()


def opened_like(zoo):
    x = images(2, dtype=torch.float32)
    return torch.equal(open_model("zoo:tiny").module(x), zoo.source(x))


def whole_files(zoo):
    return [file.name for file in zoo.folder.glob("*.pth")]


def test_a_download_is_made_once_and_gone_on_with(zoo):
    zoo.server.limit = 1000
    with pytest.raises(CovshiftError, match=r"cannot fetch http.*the connection broke off.*zoo:tiny\?file=PATH"):
        open_model("zoo:tiny")
    assert whole_files(zoo) == []
    zoo.server.limit = None
    assert opened_like(zoo)
    assert zoo.server.ranges == [None, "bytes=1000-"]
    assert whole_files(zoo) == [zoo.file.name]
    assert opened_like(zoo)
    assert len(zoo.server.ranges) == 2


def test_a_download_of_unknown_length(zoo, monkeypatch):
    unchecked = replace(zoo.entry, files=(File(zoo.entry.files[0].url, zoo.file.name),))
    monkeypatch.setitem(ENTRIES, "tiny", unchecked)
    zoo.server.in_pieces, zoo.server.limit = True, 1000
    with pytest.raises(CovshiftError, match="the connection broke off; try again to resume"):
        open_model("zoo:tiny")
    assert whole_files(zoo) == []
    zoo.server.limit = None
    assert opened_like(zoo)
    zoo.file.write_bytes(zoo.server.content[:2000])
    with pytest.raises(CovshiftError, match="It was downloaded; delete it to have it fetched again"):
        open_model("zoo:tiny")


def test_what_is_longer_than_the_file_is_thrown_away(zoo, monkeypatch):
    monkeypatch.setitem(ENTRIES, "tiny", replace(zoo.entry, files=(File(zoo.entry.files[0].url, zoo.file.name),)))
    zoo.folder.mkdir(parents=True)
    part = zoo.folder / f"{zoo.file.name}.part"
    part.write_bytes(zoo.server.content + b"?")
    with pytest.raises(CovshiftError, match="longer than the file, and was deleted; try again"):
        open_model("zoo:tiny")
    part.write_bytes(zoo.server.content)  # killed before it was given its name
    assert opened_like(zoo)


def test_another_checksum_is_thrown_away(zoo):
    zoo.server.content = zoo.server.content[:-1] + b"?"
    with pytest.raises(
        CovshiftError, match=r"with SHA-256 .*, got .*; the file was deleted, try again. Fetch https://by"
    ):
        open_model("zoo:tiny")
    assert [file.name for file in zoo.folder.iterdir()] == [".lock"]


def test_a_web_page_is_not_taken_for_weights(zoo):
    zoo.server.kind = "text/html; charset=utf-8"
    with pytest.raises(
        CovshiftError, match=r"the server sent a web page instead of the file. Fetch https://by.hand by other"
    ):
        open_model("zoo:tiny")
    assert [file.name for file in zoo.folder.iterdir()] == [".lock"]


def test_no_room_and_no_network(zoo, monkeypatch):
    little = SimpleNamespace(free=10)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: little)
    with pytest.raises(
        CovshiftError, match=r"the file has \d+ MB and .* has 0 MB free; make room there, or set COVSHIFT_HOME"
    ):
        open_model("zoo:tiny")
    zoo.server.http.shutdown()
    zoo.server.http.server_close()
    with pytest.raises(CovshiftError, match=r"cannot fetch .*refused.*put it at .*tiny-"):
        open_model("zoo:tiny")
    assert whole_files(zoo) == []


def test_a_disk_that_fills_up_on_the_way(zoo, monkeypatch):
    import covshift.support.cache

    class Full:
        def __init__(self, file):
            self.file = file

        def __enter__(self):
            return self

        def __exit__(self, *arguments):
            self.file.close()

        def write(self, piece):
            self.file.write(piece[:500])
            raise OSError(28, "No space left on device")

    original = covshift.support.cache.Path.open
    full = [True]

    def opening(path, mode="r", *rest, **named):
        file = original(path, mode, *rest, **named)
        return Full(file) if full[0] and path.suffix == ".part" and mode in ("ab", "wb") else file

    monkeypatch.setattr(covshift.support.cache.Path, "open", opening)
    with pytest.raises(CovshiftError, match="No space left on device"):
        open_model("zoo:tiny")
    assert whole_files(zoo) == []
    full[0] = False
    assert opened_like(zoo)
    assert zoo.server.ranges == [None, "bytes=500-"]


def test_what_torch_has_fetched_is_used(zoo, tmp_path):
    hub = tmp_path / "hub" / "checkpoints"
    hub.mkdir(parents=True)
    (hub / zoo.file.name).write_bytes(zoo.server.content[:-1])  # half a file is not
    assert opened_like(zoo)
    assert zoo.server.ranges == [None]
    zoo.file.unlink()
    (hub / zoo.file.name).write_bytes(zoo.server.content)
    assert opened_like(zoo)
    assert zoo.server.ranges == [None]


def test_all_files_of_a_checkpoint_are_fetched(zoo, monkeypatch):
    first = zoo.entry.files[0]
    monkeypatch.setitem(ENTRIES, "tiny", replace(zoo.entry, files=(first, File(first.url, "second.data"))))
    assert opened_like(zoo)
    assert (zoo.folder / "second.data").read_bytes() == zoo.server.content
