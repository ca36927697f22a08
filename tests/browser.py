"""Chromium without a screen, driven through chromedriver's HTTP interface: enough of it for the page's tests."""

import json
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

INSTALLED = bool(shutil.which("chromium") and shutil.which("chromedriver"))


class Browser:
    """One window."""

    def __init__(self, port: int, session: str) -> None:
        self._address = f"http://127.0.0.1:{port}/session/{session}"

    def post(self, path: str, **content: Any) -> Any:
        return _post(f"{self._address}/{path}", content)

    def run(self, script: str, *arguments: Any) -> Any:
        """What a script returns."""
        return self.post("execute/sync", script=script, args=list(arguments))

    def wait(self, script: str, *arguments: Any, seconds: float = 60.0) -> Any:
        """What a script returns once that is true: what a page does in answer to an event, it does a moment later."""
        end = time.monotonic() + seconds
        while not (said := self.run(script, *arguments)) and time.monotonic() < end:
            time.sleep(0.05)
        assert said, f"not within {seconds:.0f} s: {script}"
        return said

    def cdp(self, command: str, **parameters: Any) -> Any:
        return self.post("goog/cdp/execute", cmd=command, params=parameters)

    def log(self, kind: str) -> list[dict[str, Any]]:
        return self.post("se/log", type=kind)

    def open(self, page: Path, width: int, *, dark: bool = False) -> None:
        """Open a page in a window of this width, and wait until its charts are drawn."""
        self.cdp("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.cdp("Emulation.setEmulatedMedia", features=[scheme])
        self.post("url", url=page.resolve().as_uri())
        self.wait("return document.body.dataset.drawn || document.body.dataset.failed")


@contextmanager
def browser() -> Iterator[Browser]:
    """A window, closed at the end, and the driver with it."""
    with subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, text=True) as driver:
        try:
            assert driver.stdout is not None
            line = next(line for line in driver.stdout if "successfully on port" in line)
            port = int(line.strip().rstrip(".").rsplit(" ", 1)[1])
            options = {"args": ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]}
            wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"}}
            made = _post(f"http://127.0.0.1:{port}/session", {"capabilities": {"alwaysMatch": wanted}})
            window = Browser(port, made["sessionId"])
            try:
                yield window
            finally:
                request = urllib.request.Request(window._address, method="DELETE")
                urllib.request.urlopen(request, timeout=60).close()
        finally:
            driver.terminate()


def _post(address: str, content: dict[str, Any]) -> Any:
    request = urllib.request.Request(address, json.dumps(content).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=300) as answer:
        return json.load(answer)["value"]
