"""The minimum of a tilted objective over private records: our accelerated method, Newton's, and one that always ends.

Nothing that happens here is published: neither the iterates nor how many there were, nor how long it took. Nothing
here raises or warns, whatever the records: a plan's ``Goal.require_reachable`` has proved that the search ends.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from epsteps.bounds.steps import nesterov
from epsteps.data.rows import Rows
from epsteps.methods.minimum import BLOCK, Goal, Minimised, rounding
from epsteps.problem.losses import Loss
from epsteps.problem.rounding import up

_ACCELERATED_STEPS = 30
_NEWTON_STEPS, _REFINEMENTS, _HALVINGS = 100, 50, 40
# The square of Newton's decrement, relative to the objective, below which only rounding is left to polish.
_NEAR = 1e-13


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
        return float(np.linalg.norm(self.gradient)) * (1 + self._norm_error) + up(self.error)

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
        total, *longer = [branch for branch in self._branches if branch is not None]
        for branch in longer:
            total = total + branch
        return total


def certified_gradient(data: Rows, objective: Minimised, x: np.ndarray, tilt: np.ndarray, kind: type) -> Certified:
    """Return the UNPROTECTED gradient of ``n F(x) + tilt'x``, computed in this kind of float.

    The bound is for the coarsest kind that anything was really computed in.
    """
    problem, point = objective.stated, x.astype(kind)
    blocks, kinds = TreeSum(), {np.dtype(kind)}
    for features, targets in data.blocks():
        for start in range(0, len(features), BLOCK):
            part = slice(start, start + BLOCK)
            gradient = block_gradient(objective.loss, features[part].astype(kind), targets[part], point)
            kinds.add(gradient.dtype)
            blocks.add(gradient)
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
        gradient = u.T @ slopes
    else:
        slopes = loss.derivative(margins, targets[:, None])
        gradient = (slopes.T @ u).ravel()
    return gradient if slopes.dtype == u.dtype else gradient.astype(slopes.dtype)


@dataclass(frozen=True, eq=False)
class Tilted:
    """``F(x) + tilt'x/n`` over records: F has the objective's ridge, which may exceed that of the records' own."""

    objective: Minimised
    data: Rows
    tilt: np.ndarray

    def __post_init__(self) -> None:
        self.objective.require_same_records(self.data.problem)

    @property
    def _more_ridge(self) -> float:
        return self.objective.ridge - self.data.problem.ridge

    def value(self, x: np.ndarray) -> float:
        """Return the objective at x."""
        tilt = float(self.tilt @ x) / self.objective.n
        return float(self.data.value(x)) + 0.5 * self._more_ridge * float(x @ x) + tilt

    def gradient(self, x: np.ndarray) -> np.ndarray:
        """Return its gradient."""
        return self.data.gradient(x) + self._more_ridge * x + self.tilt.astype(float) / self.objective.n

    def hessian(self, x: np.ndarray) -> np.ndarray | None:
        """Return its second derivatives; None where there is no memory for them."""
        try:
            return self.data.hessian(x) + self._more_ridge * np.eye(len(x))
        except MemoryError:
            return None

    def certified(self, x: np.ndarray, kind: type) -> Certified:
        """Return the gradient of n times the objective, with a bound on its error."""
        return certified_gradient(self.data, self.objective, x, self.tilt, kind)


@np.errstate(all="ignore")  # a warning would tell something about a record
def grid_minimum(tilted: Tilted, goal: Goal) -> np.ndarray:
    """Return a point of the goal's grid, as Python's integers, where the gradient is surely below its tolerance.

    Newton's method gets there in a few steps. Where it does not, for whatever reason, gradient descent on the grid from
    0 does, by the theorem of ``Goal.require_reachable``; Newton's method is tried again after 1, 2, 4, ... steps of it.
    """
    search = _Search(tilted, goal)
    minimum, steps = search.polished(_accelerated(tilted, goal)), 0
    point = np.zeros(goal.objective.dimension, dtype=np.longdouble)
    while minimum is None:
        gradient = search.gradient(point, far=goal.tolerance / 8)
        if search.is_met(gradient):
            minimum = point
        else:
            point = np.rint(point - gradient.gradient / (np.longdouble(goal.smoothness) * goal.step))
            steps += 1
            if steps & (steps - 1) == 0:
                minimum = search.polished((point * goal.step).astype(float))
    return np.array([int(entry) for entry in minimum], dtype=object)


