"""What one noisy gradient at the optimum with the whole budget would leave: E ½ η'H⁻¹η, for each kind of noise.

A yardstick, not a lower bound: a stronger ridge, or a smaller sensitivity at the points visited, can go below it. It
uses the optimum and the Hessian there, so it is NOT private. All of it is in closed form, ½ tr(H⁻¹ Cov η).
"""

import numpy as np

from accuracy_parts.tasks import Task
from epsteps.bodies import Body
from epsteps.budgets.conversions import gaussian_mu

PURE = ("laplace", "l2", "linf", "hull")


def limits(task: Task, epsilon: float, delta: float) -> dict[str, float]:
    """Return the limit of each mechanism at this epsilon, and of the best: pure, and with delta."""
    inverse = np.linalg.inv(task.objective.hessian(task.objective.minimiser))
    slope = largest_slope(task)
    found = {
        name: 0.5 * float(np.sum(inverse * covariance)) * (slope / (task.n * epsilon)) ** 2
        for name, covariance in pure_covariances(task).items()
    }
    sigma = 2 * slope * task.encoding.largest(2) / (task.n * gaussian_mu(epsilon, delta))
    found["gaussian"] = 0.5 * float(np.trace(inverse)) * sigma**2
    found["best pure"] = min(found[name] for name in PURE)
    found["best with delta"] = min(found["best pure"], found["gaussian"])
    return found


def largest_slope(task: Task) -> float:
    """Return the largest slope of a record's loss: 1 for the logistic loss, that at the optimum for the squared one."""
    if task.is_classification:
        return task.loss.slope
    x, encoding = task.objective.minimiser, task.encoding
    singles, blocks = list(encoding.singles), [x[start:stop] for start, stop in encoding.one_hot]
    ends = np.stack([np.array(encoding.low)[singles] * x[singles], np.array(encoding.high)[singles] * x[singles]])
    highest = ends.max(axis=0).sum() + sum(max(block.max(), 0.0) for block in blocks)
    least = ends.min(axis=0).sum() + sum(min(block.min(), 0.0) for block in blocks)
    return float(task.loss.slope_at(np.array(max(highest, -least))))


def pure_covariances(task: Task) -> dict[str, np.ndarray]:
    """Return the covariance of each mechanism's noise on a SUM of gradients, at slope 1 and epsilon 1."""
    d, encoding = task.d, task.encoding
    cube = Body((), tuple((column,) for column in range(d)))
    return {
        "laplace": 2 * (2 * encoding.largest(1)) ** 2 * np.eye(d),
        "l2": (d + 1) * (2 * encoding.largest(2)) ** 2 * np.eye(d),
        "linf": 4 * body_covariance(cube),
        "hull": 4 * body_covariance(encoding.body()),
    }


def body_covariance(body: Body) -> np.ndarray:
    """Return the covariance of noise with density ~ exp(-|z|_C).

    Blocks are symmetric in the sign of each coordinate, so they have no correlations. On a hull they are all 1/2: a
    uniform point of {range(0, z) <= 1} has the law of (w_j - w_0) for some exchangeable w, so that z_i - z_j has the
    variance v of z_i, and v = 2v - 2 Cov(z_i, z_j).
    """
    covariance = np.diag(body.variances)
    hull = list(body.hull)
    if hull:
        variance = body.variances[hull[0]]
        covariance[np.ix_(hull, hull)] = variance / 2 * (np.eye(len(hull)) + 1)
    return covariance
