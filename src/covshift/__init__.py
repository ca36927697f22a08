"""Measure, predict and repair covariate shift in image classifiers, without labels."""

from importlib.metadata import version

from covshift.errors import CovshiftError

__all__ = ["CovshiftError"]
__version__ = version("covshift")
