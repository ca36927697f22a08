"""All that watches a server: board, metrics, alarms and the live page, set up by one function."""

from fastapi import APIRouter

from covshift.serve.alarms import Alarm, Alarms, Rules
from covshift.serve.backend import Backend
from covshift.serve.board import Board
from covshift.serve.metrics import LABELLED, Metrics
from covshift.serve.page import make_router
from covshift.serve.webhook import Webhook


def watch(
    service: Backend,
    rules: Rules | None = None,
    *,
    webhook: Webhook | None = None,
    labelled: int = LABELLED,
) -> APIRouter:
    """Watch a service, and return the routes by which it is seen: the live page, its events, and metrics.

    Args:
        service: the service.
        rules: when alarms are raised; None for never.
        webhook: where alarms are sent to; None for nowhere. It is closed when the service has stopped.
        labelled: the number of cameras that have metrics of their own.
    """
    board = Board()
    metrics = Metrics(service, board, labelled)
    service.feed.subscribe(board.note)
    service.feed.subscribe(metrics.note)
    if webhook is not None:
        service.at_end.append(webhook.close)
    limits = {} if rules is None else rules.limits
    if rules is not None and limits:

        def tell(alarm: Alarm) -> None:
            board.set_alarm(alarm.camera, alarm.kind, alarm.text if alarm.raised else "")
            if alarm.raised:
                metrics.note_alarm()
            if webhook is not None:
                webhook.send(alarm)

        alarms = Alarms(rules, tell)
        service.feed.subscribe(alarms.note)
        board.on_drop = alarms.forget
    return make_router(service, board, metrics, limits)
