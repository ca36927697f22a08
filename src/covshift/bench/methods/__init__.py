"""The methods that a benchmark compares, and how they are written."""

from covshift.bench.methods.base import ANCHORED, Method, Prior, value_text
from covshift.bench.methods.batches import BatchMethod, Full, Partial, batch, grid
from covshift.bench.methods.names import (
    FULL,
    GRID_IMAGES,
    GRID_PRIORS,
    NONE,
    PARTIAL,
    PARTIAL_IMAGES,
    PARTIAL_PRIOR,
    PRIORS,
    REVERSE,
    SCENARIOS,
)
from covshift.bench.methods.plain import NoAdaptation
from covshift.bench.methods.policies import PolicyMethod, StreamMethod
from covshift.bench.methods.registry import methods, parse_method, parse_methods, register, stored_method
from covshift.bench.methods.reverse import Reverse
from covshift.bench.methods.rivals import RivalMethod

__all__ = [
    "ANCHORED",
    "FULL",
    "GRID_IMAGES",
    "GRID_PRIORS",
    "NONE",
    "PARTIAL",
    "PARTIAL_IMAGES",
    "PARTIAL_PRIOR",
    "PRIORS",
    "REVERSE",
    "SCENARIOS",
    "BatchMethod",
    "Full",
    "Method",
    "NoAdaptation",
    "Partial",
    "PolicyMethod",
    "Prior",
    "Reverse",
    "RivalMethod",
    "StreamMethod",
    "batch",
    "grid",
    "methods",
    "parse_method",
    "parse_methods",
    "register",
    "stored_method",
    "value_text",
]
