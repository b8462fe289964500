"""Convergence bounds under noise: one function per theorem, each a contraction and a gain per step."""

from epsteps.bounds.power import noise_trace
from epsteps.bounds.recursion import Bound, NoBoundError
from epsteps.bounds.theorems import for_steps, gd, multistage, nesterov

__all__ = [
    "Bound",
    "NoBoundError",
    "for_steps",
    "gd",
    "multistage",
    "nesterov",
    "noise_trace",
]
