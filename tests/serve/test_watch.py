"""What shows a server from outside: metrics with few labels, events for the page, tokens, the demonstration."""

import http.client
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families
from serving import SIDE, Served, serving, tiny_model

from covshift import Source
from covshift.serve.alarms import Rules
from covshift.serve.board import POINTS, Board, History
from covshift.serve.demo import Demo, Scene, running
from covshift.serve.events import Answered, Predicted
from covshift.serve.settings import Settings
from covshift.serve.watch import watch

IMAGE = np.random.default_rng(0).normal(size=(1, 3, SIDE, SIDE)).astype(np.float32)


def watched(**arguments):
    return lambda service: [watch(service, **arguments)]


def metrics(served: Served) -> dict[str, list]:
    text = served.request("GET", "/metrics").body.decode()
    return {family.name: family.samples for family in text_string_to_metric_families(text)}


@contextmanager
def events(served: Served, **headers: str) -> Iterator[Iterator[tuple[str, dict]]]:
    """The messages of the server, as they come."""
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=120)
    connection.request("GET", "/v1/events", headers=headers)
    answer = connection.getresponse()
    assert answer.status == 200
    assert answer.headers["Content-Type"].startswith("text/event-stream")

    def read() -> Iterator[tuple[str, dict]]:
        kind = ""
        while line := answer.readline().decode().rstrip():
            kind = line.removeprefix("event: ")
            yield kind, json.loads(answer.readline().decode().removeprefix("data: "))
            answer.readline()

    try:
        yield read()
    finally:
        connection.close()


def test_metrics_count_what_was_asked():
    with serving(extras=watched()) as served:
        for camera, times in (("gate", 3), ("yard", 2), (None, 1)):
            for _ in range(times):
                assert served.infer(IMAGE, camera).status == 200
        found = metrics(served)
    assert found["covshift_images"][0].value == 6
    assert {each.labels["camera"]: each.value for each in found["covshift_camera_images"]} == {"gate": 3, "yard": 2}
    assert {each.labels["camera"] for each in found["covshift_camera_shift"]} == {"gate", "yard"}
    count = next(each for each in found["covshift_request_seconds"] if each.name.endswith("_count"))
    assert count.value == 6
    states = found["covshift_camera_state"]
    assert sum(each.value for each in states) == 2  # one for each camera


def test_label_count_stays_bounded_with_1000_cameras():
    with serving(extras=watched(labelled=20)) as served:
        served.service.cameras._known |= {f"camera-{number}" for number in range(1000)}
        sizes = []
        for start in (0, 500):
            for number in range(start, start + 500):
                served.service.feed.publish(
                    Answered(
                        f"camera-{number}", time.time(), 1, 0.01, 0.0, 8, "holding", "", 0.1, 20, Predicted(0.1, 0, 0.2)
                    )
                )
            found = metrics(served)
            sizes.append(sum(map(len, found.values())))
            names = {each.labels["camera"] for family in found.values() for each in family if "camera" in each.labels}
            assert len(names) == 20
        assert found["covshift_cameras_unlabelled"][0].value == 980
        assert sizes[0] == sizes[1] < 400


def test_the_dashboard_asks_for_metrics_that_exist():
    dashboard = json.loads((files("covshift.serve") / "assets" / "dashboard.json").read_text())
    with serving(extras=watched()) as served:
        served.infer(IMAGE, "gate")
        assert served.request("GET", "/grafana.json").json == dashboard
        text = served.request("GET", "/metrics").body.decode()
    words = {
        word
        for panel in dashboard["panels"]
        for target in panel["targets"]
        for word in target["expr"].replace("{", " ").replace("(", " ").split()
        if word.startswith(("covshift_", "process_"))
    }
    assert len(words) > 10
    assert [word for word in words if word not in text] == []


