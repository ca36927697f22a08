"""Cameras between memory and store: evicted and brought back, never lost, never mixed up, whatever fails."""

import subprocess
import sys
import threading
import time
from collections.abc import Sized
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import redis
import torch
from networks import images
from serving import SIDE, redis_server, restarted_redis, serving, tiny_model

import covshift
from covshift import CovshiftError, Fleet, Live, Source, Statistics, Stream
from covshift.serve.brief import Moment, brief_of
from covshift.serve.cameras import Cameras
from covshift.serve.packing import pack_camera, unpack_camera
from covshift.serve.refusals import Busy, Refusal
from covshift.serve.settings import Limits, Settings
from covshift.serve.stores import Store, StoreError, lease, open_store
from covshift.serve.stores.base import MemoryStore
from covshift.serve.stores.redis import RedisStore
from covshift.serve.writer import Writer


def frames(camera: int, number: int) -> torch.Tensor:
    return images(number, SIDE, seed=camera, dtype=torch.float32)


class Failing(MemoryStore):
    """A store that is out of reach while `down`."""

    down = False

    def get(self, name: str) -> bytes | None:
        self._check()
        return super().get(name)

    def put(self, states: object) -> None:
        self._check()
        super().put(states)

    def _check(self) -> None:
        if self.down:
            raise StoreError("out of reach")


def fleet(policy: covshift.Policy | None = None, sourced: bool = False) -> Fleet:
    model = tiny_model()
    source = Source.measure(model, frames(99, 64), progress=False) if sourced else None
    return Fleet(model, policy or Live(), source=source)


def see(cameras: Cameras, *names: str) -> None:
    """Have each of some cameras see two images, as a request does."""
    for name in names:
        with cameras.held(name):
            cameras.fleet.answer({name: frames(1, 2)})
            cameras.touched([name])


@pytest.mark.parametrize("kind", ["memory", "sqlite", "redis"])
def test_stores_keep_what_they_are_given(kind, tmp_path):
    with (
        redis_server() if kind == "redis" else contextmanager(lambda: iter([str(tmp_path / "a" / "b.sqlite")]))() as url
    ):
        store = open_store("memory" if kind == "memory" else url, "one")
        store.put({"gate": b"\x00\xff", "yard": b"2"})
        store.put({"gate": b"3", "hall": b""})
        store.put({})
        store.delete(["yard", "nobody"])
        store.delete([])
        assert sorted(store.names()) == ["gate", "hall"]
        assert [store.get(name) for name in ("gate", "hall", "yard")] == [b"3", b"", None]
        store.close()
        if kind != "memory":
            other, again = open_store(url, "two"), open_store(url, "one")
            assert other.names() == []
            assert again.get("gate") == b"3"
            other.close()
            again.close()


def test_two_servers_of_one_model_need_a_file_each(tmp_path):
    path, code = (
        str(tmp_path / "cameras.sqlite"),
        "import sys; from covshift.serve.stores import open_store as o; o(*sys.argv[1:])",
    )

    def opened_elsewhere(scope: str) -> str:
        return subprocess.run([sys.executable, "-c", code, path, scope], capture_output=True, text=True).stderr

    store = open_store(path, "one")
    assert "another server of this model keeps its own; choose another file" in opened_elsewhere("one")
    assert opened_elsewhere("two") == ""
    store.close()
    assert opened_elsewhere("one") == ""


def open_files() -> int:
    """The number of files that this process has open, where the system says."""
    folder = Path("/proc/self/fd")
    return len(list(folder.iterdir())) if folder.is_dir() else 0


def test_two_stores_of_one_process_need_a_file_each(tmp_path):
    before = open_files()
    path = tmp_path / "cameras.sqlite"
    store, other = open_store(str(path), "one"), open_store(str(path), "two")
    (tmp_path / "alias").symlink_to(path)
    for name in (path, tmp_path / "alias"):
        with pytest.raises(CovshiftError, match="another server of this model keeps its own"):
            open_store(str(name), "one")
    other.close()  # which leaves the first one its lock
    with pytest.raises(CovshiftError, match="keeps its own"):
        open_store(str(path), "one")
    store.close()
    open_store(str(path), "one").close()
    assert open_files() == before, "a file stays open"


HOLD_REDIS = """
import sys
from covshift.serve.stores import open_store
store = open_store(sys.argv[1], "one")
print("open", flush=True)
sys.stdin.read()
"""


