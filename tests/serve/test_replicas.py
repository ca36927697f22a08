"""Replicas: who answers for a camera, what happens when one is lost, and who may write a camera to a shared store."""

import asyncio
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from blocks import ROOT, blocks
from fastapi import APIRouter
from networks import images
from serving import SIDE, redis_server, running, tiny_model

import covshift
from covshift import CovshiftError, Fleet, Stream
from covshift.serve.backend import Backend, Outcome
from covshift.serve.brief import Brief
from covshift.serve.cameras import Cameras
from covshift.serve.events import Answered
from covshift.serve.refusals import Refusal
from covshift.serve.replicas.front import Front
from covshift.serve.replicas.placing import Counts, Placing, ranked
from covshift.serve.replicas.replica import Known, Recipe, Replica
from covshift.serve.settings import Limits, Settings
from covshift.serve.stores import Store, open_store
from covshift.serve.watch import watch

NAMES = ["a", "b", "c"]
CAMERAS = [f"camera-{number}" for number in range(300)]


class LostError(Exception):
    """What calling a dead replica raises here."""


class Replicas:
    """Replicas that only note what they are asked; a dead one raises, or answers once it is replaced."""

    def __init__(self) -> None:
        self.dead: set[str] = set()
        self.calls: list[tuple[str, str, tuple[Any, ...]]] = []
        self.release: Callable[[], bool] = lambda: True

    async def ask(self, name: str, method: str, *arguments: Any) -> Any:
        await asyncio.sleep(0)
        if name in self.dead:
            raise LostError(name)
        if method == "counts":
            return Counts(1, 2)
        self.calls.append((name, method, arguments))
        return self.release() if method == "release" else name


async def placed(replicas: Replicas, cameras: int = 1000) -> Placing:
    placing = Placing(NAMES, replicas.ask, (LostError,), cameras)
    placing.start()
    while len(placing.up) < len(NAMES) - len(replicas.dead):
        await asyncio.sleep(0.001)
    return placing


def test_a_lost_replica_moves_its_own_cameras_only():
    before = {camera: ranked(camera, NAMES)[0] for camera in CAMERAS}
    after = {camera: ranked(camera, ["a", "c"])[0] for camera in CAMERAS}
    assert {camera for camera in CAMERAS if before[camera] != after[camera]} == {c for c in CAMERAS if before[c] == "b"}
    shares = [sum(replica == name for replica in before.values()) / len(CAMERAS) for name in NAMES]
    np.testing.assert_allclose(shares, 1 / 3, atol=0.1)


def test_cameras_leave_a_lost_replica_and_return_after_their_state_is_written(monkeypatch):
    monkeypatch.setattr("covshift.serve.replicas.placing._PERIOD", 0.01)

    async def scenario() -> None:
        replicas = Replicas()
        placing = await placed(replicas)
        home, other = ranked("gate", NAMES)[:2]
        assert await placing.call("gate", "answer") == home
        replicas.dead = {home}
        assert await placing.call("gate", "answer") == other, "the request is sent again, elsewhere"
        replicas.dead = set()
        while len(placing.up) < 3:
            await asyncio.sleep(0.01)
        replicas.calls.clear()
        assert await placing.call("gate", "answer") == home
        assert [call[:2] for call in replicas.calls] == [(other, "release"), (home, "answer")]
        assert placing.counts == Counts(3, 6)
        await placing.stop()

    asyncio.run(scenario())


def test_a_camera_stays_while_it_is_in_use_or_cannot_be_written(monkeypatch):
    monkeypatch.setattr("covshift.serve.replicas.placing._PERIOD", 0.01)

    async def scenario() -> None:
        replicas = Replicas()
        home, other = ranked("gate", NAMES)[:2]
        replicas.dead = {home}
        placing = await placed(replicas)
        assert await placing.call("gate", "answer") == other
        replicas.dead = set()
        while len(placing.up) < 3:
            await asyncio.sleep(0.01)
        replicas.release = lambda: False
        assert await placing.call("gate", "answer") == other
        replicas.release = lambda: True
        answers = await asyncio.gather(*(placing.call("gate", "answer") for _ in range(5)))
        assert set(answers) == {home}, "all move together"
        await placing.stop()

    asyncio.run(scenario())


def test_without_any_replica_a_request_waits_and_is_then_refused(monkeypatch):
    monkeypatch.setattr("covshift.serve.replicas.placing._PATIENCE", 0.2)

    async def scenario() -> None:
        replicas = Replicas()
        replicas.dead = set(NAMES)
        placing = await placed(replicas)
        with pytest.raises(Refusal, match="no replica") as refused:
            await placing.call("gate", "answer")
        assert refused.value.status == 503
        await placing.stop()

    asyncio.run(scenario())


