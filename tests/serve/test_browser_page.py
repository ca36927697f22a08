"""The live page in a real browser: offline, without complaints, kept up to date, and its buttons work."""

import json
from collections.abc import Iterator

import numpy as np
import pytest
from browser import INSTALLED, Browser, browser
from serving import SIDE, Served, serving

from covshift.serve.alarms import Rules
from covshift.serve.settings import Settings
from covshift.serve.watch import watch

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not INSTALLED, reason="chromium and chromium-driver are not installed; make test-browser does"),
]

IMAGE = np.random.default_rng(0).normal(size=(1, 3, SIDE, SIDE)).astype(np.float32)
TILE = "return document.getElementById('camera-' + arguments[0])"


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    with browser() as opened:
        yield opened


def show(window: Browser, served: Served, width: int, *, dark: bool = False) -> None:
    window.cdp("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    window.cdp("Emulation.setEmulatedMedia", features=[scheme])
    window.post("url", url="about:blank")  # the page of another test asks for its server again and again
    window.log("browser"), window.log("performance")
    window.post("url", url=f"http://{served.address}/")


def requested(window: Browser) -> set[str]:
    messages = [json.loads(entry["message"])["message"] for entry in window.log("performance")]
    return {each["params"]["request"]["url"] for each in messages if each["method"] == "Network.requestWillBeSent"}


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (390, False), (390, True)])
def test_it_is_offline_without_complaints_and_fits(window, width, dark):
    with serving(extras=lambda service: [watch(service, Rules(shift=0.3))]) as served:
        for camera in ("gate", "a.rather-long_name:" + "x" * 100):
            served.infer(IMAGE, camera)
        show(window, served, width, dark=dark)
        window.wait("return document.querySelectorAll('.tile').length === 2")
        assert window.run("return document.documentElement.scrollWidth") <= width
        assert {url.split("/")[2] for url in requested(window) if not url.startswith(("data:", "about:"))} == {
            served.address
        }
        assert window.log("browser") == []
        background = window.run("return getComputedStyle(document.body).backgroundColor")
        assert (background == "rgb(20, 24, 27)") is dark
        unnamed = "return [...document.querySelectorAll('button, input, select, svg, img:not([hidden]), article')]"
        unnamed += ".filter(e => !e.closest('dialog') && !e.getAttribute('aria-label') && !e.alt && !e.labels?.length)"
        assert window.run(unnamed + ".length") == 0


def test_events_update_a_tile(window):
    with serving(extras=lambda service: [watch(service)]) as served:
        served.infer(IMAGE, "gate")
        show(window, served, 1280)
        window.wait(f"{TILE}?.querySelector('.images').textContent === '1'", "gate")
        served.infer(IMAGE, "gate")
        served.infer(IMAGE, "yard")
        window.wait(f"{TILE}.querySelector('.images').textContent === '2'", "gate")
        window.wait(f"{TILE} !== null", "yard")
        served.request("DELETE", "/v1/cameras/yard")
        window.wait(f"{TILE} === null", "yard")


def test_reset_and_freeze_work_with_the_keyboard_and_the_token(window):
    settings = Settings(delay=0.0, control="turn")
    with serving(settings, extras=lambda service: [watch(service)]) as served:
        served.infer(IMAGE, "gate")
        show(window, served, 390)
        window.wait(f"{TILE} !== null", "gate")
        camera = served.service.fleet["gate"]
        window.run(f"{TILE}.querySelector('.freeze').focus()", "gate")
        for kind in ("keyDown", "keyUp"):
            window.cdp("Input.dispatchKeyEvent", type=kind, key=" ", code="Space", text=" ", windowsVirtualKeyCode=32)
        window.wait("return document.getElementById('ask').open")  # watching needs no token here, freezing does
        assert not camera.frozen
        window.run("document.getElementById('token').value = 'turn'; document.querySelector('#ask button').click()")
        window.wait(f"{TILE}.dataset.state === 'frozen'", "gate")
        assert camera.frozen
        window.run(f"{TILE}.querySelector('.freeze').click()", "gate")
        window.wait(f"{TILE}.querySelector('.freeze').getAttribute('aria-pressed') === 'false'", "gate")
        assert not camera.frozen
        assert camera.memory.seen
        window.run(f"{TILE}.querySelector('.reset').click()", "gate")
        window.wait(f"{TILE}.dataset.state === 'reset'", "gate")
        assert not camera.memory.seen
        assert window.run("return [localStorage.length, sessionStorage.length, document.cookie]") == [0, 0, ""]
