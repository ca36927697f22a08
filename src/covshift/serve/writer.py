"""Writing behind: a thread that brings what cameras remember to the store, some times in a second."""

import logging
import threading
from typing import Self

from covshift.serve.cameras import Cameras
from covshift.serve.stores import StoreError

PERIOD = 0.4
"""Seconds between two writes: what a killed server loses, with the time that a write takes, stays below a second."""

_log = logging.getLogger(__name__)


class Writer:
    """Writes changed cameras to the store in the background; a store that fails is tried again.

    Attributes:
        failures: the number of writes that failed.
        failing: whether the last write failed.
    """

    def __init__(self, cameras: Cameras, period: float = PERIOD) -> None:
        self._cameras = cameras
        self._period = period
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="covshift-writer", daemon=True)
        self.failures = 0
        self.failing = False

    def start(self) -> Self:
        """Start the thread."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """Write what has changed for the last time, and end the thread."""
        self._stop.set()
        self._thread.join()
        if self.failing:
            _log.error("the server stops while cameras cannot be written; what they saw since the last write is lost")

    def write(self) -> None:
        """Write what has changed, then drop idle cameras from memory."""
        try:
            self._cameras.flush()
            if self.failing:
                _log.warning("the store of cameras is back, and has all that is in memory")
            self.failing = False
        except StoreError as error:
            if not self.failing:
                _log.warning("%s; cameras are kept in memory until it is back", error)
            self.failing = True
            self.failures += 1
        self._cameras.evict()

    def _run(self) -> None:
        while not self._stop.wait(self._period):
            self._safely()
        self._safely()

    def _safely(self) -> None:
        try:
            self.write()
        except Exception:  # a camera that cannot be written must not keep all others from it
            _log.exception("writing to the store of cameras failed")
