"""Minima released once: tilted objectives, noise on the output, sufficient statistics. Public mathematics only.

Every guarantee is for neighbours that differ in one replaced record, with n public and a positive ridge on every
coordinate. ``saturations`` has what a loss contributes; all functions take plain public numbers.
"""

from epsteps.methods.minima import saturations
from epsteps.methods.minima.averaging import averaging_loss, averaging_weights
from epsteps.methods.minima.calibration import Calibrated, calibrated, calibrated_or_none
from epsteps.budgets.corners import GAUSSIAN, Corners, composed, shared
from epsteps.methods.minima.covariance import BoxVariances, box_variances
from epsteps.methods.minima.minimum import (
    ChosenRidge,
    gradient_tolerance,
    minimum_radius,
    output_scale,
    output_sigma,
    paying_ridge,
)
from epsteps.methods.minima.output import ball_energy, ball_scale, gaussian_sigma, minimum_sensitivity
from epsteps.methods.minima.pure import kappa_limit, noise_epsilon, record_weight, total_epsilon
from epsteps.methods.minima.saturations import Saturation
from epsteps.methods.minima.statistics import StatisticsScales, adaptive_ridge, statistics_mu, statistics_scales

__all__ = [
    "GAUSSIAN",
    "BoxVariances",
    "Calibrated",
    "ChosenRidge",
    "Corners",
    "Saturation",
    "StatisticsScales",
    "adaptive_ridge",
    "averaging_loss",
    "averaging_weights",
    "ball_energy",
    "ball_scale",
    "box_variances",
    "calibrated",
    "calibrated_or_none",
    "composed",
    "gaussian_sigma",
    "gradient_tolerance",
    "kappa_limit",
    "minimum_radius",
    "minimum_sensitivity",
    "noise_epsilon",
    "output_scale",
    "output_sigma",
    "paying_ridge",
    "record_weight",
    "saturations",
    "shared",
    "statistics_mu",
    "statistics_scales",
    "total_epsilon",
]
