"""Metrics for Prometheus: totals, latencies and batches of the server, and what is known of its cameras.

A label with the name of a camera makes a time series of its own for each; so only a bounded number of cameras have
one. A camera keeps its place until it is forgotten or idle for an hour; the others are counted, and part of all totals.
"""

import time
from collections.abc import Iterable, Iterator
from typing import get_args

from prometheus_client import (
    CollectorRegistry,
    Counter,
    GCCollector,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from covshift.core.health import State
from covshift.serve.backend import Backend
from covshift.serve.board import Board, Seen
from covshift.serve.events import Answered

STATES = (*get_args(State), "frozen")
"""What can be done for a camera."""

LABELLED = 100
"""Number of cameras that have metrics of their own."""

_IDLE = 3600.0  # seconds
_SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)
_IMAGES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """The metrics of a server.

    Args:
        service: the server's service.
        board: what is known of its cameras.
        labelled: the number of cameras that have metrics of their own.
    """

    def __init__(self, service: Backend, board: Board, labelled: int = LABELLED) -> None:
        self._registry = registry = CollectorRegistry()
        self._images = Counter("covshift_images", "Images that were answered.", registry=registry)
        self._requests = Counter("covshift_requests", "Requests that were answered.", registry=registry)
        self._resets = Counter("covshift_resets", "Times that a camera started anew.", registry=registry)
        self._alarms = Counter("covshift_alarms", "Alarms that were raised.", registry=registry)
        self._latency = Histogram(
            "covshift_request_seconds", "Time from a request to its answer.", buckets=_SECONDS, registry=registry
        )
        self._waited = Histogram(
            "covshift_wait_seconds", "Part of it before the forward pass.", buckets=_SECONDS, registry=registry
        )
        self._batch = Histogram(
            "covshift_batch_images", "Images in the forward pass of a request.", buckets=_IMAGES, registry=registry
        )
        registry.register(_Cameras(service, board, labelled))
        ProcessCollector(registry=registry)
        GCCollector(registry=registry)

    def note(self, event: Answered) -> None:
        """Count an event."""
        self._images.inc(event.images)
        self._requests.inc()
        self._latency.observe(event.latency)
        self._waited.observe(event.waited)
        self._batch.observe(event.batch)
        if event.reset:
            self._resets.inc()

    def note_alarm(self) -> None:
        """Count an alarm."""
        self._alarms.inc()

    def text(self) -> bytes:
        """Return all metrics in Prometheus's text format."""
        return generate_latest(self._registry)


class _Cameras(Collector):
    """Collects what is known of cameras at the moment of a scrape."""

    def __init__(self, service: Backend, board: Board, labelled: int) -> None:
        self._service, self._board, self._most = service, board, labelled
        self._labelled: dict[str, None] = {}

    def collect(self) -> Iterable[Metric]:
        """Yield the metrics of the server as a whole, then of its cameras."""
        service, board = self._service, self._board
        board.keep(service.cameras.__contains__)
        chosen = list(self._choose())
        yield _gauge("covshift_ready", "Whether the server is ready.", service.ready)
        yield _gauge("covshift_images_waiting", "Images that wait for a forward pass.", service.waiting)
        yield _gauge("covshift_cameras_known", "Cameras in memory or in the store.", len(service.cameras))
        yield _gauge("covshift_cameras_resident", "Cameras in memory.", service.cameras.resident)
        refused = CounterMetricFamily("covshift_refused", "Requests that were refused, by status.", labels=["status"])
        for status, number in sorted(service.refused.items()):
            refused.add_metric([str(status)], number)
        yield refused
        left = len(board) - len(chosen)
        yield _gauge("covshift_cameras_unlabelled", "Cameras without metrics of their own, as too many have.", left)
        alarmed = sum(bool(board[name].alarms) for name in board)
        yield _gauge("covshift_cameras_alarmed", "Cameras whose alarm is on.", alarmed)
        states = GaugeMetricFamily("covshift_cameras", "Cameras by what is done for them.", labels=["state"])
        for state in STATES:
            states.add_metric([state], sum(board[name].last.done == state for name in board))
        yield states
        yield from _of_cameras(chosen)

    def _choose(self) -> Iterator[tuple[str, Seen]]:
        """Yield the cameras that have metrics of their own; those that had them keep them."""
        before = time.time() - _IDLE
        fresh = {name for name in self._board if self._board[name].last.time >= before}
        kept = [name for name in self._labelled if name in fresh]
        new = sorted(fresh.difference(kept))[: max(0, self._most - len(kept))]
        self._labelled = dict.fromkeys([*kept, *new])
        for name in self._labelled:
            yield name, self._board[name]


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def _of_cameras(cameras: list[tuple[str, Seen]]) -> Iterator[Metric]:
    label = ["camera"]
    images = CounterMetricFamily("covshift_camera_images", "Images of a camera.", labels=label)
    resets = CounterMetricFamily("covshift_camera_resets", "Times that a camera started anew.", labels=label)
    shift = GaugeMetricFamily("covshift_camera_shift", "Distance from the source, in deviations.", labels=label)
    memory = GaugeMetricFamily("covshift_camera_remembered", "Images that count for a camera.", labels=label)
    alarm = GaugeMetricFamily("covshift_camera_alarm", "Whether the alarm of a camera is on.", labels=label)
    state = GaugeMetricFamily("covshift_camera_state", "1 for what is done for a camera.", labels=["camera", "state"])
    error = GaugeMetricFamily(
        "covshift_camera_predicted_error", "Error to expect, from 0 to 1, and its interval.", labels=["camera", "bound"]
    )
    for name, seen in cameras:
        last = seen.last
        images.add_metric([name], seen.images)
        resets.add_metric([name], seen.resets)
        memory.add_metric([name], last.remembered)
        alarm.add_metric([name], bool(seen.alarms))
        for each in STATES:
            state.add_metric([name, each], each == last.done)
        if last.shift is not None:
            shift.add_metric([name], last.shift)
        if last.predicted is not None:
            bounds = {"middle": last.predicted.error, "low": last.predicted.low, "high": last.predicted.high}
            for bound, value in bounds.items():
                error.add_metric([name, bound], value)
    yield from (images, resets, shift, memory, alarm, state, error)
