"""The same run on Ray, whatever happens to its workers."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest
from runs import OPTIONS, answers_in, by_cell, workplace

from covshift.bench.engines.where import Where
from covshift.bench.engines.worker import WorkerSetup
from covshift.bench.run import run
from covshift.bench.settings import Settings
from covshift.support.errors import CovshiftError

pytest.importorskip("ray", reason="the engine on Ray needs Ray: pip install 'covshift[ray]'")
# Ray leaves sockets and processes to the garbage collector.
pytestmark = [pytest.mark.filterwarnings("ignore::ResourceWarning"), pytest.mark.filterwarnings("ignore:Tip")]

RAY = Where("ray", workers=2, cpus=0.5)  # also on a machine with one core
CHANGES = {"corruptions": "fog,spatter,snow", "severities": "1,5", "threads": 1}

TOUCHY = """
import os
import time
from pathlib import Path

import nets
from torch import nn

def wait_for(ready):
    until = time.monotonic() + 300
    while not ready() and time.monotonic() < until:
        time.sleep(0.005)

def others():
    return [file for file in Path().glob("pid-*") if file.name != "pid-" + Path("driver").read_text()]

class Touchy(nn.Sequential):
    def forward(self, x):
        if Path("driver").exists() and str(os.getpid()) != Path("driver").read_text():
            wait_for(lambda: len(others()) > 1)
            if Path("ray/rows.jsonl").exists() and len(Path("ray/rows.jsonl").read_text().splitlines()) > 3:
                wait_for(Path("killed").exists)  # else all may be done before the other worker is
        if len(x) > 1 and x.std() < 0.5 and Path("flat").exists():
            if Path("flat").read_text() == "die":
                os.kill(os.getpid(), 9)
            raise RuntimeError("too flat")
        return super().forward(x)

def net():
    Path(f"pid-{os.getpid()}").touch()
    return Touchy(*nets.net())
"""


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(workplace(tmp_path))
    (tmp_path / "touchy.py").write_text(TOUCHY)
    return tmp_path


@pytest.fixture(scope="module", autouse=True)
def ray_here():
    """One Ray for all tests of this file: starting it is most of the work."""
    from covshift.bench.engines.ray import cluster

    with cluster(RAY):
        yield


def workers() -> set[int]:
    """The processes that have opened the model, but for this one."""
    found = {int(file.name.removeprefix("pid-")) for file in Path().glob("pid-*")} - {os.getpid()}
    return {pid for pid in found if Path(f"/proc/{pid}").exists()}


def test_ray_gives_the_same_rows_though_a_worker_is_killed(here):
    def kill_one() -> None:
        rows, until = Path("ray/rows.jsonl"), time.monotonic() + 200
        while not (rows.exists() and rows.read_text().count("\n") > 3 and len(workers()) == 2):
            if time.monotonic() > until:
                return
            time.sleep(0.002)
        killed.append(min(workers()))
        os.kill(killed[0], signal.SIGKILL)
        Path("killed").touch()

    killed: list[int] = []
    Path("driver").write_text(str(os.getpid()))
    killer = threading.Thread(target=kill_one)
    killer.start()
    options = {**OPTIONS, **CHANGES, "model": "py:touchy:net"}
    run(options, "ray", progress=False, where=RAY)
    killer.join()
    assert killed
    run(options, "local", progress=False)
    assert by_cell("ray") == by_cell("local")
    assert answers_in("ray") == answers_in("local")


def test_workers_get_the_source_of_anchored_methods(here):
    options = {**OPTIONS, **CHANGES, "methods": "none,full:anchored,stream:N=4,anchored", "limit": 40}
    run(options, "ray", progress=False, where=RAY)
    run(options, "local", progress=False)
    assert by_cell("ray") == by_cell("local")


PLUGIN = """
from dataclasses import dataclass

import covshift
import covshift.bench

covshift.corruptions.register("dim", lambda image, factor, rng: image // factor, severities=range(2, 7))
covshift.bench.register("follow", covshift.Stream)

@covshift.bench.register("same")
@dataclass(frozen=True)
class Same(covshift.bench.Method):
    times: int = 1

    def run(self, on):
        on.run(on.images.batches(self.times))
"""


def test_workers_import_plugins(here):
    (here / "dimmed.py").write_text(PLUGIN)
    options = {**OPTIONS, "corruptions": "fog", "severities": "5", "threads": 1, "plugins": "dimmed"}
    options |= {"corruptions": "dim,fog", "methods": "none,follow:n=4,prior=8,same:times=7"}
    run(options, "ray", progress=False, where=RAY)
    run(options, "local", progress=False)
    rows = by_cell("ray")
    assert rows == by_cell("local")
    assert rows["dim/5/same:times=7"]["top1_errors"] == rows["dim/5/none"]["top1_errors"]


@pytest.mark.parametrize(("way", "words"), [("raise", "RuntimeError: too flat"), ("die", "its worker died every")])
def test_what_fails_every_time_is_told_and_the_rest_is_done(here, way, words):
    options = {**OPTIONS, "model": "py:touchy:net", "corruptions": "contrast,fog", "severities": "5"}
    options |= {"methods": "none"}
    Path("flat").write_text(way)
    with pytest.raises(CovshiftError, match=rf"1 cell failed(.|\n)*contrast/5/none: {words}"):
        run(options, "out", progress=False, where=RAY)
    assert set(by_cell("out")) == {"clean/0/none", "fog/5/none"}
    Path("flat").unlink()  # mended: the same command goes on
    run(options, "out", progress=False, where=RAY)
    assert set(by_cell("out")) == {"clean/0/none", "fog/5/none", "contrast/5/none"}


def test_workers_that_cannot_open_the_model(here):
    (here / "here.py").write_text(
        f"import nets, os\n\ndef net():\n    assert os.getpid() == {os.getpid()}, 'only here'\n    return nets.net()\n"
    )
    with pytest.raises(CovshiftError, match=r"no worker can open the model and the data: py:here:net.*only here"):
        run({**OPTIONS, "model": "py:here:net"}, "out", progress=False, where=RAY)


@pytest.mark.parametrize(("takes", "words"), [({"cpus": 1000}, "1000 CPU"), ({"gpus": 500}, "1 CPU and 500 GPU")])
def test_workers_that_this_machine_has_no_room_for(here, takes, words):
    with pytest.raises(
        CovshiftError, match=f"expected workers that fit on this machine, got ones that take {words} each"
    ):
        run(OPTIONS, "out", progress=False, where=Where("ray", **takes))


@pytest.mark.parametrize(
    ("device", "takes", "own"),
    [
        ("auto", {}, "auto"),
        ("auto", {"gpus": 0}, "cpu"),
        ("auto", {"gpus": 0.5}, "auto"),
        ("cuda", {"gpus": 0}, "cuda"),
    ],
)
def test_a_worker_that_takes_no_gpu_uses_none(device, takes, own):
    settings = Settings.read({**OPTIONS, "device": device})
    assert WorkerSetup(settings, "", "", ".", {}, Where("ray", **takes)).own_settings.device == own


def test_workers_must_have_the_same_weights(here):
    (here / "mine.py").write_text(
        "import os, nets\n\ndef net():\n    m = nets.net()\n    m[0].bias.data[0] = os.getpid()\n    return m\n"
    )
    with pytest.raises(CovshiftError, match="opens other weights than the command"):
        run({**OPTIONS, "model": "py:mine:net"}, "out", progress=False, where=RAY)
