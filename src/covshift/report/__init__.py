"""The report: tables, figures and a page that opens anywhere, from run folders."""

from covshift.report.command import report

__all__ = ["report"]