def test_two_servers_of_one_model_need_a_redis_each():
    with redis_server() as url:
        command = [sys.executable, "-c", HOLD_REDIS, url]
        first = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert first.stdout is not None
        assert first.stdout.readline() == "open\n"
        with pytest.raises(CovshiftError, match="another server of this model keeps its own; choose another database"):
            open_store(url, "one")
        open_store(url, "two").close()
        open_store(url, "one", "a replica").close()  # replicas share their cameras
        time.sleep(lease.SECONDS)  # it is renewed
        with pytest.raises(CovshiftError, match="keeps its own"):
            open_store(url, "one")
        first.kill()
        first.communicate()
        begun = time.monotonic()
        store = open_store(url, "one")
        assert time.monotonic() - begun < lease.SECONDS + 1
        store.close()
        begun = time.monotonic()
        open_store(url, "one").close()
        assert time.monotonic() - begun < 1, "a server that has stopped is not waited for"


def test_a_server_that_was_replaced_overwrites_nothing():
    with redis_server() as url:
        first = open_store(url, "one")
        first.put({"gate": b"first"})
        first._lease._stop.set()
        first._client.delete(first._lease._key)  # as if Redis had been out of its reach for some seconds
        second = open_store(url, "one")
        second.put({"gate": b"second"})
        with pytest.raises(StoreError, match="taken over"):
            first.put({"gate": b"first again"})
        with pytest.raises(StoreError, match="taken over"):
            first.delete(["gate"])
        second.put({"gate": b"still"})
        second.close()
        with pytest.raises(StoreError, match="taken over"):
            first.put({"gate": b"first once more"})  # though nobody has the lease now
        assert first.get("gate") == b"still"
        first.close()


def test_a_store_that_cannot_begin_gives_its_lease_back(monkeypatch):
    def fails(self):
        raise redis.ConnectionError("gone")

    with redis_server() as url:
        with monkeypatch.context() as patch:
            patch.setattr(RedisStore, "_leave_mark", fails)
            with pytest.raises(StoreError):
                open_store(url, "one")
        begun = time.monotonic()
        open_store(url, "one").close()
        assert time.monotonic() - begun < 1


def test_names_of_stores_are_checked(tmp_path):
    with pytest.raises(CovshiftError, match="state store"):
        open_store("postgres://here", "one")
    with pytest.raises(StoreError, match="cannot be used"):
        open_store(str(tmp_path), "one")
    with pytest.raises(StoreError, match="Redis"):
        open_store("redis://127.0.0.1:1/0", "one")


@pytest.mark.parametrize("policy", [Live(), Stream(prior=4)])
def test_a_camera_is_packed_and_unpacked_exactly(policy):
    with fleet(policy, sourced=True) as cameras:
        for batch in frames(1, 12).split(2):
            cameras.answer({"gate": batch})
        cameras["gate"].frozen = True
        content = pack_camera(cameras["gate"], cameras)
        other = cameras.add("other")
        unpack_camera(content, other, cameras)
        assert other.state == cameras["gate"].state
        assert other.frozen
        assert set(other.memory.notes) == set(cameras["gate"].memory.notes)
        for name, note in other.memory.notes.items():
            assert torch.equal(note, cameras["gate"].memory.notes[name])
        for damaged in (b"", content[:-1], content[:40], b"x" * 100):
            fresh = cameras.add("fresh")
            unpack_camera(damaged, fresh, cameras)
            assert fresh.memory.seen == {}


def test_evicted_cameras_come_back_as_they_were():
    with fleet() as whole, fleet() as small:
        limits = Limits(resident=1, idle=1e9)
        cameras = Cameras(small, MemoryStore(), limits)
        writer = Writer(cameras)
        for step in range(6):
            for number, name in enumerate(("a", "b", "c")):
                batch = frames(number, 12)[2 * step : 2 * step + 2]
                wanted = whole.answer({name: batch})[name]
                with cameras.held(name):
                    got = small.answer({name: batch})[name]
                cameras.touched([name])
                assert torch.equal(got, wanted)
                writer.write()
                assert cameras.resident == 1
        assert len(cameras) == 3
        assert [brief is None for brief in cameras.listed().values()] == [True, True, False]


