"""Distances between source and target, the error that they cost, and how much of the source to keep."""

from covshift.shift.covariance import Covariances, Gaussian, covariances
from covshift.shift.distance import Distance, gaussian, jeffrey, wasserstein
from covshift.shift.embed import Point, embed
from covshift.shift.forecast.forecast import Advice, ClassMix, DistanceScale, Forecast, Prediction
from covshift.shift.forecast.predictor import Predictor
from covshift.shift.simulation import Best, Simulation, best_layer_prior, best_prior, simulate
from covshift.shift.theory import Bounds, Expectation, bounds, expected, layer_bounds

__all__ = [
    "Advice",
    "Best",
    "Bounds",
    "ClassMix",
    "Covariances",
    "Distance",
    "DistanceScale",
    "Expectation",
    "Forecast",
    "Gaussian",
    "Point",
    "Prediction",
    "Predictor",
    "Simulation",
    "best_layer_prior",
    "best_prior",
    "bounds",
    "covariances",
    "embed",
    "expected",
    "gaussian",
    "jeffrey",
    "layer_bounds",
    "simulate",
    "wasserstein",
]
