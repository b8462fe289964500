"""Convergence under noise: one function per theorem, certificates that are searched for, exact errors on quadratics."""

from epsteps.bounds.certificates import Bound, Certificate, NoBoundError, Prediction, best_certificate, certificate
from epsteps.bounds.quadratics import (
    ExactError,
    exact_by_horizon,
    exact_quadratic,
    heavy_ball_quadratic,
    rate,
    stationary_variance,
)
from epsteps.bounds.theorems import for_steps, gd, heavy_ball, multistage, nesterov, nesterov_any_momentum, noise_trace

__all__ = [
    "Bound",
    "Certificate",
    "ExactError",
    "NoBoundError",
    "Prediction",
    "best_certificate",
    "certificate",
    "exact_by_horizon",
    "exact_quadratic",
    "for_steps",
    "gd",
    "heavy_ball",
    "heavy_ball_quadratic",
    "multistage",
    "nesterov",
    "nesterov_any_momentum",
    "noise_trace",
    "rate",
    "stationary_variance",
]
