"""The paper's tables and figures, run again: what each of them needs, and our numbers beside the published ones."""

from covshift.reproduce.contents import choose_targets, list_targets
from covshift.reproduce.locations import Locations, parse_weights
from covshift.reproduce.rerun import Outcome, reproduce
from covshift.reproduce.target import Metric, Number, Target

__all__ = [
    "Locations",
    "Metric",
    "Number",
    "Outcome",
    "Target",
    "choose_targets",
    "list_targets",
    "parse_weights",
    "reproduce",
]
