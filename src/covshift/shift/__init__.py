"""How far data have moved, what that costs, and how much of the source to keep."""

from covshift.shift.covariance import Covariances, Gaussian, covariances
from covshift.shift.distance import Distance, gaussian, jeffrey, wasserstein

__all__ = ["Covariances", "Distance", "Gaussian", "covariances", "gaussian", "jeffrey", "wasserstein"]