def test_places_do_not_grow_without_bound():
    async def scenario() -> None:
        replicas = Replicas()
        placing = await placed(replicas, cameras=10)
        for camera in CAMERAS:
            await placing.call(camera, "answer")
        assert len(placing._places) == 10
        await placing.stop()

    asyncio.run(scenario())


def test_the_front_passes_refusals_on():
    async def ask(name: str, method: str, *arguments: Any) -> Any:
        if method == "describe":
            return Known((3, SIDE, SIDE), 4, tiny_model().preprocess, ["gate"])
        return Counts() if method == "counts" else Refusal("there is no such camera", status=404)

    async def scenario() -> None:
        front = Front(Settings(), NAMES, ask, (LostError,))
        await front.start()
        assert front.ready
        assert "gate" in front.cameras
        with pytest.raises(Refusal, match="no such camera"):
            await front.answer(torch.zeros(1, 3, SIDE, SIDE), "gate")
        with pytest.raises(Refusal, match="no such camera"):
            await asyncio.to_thread(front.cameras.reset, "yard")
        await front.stop()

    asyncio.run(scenario())


def test_the_front_has_all_that_the_routes_ask_for():
    """The whole application on a front, with a replica that answers every request with the same outcome."""
    event = Answered("gate", 0.0, 1, 0.01, 0.0, 1, "holding", "", 0.1, 1.0)
    outcome = Outcome(np.zeros((1, 4), np.float32), Brief("holding", "", 0.1, 1.0), False, event)

    async def ask(name: str, method: str, *arguments: Any) -> Any:
        if method == "describe":
            return Known((3, SIDE, SIDE), 4, tiny_model().preprocess, ["yard"])
        return {"counts": Counts(), "answer": outcome, "control": {}}[method]

    ended: list[str] = []

    def extras(front: Backend) -> list[APIRouter]:
        front.at_end.append(lambda: ended.append("webhook"))
        return [watch(front)]

    front = Front(Settings(), NAMES, ask, (LostError,))
    with running(front, extras(front)) as server:
        assert server.infer(np.zeros((1, 3, SIDE, SIDE), np.float32), "gate").status == 200
        assert server.request("POST", "/v1/cameras/gate/reset").status == 200
        listed = server.request("GET", "/v1/cameras").json["cameras"]
        assert [each["camera"] for each in listed] == ["gate", "yard"]
        assert server.request("GET", "/nowhere").status == 404
        assert 'covshift_refused_total{status="404"} 1.0' in server.request("GET", "/metrics").body.decode()
        assert server.request("GET", "/").status == 200
        assert not ended
    assert ended == ["webhook"]


def test_the_front_and_two_replicas_answer_as_one_server(tmp_path, monkeypatch):
    """All in this process: a replica is lost and comes back; the answers are those of one model that saw all frames."""
    monkeypatch.setattr("covshift.serve.replicas.placing._PERIOD", 0.01)
    recipe = Recipe(model="builtin:resnet20", state=str(tmp_path / "cameras.sqlite"), policy="stream")
    frames = [images(1, 32, seed=seed, dtype=torch.float32) for seed in range(6)]
    model = covshift.open_model(recipe.model)
    with torch.inference_mode(), covshift.adapt(model, Stream()):
        wanted = [model(frame) for frame in frames]
    dead: set[str] = set()

    async def scenario() -> None:
        replicas = {name: Replica() for name in NAMES[:2]}
        for replica in replicas.values():
            await replica.start(recipe)

        async def ask(name: str, method: str, *arguments: Any) -> Any:
            if name in dead:
                raise LostError
            return await getattr(replicas[name], method)(*arguments)

        front = Front(recipe.settings, list(replicas), ask, (LostError,))
        await front.start()
        answered = []
        front.feed.subscribe(lambda event: answered.append(event.remembered))
        for number, frame in enumerate(frames):
            if number == 2:
                dead.add(ranked("gate", NAMES[:2])[0])
            if number == 4:
                dead.clear()
                while len(front.placing.up) < 2:
                    await asyncio.sleep(0.01)
            outcome = await front.answer(frame, "gate")
            torch.testing.assert_close(torch.from_numpy(outcome.logits), wanted[number], rtol=0, atol=1e-4)
            await asyncio.to_thread(replicas["a"]._service.writer.write)  # as it does itself a little later
            await asyncio.to_thread(replicas["b"]._service.writer.write)
        assert answered == [1, 2, 3, 4, 5, 6]
        await front.answer(frames[0])
        assert (await asyncio.to_thread(front.cameras.listed))["gate"].remembered == 6
        assert len(await asyncio.to_thread(front.cameras.save, "gate")) > 1000
        await asyncio.to_thread(front.cameras.forget, "gate")
        assert "gate" not in front.cameras
        with pytest.raises(Refusal, match="no camera"):
            await asyncio.to_thread(front.cameras.freeze, "gate")
        await front.stop()
        for replica in replicas.values():
            await replica.stop()

    asyncio.run(scenario())


