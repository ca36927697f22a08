"""Alarms: as rare as they were set when nothing is wrong, soon when something is, and no flapping."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import numpy as np
import pytest

from covshift import CovshiftError
from covshift.serve.alarms import CHANCE, Alarm, Alarms, Evidence, Rules
from covshift.serve.events import Answered, Predicted
from covshift.serve.webhook import Webhook

HOUR = 3600.0
MEMORY = 200


def event(time: float, shift: float, *, images: int = 1, remembered: float = MEMORY, **more: object) -> Answered:
    given = {"camera": "gate", "done": "holding", **more}
    return Answered(
        given.pop("camera"), time, images, 0.01, 0.0, images, given.pop("done"), "", shift, remembered, **given
    )


def remembered_shift(
    rng: np.random.Generator, images: int, shifted: float, step: int, channels: int = 50
) -> np.ndarray:
    """The shift of a camera as a memory of 200 images has it, after every step: its looks are correlated by that."""
    kept = (1 - 1 / MEMORY) ** step
    noise = rng.normal(size=(images // step, channels)) * np.sqrt((1 - kept**2) / (2 * MEMORY - 1))
    mean = shifted + rng.normal(size=channels) / np.sqrt(2 * MEMORY - 1)
    shifts = np.empty(len(noise))
    for index, fresh in enumerate(noise):
        mean = kept * mean + (1 - kept) * shifted + fresh
        shifts[index] = np.sqrt(np.mean(mean**2))
    return shifts


def run(alarms: list[Alarm], shifts: np.ndarray, rules: Rules, *, start: float = 0.0) -> Alarms:
    """Ten images each second."""
    watching = Alarms(rules, alarms.append)
    for second, shift in enumerate(shifts):
        watching.note(event(start + second, float(shift), images=10))
    return watching


@pytest.mark.parametrize("between", [HOUR, 4 * HOUR])
def test_mean_time_to_a_false_alarm_is_at_least_what_was_set(between):
    """At the very limit of what counts as healthy, with independent looks every 20 seconds."""
    rng, times = np.random.default_rng(0), []
    for _ in range(200):
        evidence, looks = Evidence(between), 0
        while True:
            looks += 1
            if evidence.add(20.0, bool(rng.random() < CHANCE)):
                break
        times.append(20.0 * looks)
    error = np.std(times) / np.sqrt(len(times))
    assert np.mean(times) > between - 2 * error
    assert np.mean(times) < 6 * between  # and not far rarer, which would cost delay


def test_a_camera_whose_memory_correlates_its_looks_keeps_the_rate():
    """At an image a second, with a limit that is exceeded by chance now and then."""
    rng, rules = np.random.default_rng(1), Rules(shift=0.0565, days=0.5)
    alarms: list[Alarm] = []
    beyond, days = [], 40
    for _ in range(days):
        shifts = remembered_shift(rng, images=86_400, shifted=0.0, step=50)
        beyond.append(np.mean(shifts > rules.shift))
        watching = Alarms(rules, alarms.append)
        for index, shift in enumerate(shifts):
            watching.note(event(index * 50.0, float(shift), images=50))
    assert 0.02 < np.mean(beyond) < 0.15, "the simulation must exceed the limit by chance, or it shows nothing"
    assert sum(alarm.raised for alarm in alarms) <= days / rules.days


def test_a_shift_is_noticed_within_minutes_at_a_false_alarm_a_month():
    rng, rules, delays = np.random.default_rng(2), Rules(shift=0.1, days=30), []
    for _ in range(20):
        shifts = np.concatenate([remembered_shift(rng, 6_000, level, step=10) for level in (0.0, 0.2)])
        alarms: list[Alarm] = []
        run(alarms, shifts, rules)
        assert [alarm.raised for alarm in alarms] == [True]
        delays.append(alarms[0].time - 600)
    assert min(delays) > 0
    assert np.mean(delays) < 240  # 12 looks at 200 images, ten in a second


def test_an_alarm_is_raised_once_and_cleared_once():
    alarms: list[Alarm] = []
    shifts = np.concatenate([np.full(300, 0.05), np.full(900, 0.2), np.full(900, 0.05)])
    run(alarms, shifts, Rules(shift=0.1, days=1))
    assert [alarm.raised for alarm in alarms] == [True, False]
    assert alarms[0].text == "gate: the shift is 0.2; it is beyond the limit of 0.1"
    assert alarms[1].text == "gate: the shift is 0.05; it is within the limit of 0.1 again"


def test_a_shift_that_hovers_at_the_limit_does_not_flap():
    alarms: list[Alarm] = []
    shifts = np.concatenate([np.full(900, 0.2), np.tile([0.095, 0.105], 5_000)])
    run(alarms, shifts, Rules(shift=0.1, days=1))
    assert [alarm.raised for alarm in alarms] == [True]


def test_a_frozen_camera_and_the_first_images_raise_nothing():
    alarms: list[Alarm] = []
    watching = Alarms(Rules(shift=0.1, days=0.001), alarms.append)
    for second in range(1000):
        watching.note(event(float(second), 0.5, images=10, done="frozen"))
    for second in range(1000, 2000):  # what is known of a few images is mostly chance
        watching.note(event(float(second), 0.5, images=1, reset=second % 10 == 0))
    assert not alarms
    for second in range(2000, 3000):  # a camera that is far off and starts anew again and again is no healthy one
        watching.note(event(float(second), 0.5, images=1, reset=second % 40 == 0))
    assert [alarm.raised for alarm in alarms] == [True]


def test_a_predicted_error_counts_by_the_lower_end_of_its_interval():
    for predicted, raised in [
        (Predicted(0.4, 0.35, 0.45), True),
        (Predicted(0.4, 0.25, 0.55), False),
        (None, True),  # cannot tell
    ]:
        alarms: list[Alarm] = []
        watching = Alarms(Rules(error=0.3, days=1), alarms.append)
        for second in range(1000):
            watching.note(event(float(second), 0.1, images=10, predicted=predicted))
        assert [alarm.raised for alarm in alarms] == [True] * raised


def test_cameras_are_apart_and_requests_without_one_ignored():
    alarms: list[Alarm] = []
    watching = Alarms(Rules(shift=0.1, days=1), alarms.append)
    for second in range(2000):
        for camera, shift in (("good", 0.05), ("bad", 0.2), ("", 0.2)):
            watching.note(event(float(second), shift, images=10, camera=camera))
    assert {alarm.camera for alarm in alarms} == {"bad"}


@pytest.mark.parametrize("wrong", [{"shift": 0.0}, {"error": -1.0}, {"shift": 0.1, "days": 0.0}])
def test_rules_are_checked(wrong):
    with pytest.raises(CovshiftError, match="expected the"):
        Rules(**wrong)


class Hook(BaseHTTPRequestHandler):
    """A webhook that refuses the first message once, and keeps the others."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.tries += 1
        if self.server.tries == 1:
            self.send_response(503)
        else:
            self.server.bodies.append((self.headers.get("Authorization"), json.loads(body)))
            self.send_response(204)
            self.server.came.release()
        self.end_headers()

    def log_message(self, *args: object) -> None:
        """Print nothing."""