def test_events_bring_all_cameras_then_what_changes_and_who_is_gone():
    with serving(extras=watched(rules=Rules(shift=0.5))) as served:
        served.infer(IMAGE, "gate")
        with events(served) as messages:
            kind, hello = next(messages)
            assert (kind, hello["limits"]) == ("hello", {"shift": 0.5})
            kind, value = next(messages)
            (gate,) = value["cameras"]
            assert (kind, gate["camera"], gate["images"], len(gate["history"])) == ("cameras", "gate", 1, 1)
            assert next(messages) == ("only", {"cameras": ["gate"]})
            served.infer(IMAGE, "yard")
            kind, value = next(messages)
            assert [each["camera"] for each in value["cameras"]] == ["yard"]
            assert served.request("DELETE", "/v1/cameras/gate").status == 200
            assert next(messages) == ("gone", {"cameras": ["gate"]})


def test_an_open_page_does_not_keep_the_server_from_stopping():
    with serving(extras=watched()) as served, events(served) as messages:
        next(messages)
        served.service.stopping.set()
        for _ in messages:  # which end by themselves
            pass


@pytest.mark.parametrize("path", ["/metrics", "/v1/events"])
def test_names_of_cameras_need_a_token_where_there_is_one(path):
    with serving(Settings(token="look", control="turn"), extras=watched()) as served:
        assert served.request("GET", path).status == 401
        assert served.request("GET", path, headers={"Authorization": "Bearer wrong"}).status == 401
        assert served.request("GET", "/").status == 200  # holds nothing of the cameras
        answer = served.request("GET", "/metrics", headers={"Authorization": "Bearer turn"})
        assert answer.status == 200
        assert "access-control-allow-origin" not in answer.headers


def test_the_page_has_no_address_of_others_and_no_script_inside():
    for name in ("index.html", "page.css", "page.js"):
        text = (files("covshift.serve") / "assets" / name).read_text()
        assert "https://" not in text
        assert "//cdn" not in text
        assert "innerHTML" not in text
    assert "<script>" not in (files("covshift.serve") / "assets" / "index.html").read_text()


def test_a_history_keeps_its_last_points():
    history = History()
    for second in range(POINTS + 10):
        history.add(second, second / 10, None)
    assert len(history.points) == POINTS
    assert history.points[0] == [10, 1.0, None]
    assert history.points[-1][0] == POINTS + 9


def test_the_board_stays_bounded(monkeypatch):
    monkeypatch.setattr("covshift.serve.board.CAMERAS", 10)
    board = Board()
    for number in range(30):
        board.note(Answered(f"c{number}", 0.0, 1, 0.01, 0.0, 8, "holding", "", 0.1, 20))
    assert list(board) == [f"c{number}" for number in range(20, 30)]


def test_the_demonstration_runs_through_fog_and_raises_an_alarm():
    """With frames that are grey in fog, as fast as they are answered."""
    clean = np.random.default_rng(0).integers(0, 256, (50, SIDE, SIDE, 3), np.uint8)
    foggy = (clean // 8 + 200).astype(np.uint8)
    scenes = (Scene("gate", 150, 600), Scene("harbour"))

    def extras(service):
        rules = Rules(shift=0.3, days=1e-6)
        return [watch(service, rules), running(Demo(service, clean, foggy, scenes, frames=1000))]

    until, found = time.monotonic() + 300, {}
    model = tiny_model()
    source = Source.measure(model, model.preprocess.tensor(clean))
    settings = Settings(delay=0.0, thumbnails=True)
    with serving(settings, model=model, source=source, extras=extras) as served:
        while time.monotonic() < until and not found.get("gate"):
            time.sleep(0.1)
            found = {each.labels["camera"]: each.value for each in metrics(served)["covshift_camera_alarm"]}
        with events(served) as messages:
            next(messages)
            cameras = {each["camera"]: each for each in next(messages)[1]["cameras"]}
    assert found["gate"] == 1
    assert cameras["gate"]["alarms"]
    assert not cameras["harbour"]["alarms"]
    assert cameras["gate"]["picture"].startswith("/9j/")  # a JPEG
