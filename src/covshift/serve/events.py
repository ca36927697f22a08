"""What the server tells about itself: one event for every answered request, for metrics, alarms and the live page."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from covshift.core.health import State

Done = State | Literal["frozen"]
"""What was done for a camera: as in `Health`, or "frozen" if what it remembers was kept as it is."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Predicted:
    """An error that is predicted for a camera, from 0 to 1, with its interval."""

    error: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Answered:
    """One request that was answered.

    Attributes:
        camera: the name of the camera; "" for a request without one.
        time: when it was answered, in seconds since 1970.
        images: the number of its images.
        latency: seconds from its arrival to its answer.
        waited: seconds of these before its forward pass began.
        batch: the number of images in its forward pass, those of other cameras included.
        done: what was done for the camera.
        why: the reason, in words.
        shift: how far the camera is from the source, in standard deviations; None before its first image.
        remembered: the number of images that count.
        predicted: the error to expect; None where that cannot be told.
        reset: whether the camera started anew with this request.
        thumbnail: a small JPEG of the last image, where thumbnails are kept.
    """

    camera: str
    time: float
    images: int
    latency: float
    waited: float
    batch: int
    done: Done
    why: str
    shift: float | None
    remembered: float
    predicted: Predicted | None = None
    reset: bool = False
    thumbnail: bytes | None = None


Listener = Callable[[Answered], None]
"""What is called for every event, in the thread of the event loop; it must return at once and must not raise."""


class Feed:
    """Hands every event to all listeners.

    >>> feed, names = Feed(), []
    >>> stop = feed.subscribe(lambda event: names.append(event.camera))
    >>> feed.publish(Answered("gate", 0.0, 1, 0.01, 0.0, 8, "holding", "", 0.1, 20))
    >>> stop()
    >>> names
    ['gate']
    """

    def __init__(self) -> None:
        self._listeners: list[Listener] = []

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Have `listener` called for every event from now on; returns a function that ends this."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def publish(self, event: Answered) -> None:
        """Call every listener; one that fails is logged, and does not keep the others from being called."""
        for listener in tuple(self._listeners):
            try:
                listener(event)
            except Exception:
                _log.exception("a listener to the events of the server failed")
