"""Errors to expect on a running stream: what core needs of a predictor, which is not part of it."""

from collections.abc import Mapping
from typing import Any, Protocol

from torch import Tensor, nn

from covshift.core.calling import logits_of
from covshift.core.identity import digest
from covshift.core.moments import Moments
from covshift.support.checks import brief
from covshift.support.errors import CovshiftError

MEMORY = 200.0
"""Number of images that a forecast looks back on, where the policy itself does not say."""


class Expected(Protocol):
    """An error that is expected, from 0 to 1, and the interval that should hold it."""

    @property
    def error(self) -> float: ...  # noqa: D102
    @property
    def low(self) -> float: ...  # noqa: D102
    @property
    def high(self) -> float: ...  # noqa: D102


class StreamForecast(Protocol):
    """The errors to expect on the last images of a stream, as `covshift.shift.Forecast` has them."""

    @property
    def plain(self) -> Expected:
        """The error of the model as it is."""

    @property
    def adapted(self) -> Expected:
        """The error of the model as it is adapted now."""

    @property
    def sure(self) -> bool:
        """Whether the predictions can be relied on; if not, the answer is "cannot tell"."""

    @property
    def why(self) -> str:
        """The reason for not being sure, in words; empty otherwise."""


class Forecaster(Protocol):
    """Forecasts the errors on running streams, such as `Predictor.follow` returns."""

    def remember(self, before: Any, logits: Tensor) -> Any:
        """Return what is remembered after some more answers; `before` is None at the start of a stream."""

    def forecast(self, answers: Any, seen: Mapping[str, Moments]) -> StreamForecast:
        """Return the errors to expect, from what is remembered of answers and what was seen at each place."""


class Follows(Protocol):
    """A predictor that can follow streams, such as `covshift.shift.Predictor`."""

    def follow(self, memory: float = ...) -> Forecaster:
        """Return what forecasts the errors on streams; called before the model is adapted."""


def forecaster_of(predictor: Follows | None, model: nn.Module, memory: float) -> Forecaster | None:
    """Return what forecasts the errors of a model, or raise a `CovshiftError` for a predictor of another one."""
    if predictor is None:
        return None
    if not callable(getattr(predictor, "follow", None)):
        raise CovshiftError(f"expected predictor to be a covshift.shift.Predictor, got {brief(predictor)}")
    other = getattr(predictor, "model", model)
    if other is not model and digest(other) != digest(model):
        raise CovshiftError("the predictor was fitted on another model or on other weights; fit it on this one")
    return predictor.follow(memory)


class Forecasts:
    """Forecasts for one stream, from what is remembered of its answers.

    Args:
        forecaster: what makes them; None for none.
    """

    def __init__(self, forecaster: Forecaster | None) -> None:
        self._forecaster = forecaster
        self._answers: Any = None

    def after(self, output: object) -> Any:
        """Return what is to be remembered after an answer of the model; raises a `CovshiftError` without logits."""
        if self._forecaster is None or output is None:
            return self._answers
        return self._forecaster.remember(self._answers, logits_of(output))

    def keep(self, answers: Any) -> None:
        """Remember what `after` returned; None to start anew."""
        self._answers = answers

    def at(self, seen: Mapping[str, Moments]) -> StreamForecast | None:
        """Return the errors to expect, given what was seen at each place; None before the first answer."""
        if self._forecaster is None or self._answers is None:
            return None
        return self._forecaster.forecast(self._answers, seen)
