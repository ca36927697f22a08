"""Sends alarms to a URL: as JSON, from a thread of its own, with a few retries."""

import logging
import queue
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from covshift.serve.alarms import Alarm
from covshift.serve.protocol import to_json
from covshift.support.errors import CovshiftError

_log = logging.getLogger(__name__)

_WAITING = 1_000  # alarms; more are dropped, and logged
_TRIES, _PAUSE, _PATIENCE = 4, 1.0, 5.0
_LAST = 10.0  # seconds for what still waits when the server stops


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirect, which could send the token to somebody else."""

    def redirect_request(self, *args: Any) -> None:
        """Return None: the redirect is an error."""


class Webhook:
    """Sends each alarm to a URL, by POST, in the order in which they came.

    The body is JSON with `text`, a sentence that chat programs show, and `camera`, `alarm` ("raised" or "cleared"),
    `kind`, `value`, `limit` and `time`.

    Args:
        url: an http or https URL.
        token: a bearer token to send along; None for none.
        pause: seconds before the second try; doubled for each further one.
    """

    def __init__(self, url: str, token: str | None = None, *, pause: float = _PAUSE) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise CovshiftError(f"expected the URL of a webhook such as https://host/path, got {url!r}")
        self._url, self._token, self._pause = url, token, pause
        self._host = parts.hostname  # all that is logged: the rest of a webhook's URL is often a secret
        self._opener = urllib.request.build_opener(_NoRedirect)
        self._queue: queue.Queue[Alarm | None] = queue.Queue(_WAITING)
        self._thread: threading.Thread | None = None

    def send(self, alarm: Alarm) -> None:
        """Put an alarm in the queue and return at once."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._loop, name="covshift-webhook", daemon=True)
            self._thread.start()
        try:
            self._queue.put_nowait(alarm)
        except queue.Full:
            _log.error("too many alarms wait for the webhook at %s; one was dropped: %s", self._host, alarm.text)

    def close(self, patience: float = _LAST) -> None:
        """Send what still waits, for up to so many seconds; what is left then is lost, and logged."""
        if self._thread is None:
            return
        end = time.monotonic() + patience
        with suppress(queue.Full):
            self._queue.put(None, timeout=patience)
        self._thread.join(max(0.0, end - time.monotonic()))
        if self._thread.is_alive():
            _log.error("the server stops while alarms still wait for the webhook at %s; they are lost", self._host)

    def _loop(self) -> None:
        while (alarm := self._queue.get()) is not None:
            try:
                _again(partial(self._post, alarm), self._pause)
            except (OSError, ValueError) as error:
                _log.error("the webhook at %s does not take alarms: %s; lost: %s", self._host, error, alarm.text)

    def _post(self, alarm: Alarm) -> None:
        content = {
            "text": alarm.text,
            "camera": alarm.camera,
            "alarm": "raised" if alarm.raised else "cleared",
            "kind": alarm.kind,
            "value": alarm.value,
            "limit": alarm.limit,
            "time": alarm.time,
        }
        headers = {"Content-Type": "application/json"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        request = urllib.request.Request(self._url, to_json(content), headers)  # noqa: S310
        self._opener.open(request, timeout=_PATIENCE).close()


def _again(send: Callable[[], None], pause: float) -> None:
    """Call a function until it succeeds, a few times, with longer and longer pauses."""
    for trial in range(_TRIES):
        try:
            send()
            return
        except (urllib.error.URLError, OSError) as error:
            refused = isinstance(error, urllib.error.HTTPError) and error.code < 500 and error.code != 429
            if refused or trial == _TRIES - 1:
                raise
            time.sleep(pause * 2**trial)
