"""The minimum of a tilted objective over private records: our accelerated method, then Newton's.

Nothing that happens here is published: neither the iterates nor how many there were.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from epsteps.methods import nesterov
from epsteps.problem import Problem
from epsteps.records import Rows

_ACCELERATED_STEPS = 30
_NEWTON_STEPS, _REFINEMENTS = 100, 50
# The square of Newton's decrement below which only rounding is left to polish.
_NEAR = 1e-13


@dataclass(frozen=True, eq=False)
class Tilted:
    """``F(x) + tilt'x/n`` over records: F has the ridge of ``problem``, which may exceed that of the records' own."""

    problem: Problem
    data: Rows
    tilt: np.ndarray

    @property
    def _more_ridge(self) -> float:
        return self.problem.ridge - self.data.problem.ridge

    def value(self, x: np.ndarray) -> float:
        """Return the objective at x."""
        tilt = float(self.tilt @ x) / self.problem.n
        return float(self.data.value(x)) + 0.5 * self._more_ridge * float(x @ x) + tilt

    def gradient(self, x: np.ndarray) -> np.ndarray:
        """Return its gradient."""
        return self.data.gradient(x) + self._more_ridge * x + self.tilt / self.problem.n

    def hessian(self, x: np.ndarray) -> np.ndarray:
        """Return its second derivatives."""
        return self.data.hessian(x) + self._more_ridge * np.eye(len(x))


def minimise(objective: Tilted, refine: Callable[[np.ndarray], tuple[np.ndarray | None, np.ndarray]]) -> np.ndarray:
    """Return the first point that ``refine`` takes for the minimum, in the form that it gives it.

    ``refine(x)`` returns that form, or None, and the gradient at x as precisely as it can. Newton's method is damped
    until the objective decreases, so that it converges from everywhere (the objective is strongly convex and smooth);
    its last steps use the precise gradient.
    """
    x = _damped_newton(objective, _accelerated(objective))
    hessian = objective.hessian(x)
    for _ in range(_REFINEMENTS):
        found, gradient = refine(x)
        if found is not None:
            return found
        x = x - np.linalg.solve(hessian, gradient)
    raise RuntimeError("the solver did not reach its tolerance.")


def _damped_newton(objective: Tilted, x: np.ndarray) -> np.ndarray:
    """Return a point so near the minimum that full steps converge."""
    for _ in range(_NEWTON_STEPS):
        gradient = objective.gradient(x)
        step = np.linalg.solve(objective.hessian(x), gradient)
        decrement = float(gradient @ step)
        if decrement < _NEAR:
            return x - step
        x = x - _damping(objective, x, step, decrement) * step
    return x


def _damping(objective: Tilted, x: np.ndarray, step: np.ndarray, decrement: float) -> float:
    """Return the largest 2^-k for which so much of the step decreases the objective enough."""
    size, value = 1.0, objective.value(x)
    while objective.value(x - size * step) > value - 0.25 * size * decrement and size > 1e-12:
        size /= 2
    return size


def _accelerated(objective: Tilted) -> np.ndarray:
    """Return a start near the minimum, from Nesterov's method with the public constants."""
    problem = objective.problem
    x = previous = np.zeros(problem.dimension)
    for alpha, beta, gamma, _ in nesterov(problem.mu, problem.L, _ACCELERATED_STEPS):
        drift = x - previous
        x, previous = x + beta * drift - alpha * objective.gradient(x + gamma * drift), x
    return x