@pytest.fixture(params=["sqlite", "redis"])
def stores(request, tmp_path) -> "Any":
    """Two servers' views of one store."""
    if request.param == "sqlite":
        yield [open_store(str(tmp_path / "cameras.sqlite"), "scope", owner) for owner in ("one", "two")]
        return
    with redis_server() as url:
        yield [open_store(url, "scope", owner) for owner in ("one", "two")]


def test_only_the_owner_of_a_camera_writes_it(stores):
    one, two = stores
    one.claim("gate")
    one.claim("yard")
    assert (one.owns("gate"), two.owns("gate")) == (True, False)
    one.put({"gate": b"of one", "yard": b"yard of one"})
    two.claim("gate")
    assert two.get("gate") == b"of one"
    two.put({"gate": b"of two"})
    one.put({"gate": b"late", "yard": b"later"})
    assert (one.get("gate"), one.get("yard")) == (b"of two", b"later")
    one.delete(["gate", "yard"])
    assert one.names() == ["gate"]
    for store in stores:
        store.close()


def cameras_on(store: Store) -> tuple[Fleet, Cameras]:
    fleet = Fleet(tiny_model(), Stream())
    return fleet, Cameras(fleet, store, Limits())


def frame(number: int) -> torch.Tensor:
    return images(1, SIDE, seed=number, dtype=torch.float32)


def answer(fleet: Fleet, cameras: Cameras, number: int) -> torch.Tensor:
    with cameras.held("gate"):
        logits = fleet.answer({"gate": frame(number)})["gate"]
        cameras.touched(["gate"])
    return logits


def test_a_camera_moves_between_servers_and_back_without_a_stale_memory(stores):
    """The answers are those of one server that has seen all frames, whoever answers."""
    alone, single = cameras_on(open_store("memory", "scope"))
    wanted = [answer(alone, single, number) for number in range(6)]
    servers = [cameras_on(store) for store in stores]
    for number, server in enumerate([0, 0, 1, 1, 0, 1]):
        fleet, cameras = servers[server]
        got = answer(fleet, cameras, number)
        torch.testing.assert_close(got, wanted[number], rtol=0, atol=1e-6)
        # A server that is killed has written before, one that is told to let go writes then; both keep nothing newer.
        cameras.flush() if number % 2 else cameras.release("gate")
    servers[0][1].forget("gate")  # which it does not have in memory, but takes over for that
    servers[0][1].flush()
    with pytest.raises(Refusal, match="no camera"):
        cameras_on(stores[0])[1].reset("gate")
    for fleet, _ in [*servers, (alone, single)]:
        fleet.remove()
    for store in stores:
        store.close()


def test_a_camera_in_use_is_not_released(tmp_path):
    fleet, cameras = cameras_on(open_store(str(tmp_path / "cameras.sqlite"), "scope", "one"))
    with cameras.held("gate"):
        assert not cameras.release("gate")
    assert cameras.release("gate")
    assert cameras.resident == 0
    fleet.remove()
    cameras.store.close()


def test_a_recipe_needs_a_shared_store():
    with pytest.raises(CovshiftError, match="store that all replicas share"):
        Recipe(model="builtin:resnet20", state="memory")


def test_the_configuration_file_of_the_docs_is_valid():
    schema = pytest.importorskip("ray.serve.schema")
    from covshift.serve.replicas.deploy import application

    (block,) = blocks(ROOT / "docs" / "howto" / "serve.md", "yaml")
    described = schema.ServeDeploySchema.model_validate(yaml.safe_load(block.code))
    (app,) = described.applications
    assert app.import_path == f"{application.__module__}:{application.__name__}"
    assert type(application(app.args)).__name__ == "Application"
    with pytest.raises(CovshiftError, match="unknown argument 'bach'"):
        application({**app.args, "settings": {"bach": 3}})
    with pytest.raises(CovshiftError, match="replicas: Input should be a valid integer"):
        application({**app.args, "replicas": "many"})
    with pytest.raises(CovshiftError, match="needs a predictor"):
        application({**app.args, "rules": {"error": 0.3}})


def test_the_local_server_imports_no_ray():
    code = "import sys, covshift.serve.app, covshift.serve.build, covshift.serve.run, covshift.cli.serve, "
    code += "covshift.cli.serve_ray, covshift.serve.replicas.front; sys.exit('ray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
