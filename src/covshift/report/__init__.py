"""The report: tables, figures and a page that opens anywhere, from run folders."""

from covshift.report.build import report

__all__ = ["report"]
