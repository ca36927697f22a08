"""Stores of camera states: SQLite by default, Redis, or none."""

from covshift.serve.stores.base import Store, StoreError
from covshift.serve.stores.open import open_store

__all__ = ["Store", "StoreError", "open_store"]
