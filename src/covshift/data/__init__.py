"""Images by URI, with or without labels: `open_data(uri)`, and `.loader(model)` of what it returns."""

from covshift.data.base import Data
from covshift.data.condition import CLEAN, MIXED, Condition, parse_condition
from covshift.data.open import open_data, open_unlabelled

__all__ = ["CLEAN", "MIXED", "Condition", "Data", "open_data", "open_unlabelled", "parse_condition"]