def test_idle_cameras_leave_memory():
    with fleet() as some:
        cameras = Cameras(some, MemoryStore(), Limits(idle=0.0))
        see(cameras, "a", "b")
        Writer(cameras).write()
        assert (cameras.resident, len(some), len(cameras)) == (0, 0, 2)


def test_a_store_out_of_reach_is_never_taken_for_an_empty_one():
    with fleet() as some:
        store = Failing()
        cameras = Cameras(some, store, Limits(idle=0.0))
        writer = Writer(cameras)
        see(cameras, "a")
        writer.write()
        assert cameras.resident == 0
        store.down = True
        with pytest.raises(Busy):
            cameras.hold("a")
        assert "a" not in some
        store.down = False
        with cameras.held("a") as camera:
            assert camera.state.images == pytest.approx(1.995)


def test_what_cannot_be_written_stays_in_memory_and_is_written_later():
    with fleet() as some:
        store = Failing()
        cameras = Cameras(some, store, Limits(idle=0.0))
        writer = Writer(cameras)
        see(cameras, "a")
        store.down = True
        writer.write()
        writer.write()
        assert (writer.failing, writer.failures, cameras.resident) == (True, 2, 1)
        store.down = False
        writer.write()
        assert (writer.failing, cameras.resident, store.names()) == (False, 0, ["a"])


def test_a_forgotten_camera_does_not_come_back():
    with fleet() as some:
        store = MemoryStore()
        cameras = Cameras(some, store, Limits())
        see(cameras, "a")
        cameras.flush()
        cameras.forget("a")
        with cameras.held("a") as camera:  # before the store has heard of it
            assert camera.state.images == 0
        cameras.forget("a")
        cameras.flush()
        assert store.names() == []
        with pytest.raises(Refusal) as refused:
            cameras.reset("a")
        assert refused.value.status == 404


def test_a_reset_holds_though_the_camera_leaves_memory():
    with fleet() as some:
        cameras = Cameras(some, MemoryStore(), Limits(idle=0.0))
        writer = Writer(cameras)
        see(cameras, "a")
        writer.write()
        let_go = cameras.let_go
        cameras.let_go = lambda name: (let_go(name), writer.write())[0]  # at once, before anything else is done
        cameras.reset("a")
        assert cameras.resident == 0
        with cameras.held("a") as camera:
            assert camera.state.images == 0


def sizes(cameras: Cameras) -> list[int]:
    return [len(value) for value in vars(cameras).values() if isinstance(value, Sized)]


def test_cameras_that_are_refused_leave_nothing_behind():
    with fleet() as some:
        cameras = Cameras(some, MemoryStore(), Limits(cameras=1))
        with cameras.held("a"):
            before = sizes(cameras)
            for number in range(50):
                with pytest.raises(Refusal):
                    cameras.hold(f"other-{number}")
            assert sizes(cameras) == before
        assert list(some) == ["a"]


def test_a_full_disk_loses_nothing(tmp_path):
    """SQLite reports a full disk as it reports a file that may not grow."""
    store = open_store(str(tmp_path / "cameras.sqlite"), "one")
    store.put({"a": bytes(1000)})
    pages = store._database.execute("PRAGMA page_count").fetchone()[0]
    store._database.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StoreError, match="full"):
        store.put({"a": b"", "b": bytes(100_000)})
    assert store.get("a") == bytes(1000)
    store._database.execute("PRAGMA max_page_count = 1000000")
    store.put({"b": bytes(100_000)})
    assert sorted(store.names()) == ["a", "b"]
    store.close()


def test_redis_goes_and_comes_back():
    with redis_server() as url:
        store = open_store(url, "one")
        with fleet() as some:
            cameras = Cameras(some, store, Limits())
            writer = Writer(cameras)
            see(cameras, "a", "quiet")
            writer.write()
            cameras.touched(["a"])
            _shutdown(url)
            writer.write()
            assert writer.failing
            with cameras.held("a"):  # in memory, and so it goes on
                some.answer({"a": frames(1, 2)})
            with pytest.raises(Busy):
                cameras.hold("new")
            with restarted_redis(url):
                writer.write()  # which finds that its data are lost
                writer.write()
                assert not writer.failing
                assert sorted(store.names()) == ["a", "quiet"], "also what had been written before, and was lost"
        store.close()


