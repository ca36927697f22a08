"""The paper's tables and figures, run again: what each of them needs, and ours beside what was published."""

from covshift.reproduce.target import Metric, Number, Target

__all__ = ["Metric", "Number", "Target"]
