"""The doctor: finds the mistakes that spoil benchmarks, each with the figure that shows it."""

from covshift.doctor.examine import CHECKS, Examination, examine, examine_run
from covshift.doctor.finding import Finding, Level

__all__ = ["CHECKS", "Examination", "Finding", "Level", "examine", "examine_run"]