@dataclass(frozen=True, eq=False)
class _Search:
    """The points of a grid, as long doubles that hold integers, and what is known of the gradient at them."""

    tilted: Tilted
    goal: Goal

    def is_met(self, gradient: Certified) -> bool:
        """Whether a point with this gradient is the one that is sought, for the theorem's tilt."""
        return gradient.most + up(self.goal.slack) <= self.goal.tolerance

    def gradient(self, point: np.ndarray, far: float | None = None) -> Certified:
        """Return the gradient at a point of the grid: in long doubles where doubles leave open whether it is small.

        With ``far``, in long doubles wherever the error of doubles could be larger than that.
        """
        x = point * self.goal.step
        gradient = self.tilted.certified(x, np.float64)
        unclear = gradient.least <= self.goal.tolerance if far is None else gradient.error > far
        return self.tilted.certified(x, np.longdouble) if unclear and not self.is_met(gradient) else gradient

    def polished(self, x: np.ndarray) -> np.ndarray | None:
        """Return the point that Newton's method leads to from x, by certified gradients at last; None if it fails.

        Second derivatives are computed again where the gradient did not fall to a tenth.
        """
        x = _damped_newton(self.tilted, self.goal, x).astype(np.longdouble)
        point = np.rint(x / self.goal.step)
        gradient, hessian = self.gradient(point), None
        for _ in range(_REFINEMENTS):
            if self.is_met(gradient):
                return point
            if hessian is None:
                hessian = self.tilted.hessian((point * self.goal.step).astype(float))
            step = _solved(hessian, (gradient.gradient / self.goal.objective.n).astype(float))
            better = None if step is None else self._shorter(point, gradient, step)
            if better is None:
                return None
            before, (point, gradient) = gradient, better
            if gradient.most > before.most / 10:
                hessian = None
        return None

    def _shorter(self, point: np.ndarray, gradient: Certified, step: np.ndarray) -> tuple[np.ndarray, Certified] | None:
        """Return the point after as much of the step as makes the gradient shorter, and that; None if nothing does."""
        size, limit = 1.0, float(np.linalg.norm(gradient.gradient))
        for _ in range(_HALVINGS):
            nearby = np.rint(_inside(point * self.goal.step - size * step, self.goal) / self.goal.step)
            after = self.gradient(nearby)
            if self.is_met(after) or float(np.linalg.norm(after.gradient)) < (1 - size / 4) * limit:
                return nearby, after
            size /= 2
        return None


def _inside(x: np.ndarray, goal: Goal) -> np.ndarray:
    """Return x within reach, where nothing overflows; 0 in the place of what is no number."""
    size = float(np.linalg.norm(x))
    if not np.isfinite(size):
        return np.zeros_like(x)
    return x if size <= goal.reach else x * (goal.reach / size)


def _solved(hessian: np.ndarray | None, gradient: np.ndarray) -> np.ndarray | None:
    """Return Newton's step, or None if these second derivatives have none."""
    try:
        step = None if hessian is None else np.linalg.solve(hessian, gradient)
    except np.linalg.LinAlgError:
        return None
    return step if step is not None and np.all(np.isfinite(step)) else None


def _damped_newton(tilted: Tilted, goal: Goal, x: np.ndarray) -> np.ndarray:
    """Return a point so near the minimum that full steps converge, if Newton's method gets there from x."""
    for _ in range(_NEWTON_STEPS):
        gradient, value = tilted.gradient(x), tilted.value(x)
        step = _solved(tilted.hessian(x), gradient)
        if step is None:
            return x
        decrement = float(gradient @ step)
        if not decrement > _NEAR * abs(value):
            return _inside(x - step, goal)
        size = _damping(tilted, goal, x, step, value, decrement)
        if size == 0.0:
            return x
        x = _inside(x - size * step, goal)
    return x


def _damping(tilted: Tilted, goal: Goal, x: np.ndarray, step: np.ndarray, value: float, decrement: float) -> float:
    """Return the largest 2^-k for which so much of the step decreases the objective enough; 0 if none does."""
    size = 1.0
    for _ in range(_HALVINGS):
        if tilted.value(_inside(x - size * step, goal)) <= value - 0.25 * size * decrement:
            return size
        size /= 2
    return 0.0


def _accelerated(tilted: Tilted, goal: Goal) -> np.ndarray:
    """Return a start near the minimum, from Nesterov's method with the public constants."""
    objective = tilted.objective
    x = previous = np.zeros(objective.dimension)
    for alpha, beta, gamma, _ in nesterov(objective.ridge, objective.L, _ACCELERATED_STEPS):
        drift = x - previous
        x, previous = _inside(x + beta * drift - alpha * tilted.gradient(x + gamma * drift), goal), x
    return x
