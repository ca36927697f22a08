"""`python -m covshift` is `covshift`."""

from covshift.cli import app

app()
