"""Requests that the server refuses: each with the status of HTTP that says why."""

from covshift.support.errors import CovshiftError


class Refusal(CovshiftError):  # noqa: N818
    """A request that is refused; the message is shown to the client.

    Attributes:
        status: the status of the answer.
        retry: seconds after which the client may try again; None if that would not help.
    """

    status = 400

    def __init__(self, message: str, *, status: int | None = None, retry: float | None = None) -> None:
        super().__init__(message)
        self.status = self.status if status is None else status
        self.retry = retry


class TooLarge(Refusal):
    """A request with a body, a picture or a batch above a limit."""

    status = 413


class Busy(Refusal):
    """A request that may succeed if it is sent again a little later."""

    status = 503

    def __init__(self, message: str, *, retry: float = 1.0) -> None:
        super().__init__(message, retry=retry)
