"""Labelled images by name: `open_data(uri)`."""

from covshift.data.base import Data
from covshift.data.condition import CLEAN, MIXED, Condition
from covshift.data.open import open_data, open_unlabelled

__all__ = ["CLEAN", "MIXED", "Condition", "Data", "open_data", "open_unlabelled"]
