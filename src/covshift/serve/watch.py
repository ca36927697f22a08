"""All that watches a server: board, metrics, alarms and the live page, set up by one function."""

from collections.abc import Callable

from fastapi import APIRouter

from covshift.serve.alarms import Alarm, Alarms, Rules
from covshift.serve.board import Board
from covshift.serve.metrics import LABELLED, Metrics
from covshift.serve.page import make_router
from covshift.serve.service import Service


def watch(
    service: Service,
    rules: Rules | None = None,
    *,
    send: Callable[[Alarm], object] | None = None,
    labelled: int = LABELLED,
) -> APIRouter:
    """Watch a service, and return the routes by which it is seen: the live page, its events, and metrics.

    Args:
        service: the service.
        rules: when alarms are raised; None for never.
        send: called with each alarm, and must return at once; such as `Webhook.send`.
        labelled: the number of cameras that have metrics of their own.
    """
    board = Board()
    metrics = Metrics(service, board, labelled)
    service.feed.subscribe(board.note)
    service.feed.subscribe(metrics.note)
    limits = {} if rules is None else rules.limits
    if rules is not None and limits:

        def tell(alarm: Alarm) -> None:
            board.set_alarm(alarm.camera, alarm.kind, alarm.text if alarm.raised else "")
            if alarm.raised:
                metrics.note_alarm()
            if send is not None:
                send(alarm)

        alarms = Alarms(rules, tell)
        service.feed.subscribe(alarms.note)
        board.on_drop = alarms.forget
    return make_router(service, board, metrics, limits)