@pytest.fixture
def hook() -> Iterator[HTTPServer]:
    with HTTPServer(("127.0.0.1", 0), Hook) as server:
        server.tries, server.bodies, server.came = 0, [], threading.Semaphore(0)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_a_webhook_gets_every_alarm_in_order_also_if_it_fails_once(hook):
    webhook = Webhook(f"http://127.0.0.1:{hook.server_port}/alarms", "secret", pause=0.01)
    for raised in (True, False):
        webhook.send(Alarm("gate", raised, "shift", 0.2, 0.1, 5.0))
    assert hook.came.acquire(timeout=60)
    assert hook.came.acquire(timeout=60)
    assert [body["alarm"] for _, body in hook.bodies] == ["raised", "cleared"]
    token, body = hook.bodies[0]
    assert token == "Bearer secret"
    assert body["text"].startswith("gate: the shift is 0.2")
    assert (body["camera"], body["kind"], body["value"], body["limit"], body["time"]) == ("gate", "shift", 0.2, 0.1, 5)


@pytest.mark.parametrize("url", ["file:///etc/passwd", "alarms", "ftp://host/", "http:///path"])
def test_a_webhook_is_a_web_address(url):
    with pytest.raises(CovshiftError, match="expected the URL of a webhook"):
        Webhook(url)


def test_a_webhook_that_is_closed_sends_what_still_waits(hook):
    webhook = Webhook(f"http://127.0.0.1:{hook.server_port}/alarms", pause=0.01)
    for number in range(5):
        webhook.send(Alarm(f"camera {number}", True, "shift", 0.2, 0.1, 5.0))
    webhook.close()
    assert [body["camera"] for _, body in hook.bodies] == [f"camera {number}" for number in range(5)]


def test_a_webhook_that_does_not_answer_does_not_keep_a_server_from_stopping(caplog):
    webhook = Webhook("http://127.0.0.1:1/alarms", pause=30)
    webhook.close()  # nothing was ever sent
    webhook.send(Alarm("gate", True, "shift", 0.2, 0.1, 5.0))
    webhook.close(patience=0.05)
    assert "they are lost" in caplog.text
