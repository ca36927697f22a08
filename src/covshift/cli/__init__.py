"""The `covshift` command, one module for each subcommand."""

from covshift.cli.main import app

__all__ = ["app"]
