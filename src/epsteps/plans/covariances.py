"""Guesses of the noise in a model's numbers, from public numbers alone. They enter no guarantee."""

import numpy as np

from epsteps.bounds.steps import Steps
from epsteps.budgets.mechanisms import Mechanism
from epsteps.problem.problem import Problem


def of_noise(noise: Mechanism, scale: float, problem: Problem) -> np.ndarray:
    """Return the covariance of a mechanism's noise of this scale, in real units."""
    covariance, units = noise.covariance(problem)
    return scale**2 * covariance.matrix * np.outer(units, units)


def through(curvature: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """Return the covariance of a minimum whose gradient has this one, where F has this curvature."""
    inverse = np.linalg.inv(curvature)
    return inverse @ covariance @ inverse


def of_steps(steps: Steps, scales: np.ndarray, noise: np.ndarray, curvature: np.ndarray) -> np.ndarray:
    """Return the covariance of x_T when the steps run on a quadratic of this curvature.

    ``noise`` is the covariance of a gradient's noise of scale 1. In the curvature's eigenvectors a step is
    x+ = a x - b x_previous - alpha w, so that covariances follow a recursion.
    """
    values, directions = np.linalg.eigh(curvature)
    noise = directions.T @ noise @ directions
    now, cross, before = (np.zeros_like(noise) for _ in range(3))
    for t in range(len(steps)):
        alpha, momentum = steps.alpha[t], 0.0 if t == 0 or steps.restart[t] else 1.0
        b = momentum * (steps.beta[t] - alpha * values * steps.gamma[t])
        a = 1 + b - alpha * values
        mixed = np.outer(a, b) * cross
        after = np.outer(a, a) * now - mixed - mixed.T + np.outer(b, b) * before
        after += (alpha * scales[t]) ** 2 * noise
        after = (after + after.T) / 2  # else its rounding errors grow
        now, cross, before = after, a[:, None] * now - b[:, None] * cross.T, now
    return directions @ now @ directions.T