def test_a_redis_that_has_lost_its_data_gets_them_again():
    """As after a restart between two writes, which nobody has noticed."""
    with redis_server() as url:
        for owner in (None, "one"):
            store = open_store(url, f"scope of {owner}", owner)
            with fleet() as some:
                cameras = Cameras(some, store, Limits())
                writer = Writer(cameras)
                see(cameras, "a", "quiet")
                writer.write()
                store._client.flushall()
                with cameras.held("a") as camera:
                    assert camera.state.images == pytest.approx(1.995)
                    some.answer({"a": frames(1, 2)})
                    cameras.touched(["a"])
                writer.write()
                assert writer.failing
                writer.write()
                assert not writer.failing
                assert sorted(store.names()) == ["a", "quiet"]
            store.close()


def _shutdown(url: str) -> None:
    import redis

    redis.Redis.from_url(url).shutdown(nosave=True)


def test_control_over_http(tmp_path):
    x = frames(1, 2).numpy()
    with serving(policy=Stream(prior=4)) as server:
        server.infer(x, "gate")
        server.infer(x, "yard")
        saved = server.request("GET", "/v1/cameras/gate/state").body
        (tmp_path / "gate.safetensors").write_bytes(saved)
        assert Statistics.load(tmp_path / "gate.safetensors").images == 2
        assert server.request("POST", "/v1/cameras/gate/freeze").status == 200
        answers = [server.infer(x, "gate").json["parameters"] for _ in range(2)]
        assert [(each["adaptation"], each["images_remembered"]) for each in answers] == [("frozen", 2)] * 2
        server.request("POST", "/v1/cameras/gate/follow")
        assert server.infer(x, "gate").json["parameters"]["images_remembered"] == 4
        server.request("POST", "/v1/cameras/gate/reset")
        assert server.infer(x, "gate").json["parameters"]["images_remembered"] == 2
        assert server.request("PUT", "/v1/cameras/new/state", saved).status == 200
        assert server.infer(x, "new").json["parameters"]["images_remembered"] == 4
        assert server.request("PUT", "/v1/cameras/new/state", b"x" * 50).status == 400
        listed = server.request("GET", "/v1/cameras").json["cameras"]
        assert [each["camera"] for each in listed] == ["gate", "new", "yard"]


def test_a_state_of_another_model_is_refused(tmp_path):
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4)).eval()
    Statistics.of(net).save(tmp_path / "other.safetensors")
    with serving(policy=Stream(prior=4)) as server:
        answer = server.request("PUT", "/v1/cameras/a/state", (tmp_path / "other.safetensors").read_bytes())
        assert (answer.status, "another model" in answer.json["error"]) == (400, True)


def test_noise_of_one_camera_touches_no_other():
    x = frames(1, 20).numpy()
    wild = np.full((1, 3, SIDE, SIDE), 3e38, np.float32)
    wild[:, :, ::2] *= -1
    with serving(Settings(batch=4, delay=0.01)) as server, serving() as alone:
        statuses = set()

        def noise() -> None:
            for _ in range(20):
                statuses.add(server.infer(wild, "wild").status)

        thread = threading.Thread(target=noise)
        thread.start()
        got = [server.infer(frame[None], "good").json["outputs"][0]["data"] for frame in x]
        thread.join()
        wanted = [alone.infer(frame[None], "good").json["outputs"][0]["data"] for frame in x]
        np.testing.assert_allclose(got, wanted, atol=1e-4)
        assert statuses == {400}


def test_two_threads_that_hold_one_camera_get_the_same():
    class Slow(MemoryStore):
        def get(self, name: str) -> bytes | None:
            time.sleep(0.05)
            return super().get(name)

    with fleet() as some:
        cameras: Store = Slow()
        held = Cameras(some, cameras, Limits())
        found: list[object] = []
        threads = [threading.Thread(target=lambda: found.append(held.hold("a"))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(set(map(id, found))) == 1


def test_one_place_of_many_is_not_called_following():
    """As in `Camera.health`, which takes the mean over the places."""
    cameras = fleet()
    cameras.answer({"gate": frames(1, 2)})
    memory, quiet = cameras["gate"].memory, {str(place): 0.0 for place in range(19)}
    for weight, done in ((0.3, "holding"), (torch.tensor([0.2, 0.4]), "holding"), (0.5, "following")):
        assert brief_of(cameras, Moment(memory, quiet | {"one": weight}, frozen=False, shift=None)).done == done
