"""Convergence under noise: one function per theorem, certificates that are searched for, exact errors on quadratics."""

from epsteps.bounds.certificates import Certificate, best_certificate, certificate
from epsteps.bounds.dispatch import for_steps
from epsteps.bounds.exact import ExactError
from epsteps.bounds.power import noise_trace
from epsteps.bounds.quadratic import exact_by_horizon, exact_quadratic, heavy_ball_quadratic, rate, stationary_variance
from epsteps.bounds.recursion import Bound, NoBoundError, Prediction
from epsteps.bounds.stages import heavy_ball, nesterov_any_momentum
from epsteps.bounds.theorems import gd, multistage, nesterov

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
