"""From images of a new domain to a repaired model in a folder: a look, a verdict, statistics, a card, samples."""

from covshift.repairs.evaluate import Check, check
from covshift.repairs.make import Repair, repair
from covshift.repairs.verdict import Verdict, judge

__all__ = ["Check", "Repair", "Verdict", "check", "judge", "repair"]
