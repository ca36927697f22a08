"""What `covshift serve` makes of its options about watching: alarms, metrics, the live page and the demonstration."""

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from covshift.support.errors import CovshiftError

if TYPE_CHECKING:
    from fastapi import APIRouter

    from covshift.serve.alarms import Rules
    from covshift.serve.service import Service
    from covshift.serve.settings import Settings


@dataclass(frozen=True)
class Watching:
    """The options about watching.

    Attributes:
        shift: the shift that raises an alarm.
        error: the predicted error that raises one.
        days: the days between false alarms of a camera.
        webhook: the address that alarms are sent to.
        labelled: the number of cameras that have metrics of their own.
    """

    shift: float | None
    error: float | None
    days: float
    webhook: str | None
    labelled: int

    def open(self, service: "Service", *, otherwise: "Rules | None" = None) -> "APIRouter":
        """Return the routes by which a service is seen.

        Args:
            service: the service.
            otherwise: when alarms are raised if no limit was given.
        """
        from covshift.serve.watch import watch
        from covshift.serve.webhook import Webhook

        rules = self._rules(service.predicts, otherwise)
        webhook = None if self.webhook is None else Webhook(self.webhook, _webhook_token())
        return watch(service, rules, webhook=webhook, labelled=self.labelled)

    def for_replicas(self, predicts: bool) -> "dict[str, Any]":
        """Return the fields of a `Recipe` that are about watching.

        Args:
            predicts: whether errors are predicted.
        """
        rules = self._rules(predicts)
        return {
            "rules": rules,
            "webhook": self.webhook,
            "webhook_token": _webhook_token(),
            "labelled": self.labelled,
        }

    def _rules(self, predicts: bool, otherwise: "Rules | None" = None) -> "Rules":
        """Return when alarms are raised, or raise a `CovshiftError` if options are missing for that."""
        from covshift.serve.alarms import Rules

        given = Rules(shift=self.shift, error=self.error, days=self.days)
        rules = given if given.limits or otherwise is None else otherwise
        if self.error is not None and not predicts:
            raise CovshiftError(
                "an alarm by the predicted error needs a predictor; give one with --predictor, or --alarm-shift instead"
            )
        if self.webhook is not None and not rules.limits:
            raise CovshiftError("expected a limit beyond which alarms are sent; give --alarm-shift or --alarm-error")
        return rules

    def open_demo(self, settings: "Settings", *given: str | None) -> "tuple[Service, list[APIRouter]]":
        """Return the service of the demonstration, and its routes.

        Args:
            settings: how requests are batched, and what is refused.
            given: the options for what the demonstration has of its own.
        """
        from covshift.serve import demo
        from covshift.serve.build import build

        if any(each is not None for each in given):
            raise CovshiftError("the demonstration has its own model; leave out --model, --source and --predictor")
        service = build(demo.MODEL, settings, source=demo.DATA, predictor=demo.PREDICTOR)
        return service, [self.open(service, otherwise=demo.RULES), demo.open_demo(service)]


def _webhook_token() -> str | None:
    return os.environ.get("COVSHIFT_WEBHOOK_TOKEN") or None
