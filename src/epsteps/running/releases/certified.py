"""The gradient of a sum over records, with a bound on its rounding error."""

from typing import NamedTuple

import numpy as np

from epsteps.data.rows import Rows
from epsteps.methods.minimised import Minimised
from epsteps.methods.precision import BLOCK, rounding
from epsteps.problem.losses import Loss


class Certified(NamedTuple):
    """A gradient, and a bound on the L2 norm of its error."""

    gradient: np.ndarray
    error: float

    @property
    def least(self) -> float:
        """A lower bound on the norm of the exact gradient."""
        return float(np.linalg.norm(self.gradient)) * (1 - self._norm_error) - self.error

    @property
    def most(self) -> float:
        """An upper bound on the norm of the exact gradient."""
        return float(np.linalg.norm(self.gradient)) * (1 + self._norm_error) + self.error * (1 + 1e-12)

    @property
    def _norm_error(self) -> float:
        """What the norm's own roundings amount to: d squares, their sum, a root, and the last sum."""
        return (len(self.gradient) + 8) * float(np.finfo(float).eps)


class TreeSum:
    """A sum of arrays, added in a binary tree of which only one branch for each level is kept.

    Formal guarantee: of k arrays each goes through at most ⌊log2 k⌋ + 1 additions, so that the error is at most as many
    rounding units times the sum of the arrays' sizes (Higham 2002, section 4.2). Adding row after row, as ``np.sum``
    does along the first axis, has k of them.
    """

    def __init__(self) -> None:
        self._branches: list[np.ndarray | None] = []

    def add(self, array: np.ndarray) -> None:
        """Add an array: equal branches are joined, like the ones of a binary counter."""
        for level, branch in enumerate(self._branches):
            if branch is None:
                self._branches[level] = array
                return
            array = branch + array
            self._branches[level] = None
        self._branches.append(array)

    def total(self) -> np.ndarray:
        """Return the sum: short branches are added to longer ones."""
        found, *rest = [branch for branch in self._branches if branch is not None]
        for branch in rest:
            found = found + branch
        return found


def certified_gradient(data: Rows, objective: Minimised, x: np.ndarray, tilt: np.ndarray, kind: type) -> Certified:
    """Return the UNPROTECTED gradient of ``n F(x) + tilt'x``, computed in this kind of float.

    The bound is for the coarsest kind that anything was really computed in.
    """
    problem, point = objective.stated, x.astype(kind)
    blocks, kinds = TreeSum(), {np.dtype(kind)}
    for features, targets in data.blocks():
        for start in range(0, len(features), BLOCK):
            part = slice(start, start + BLOCK)
            found = block_gradient(objective.loss, features[part].astype(kind), targets[part], point)
            kinds.add(found.dtype)
            blocks.add(found)
    total = blocks.total() + kind(problem.n) * kind(problem.ridge) * point + tilt.astype(kind)
    unit = max(float(np.finfo(each).eps) for each in kinds)
    error = rounding(objective, float(np.linalg.norm(x)), float(np.linalg.norm(tilt)), unit)
    return Certified(total.astype(np.longdouble), error)


def block_gradient(loss: Loss, u: np.ndarray, targets: np.ndarray, point: np.ndarray) -> np.ndarray:
    """Return the UNPROTECTED sum of a few records' loss gradients, in the kind of their features.

    Or in a coarser one, if the loss computed its slopes in that: such a result must not look finer than it is.
    """
    margins = u @ point.reshape(loss.outputs, u.shape[1]).T
    if loss.outputs == 1:
        slopes = loss.derivative(margins[:, 0], targets)
        found = u.T @ slopes
    else:
        slopes = loss.derivative(margins, targets[:, None])
        found = (slopes.T @ u).ravel()
    return found if slopes.dtype == u.dtype else found.astype(slopes.dtype)
