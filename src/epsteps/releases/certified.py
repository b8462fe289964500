"""The gradient of a sum over records, with a bound on its rounding error."""

from typing import NamedTuple

import numpy as np

from epsteps.plans.precision import BLOCK, rounding
from epsteps.problem import Problem
from epsteps.records import Rows


class Certified(NamedTuple):
    """A gradient, and a bound on the L2 norm of its error."""

    gradient: np.ndarray
    error: float


def certified_gradient(data: Rows, problem: Problem, x: np.ndarray, tilt: np.ndarray, kind: type) -> Certified:
    """Return the UNPROTECTED gradient of ``n F(x) + tilt'x``, computed in this kind of float."""
    point = x.astype(kind).reshape(problem.loss.outputs, problem.width)
    sums = []
    for features, targets in data.blocks():
        for start in range(0, len(features), BLOCK):
            u = features[start : start + BLOCK].astype(kind)
            sums.append(_block_sum(problem, u, targets[start : start + BLOCK], point))
    total = np.sum(sums, axis=0) + kind(problem.n) * kind(problem.ridge) * x.astype(kind) + tilt.astype(kind)
    error = rounding(problem, float(np.linalg.norm(x)), float(np.linalg.norm(tilt)), float(np.finfo(kind).eps))
    return Certified(total.astype(float), error + 4 * float(np.finfo(float).eps) * float(np.linalg.norm(total)))


def _block_sum(problem: Problem, u: np.ndarray, targets: np.ndarray, point: np.ndarray) -> np.ndarray:
    margins = u @ point.T
    if problem.loss.outputs == 1:
        return u.T @ problem.loss.derivative(margins[:, 0], targets)
    return (problem.loss.derivative(margins, targets[:, None]).T @ u).ravel()
