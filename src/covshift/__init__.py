"""Measure, predict and repair covariate shift in image classifiers, without labels."""

from importlib.metadata import version

from covshift import shift
from covshift.core.adapter import Adapter, adapt, release
from covshift.core.estimate import estimate
from covshift.core.moments import Moments
from covshift.core.policies import Batch, Policy, Stream
from covshift.core.statistics import Statistics
from covshift.corruptions import corrupt
from covshift.data import Condition, Data, open_data
from covshift.models import Model, Preprocess, open_model
from covshift.support.errors import CovshiftError

__all__ = [
    "Adapter",
    "Batch",
    "Condition",
    "CovshiftError",
    "Data",
    "Model",
    "Moments",
    "Policy",
    "Preprocess",
    "Statistics",
    "Stream",
    "adapt",
    "corrupt",
    "estimate",
    "open_data",
    "open_model",
    "release",
    "shift",
]
__version__ = version("covshift")
