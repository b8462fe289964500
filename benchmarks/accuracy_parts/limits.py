"""What one noisy gradient at the optimum with the whole budget would leave: E ½ η'H⁻¹η, for each kind of noise.

A yardstick, not a lower bound: a stronger ridge, or a smaller sensitivity at the points visited, can go below it. It
uses the optimum and the Hessian there, so it is NOT private. All of it is in closed form, ½ tr(H⁻¹ Cov η).
"""

import numpy as np

from accuracy_parts.tasks import Task
from epsteps.budgets import mechanisms
from epsteps.budgets.conversions import gaussian_mu


def limits(task: Task, epsilon: float, delta: float) -> dict[str, float]:
    """Return the limit of each mechanism at this epsilon, and of the best: pure, and with delta."""
    inverse = np.linalg.inv(task.objective.hessian(task.objective.minimiser))
    found, best = {}, {"epsilon": np.inf, "rho": np.inf}
    for noise in map(mechanisms.named, mechanisms.NAMES):
        if noise.covers(task.problem):
            cost = epsilon if noise.unit == "epsilon" else gaussian_mu(epsilon, delta)
            size = float(task.problem.gradient_size(largest_slope(task), noise.norm))
            covariance, units = noise.covariance(task.problem)
            trace = float(np.sum(inverse * covariance.matrix * np.outer(units, units)))
            found[noise.name] = 0.5 * trace * (2 * size / (task.n * cost)) ** 2
            best[noise.unit] = min(best[noise.unit], found[noise.name])
    found["best pure"] = best["epsilon"]
    found["best with delta"] = min(best.values())
    return found


def largest_slope(task: Task) -> float:
    """Return the largest slope of a record's loss: 1 of a class, that at the optimum for the squared one."""
    return task.loss.slope if task.is_classification else float(task.problem.slope_at(task.objective.minimiser))
