"""The methods that a benchmark compares, and how they are written."""

from covshift.bench.methods.base import ANCHORED, Method, value_text
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
from covshift.bench.methods.policies import FollowingMethod, PolicyMethod, StreamMethod
from covshift.bench.methods.registry import foremost, methods, parse_method, parse_methods, register, stored_method
from covshift.bench.methods.reverse import Reverse
from covshift.bench.methods.rivals import RivalMethod
from covshift.core.statistics import Prior

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
    "FollowingMethod",
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
    "foremost",
    "grid",
    "methods",
    "parse_method",
    "parse_methods",
    "register",
    "stored_method",
    "value_text",
]
