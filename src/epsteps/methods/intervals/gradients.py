"""Intervals from a gradient that was published at a public point, with noise of a known law: proved, and free."""

from collections.abc import Callable

import numpy as np

from epsteps.methods.intervals.posterior import Released, noise_of
from epsteps.plans.requests import Gradient
from epsteps.problem import levels
from epsteps.problem.problem import Problem

# What such intervals follow from, in words.
BASIS = "the last published gradient, the law of its noise and the ridge, and are wide"
# Slopes are off by this many of their steps at most, by rounding.
_ROUNDED = 2.0


def require_covered(problem: Problem, is_full: bool = True) -> None:
    """Raise unless a gradient of the problem, of all records or not, tells how far its minimum is at most."""
    instead = "use method='objective', with intervals=0.95"
    reason = None
    if problem.clip is not None:
        reason = (
            f"clipped gradients are those of no function, which has no minimum to cover. Leave clip out, and {instead}"
        )
    elif not problem.loss.proved:
        reason = (
            f"nobody proved that this loss is convex, which all widths rest on. Use one of the library's, or {instead}"
        )
    elif not is_full:
        reason = f"each gradient is of a secret sample, and its error has no known law. Leave batch out, or {instead}"
    elif problem.ridge <= 0:
        reason = f"without a ridge a gradient does not tell how far the minimum is. Declare a ridge, or {instead}"
    if reason is not None:
        raise ValueError(f"there are no intervals: {reason}.")


def released_gradient(
    draw: Callable[..., np.ndarray], request: Gradient, gradient: np.ndarray, x: np.ndarray
) -> Released:
    """Return what intervals for a minimum are computed from: the model x, and a gradient as it was asked for.

    The gradient at y with noise e equals H (y - x0) + e, H the mean Hessian between y and the minimum x0. Rounding of
    the slopes adds at most so many steps of their bound, times the longest record.
    """
    problem, loss = request.problem, request.problem.loss
    step = float(np.max(request.bound)) / levels.STEPS
    return Released(
        x=x,
        n=problem.n,
        ridge=problem.ridge,
        tilts=noise_of(draw, request.mechanism, problem, float(np.max(request.scale)) / problem.n),
        output_scale=0.0,
        slack=_ROUNDED * step * loss.joint_slope(2) * problem.record_size(2) / problem.ridge,
        likelihood=loss.is_likelihood,
        gradient=gradient,
        shift=x - np.reshape(request.x, -1),
    )
