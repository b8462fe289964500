"""The minimum of a tilted objective over private records: a quasi-Newton method, and one that always ends.

Nothing that happens here is published: neither the iterates nor how many there were, nor how long it took. Nothing
here raises or warns, whatever the records: a plan's ``Goal.require_reachable`` has proved that the search ends.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from epsteps.data.rows import Rows
from epsteps.methods.minimum import Goal, Minimised
from epsteps.problem.rounding import up
from epsteps.running.passes import Certified, certified_gradient, column_sizes, rough_hessian

# Steps over a sample, and over all records before the search is given up; pairs that a quasi-Newton step remembers.
_SAMPLE_STEPS, _STEPS, _MEMORY, _HALVINGS = 25, 400, 20, 40
# A sample has so many runs of records that lie side by side, at least, and so small a share of all.
_RUN, _SMALLEST_SAMPLE, _SAMPLE_SHARE = 256, 2**13, 16
# Second derivatives of the sample as a matrix: worth as much work as this many passes over all records, and no larger.
_MATRIX_PASSES, _LARGEST_MATRIX = 8, 2_500

# A gradient of the mean at a point.
_Gradient = Callable[[np.ndarray], np.ndarray]


class Metric:
    """The first guess of a quasi-Newton method at the inverse of second derivatives: matrices, or a diagonal."""

    def __init__(self, hessian: np.ndarray) -> None:
        self._diagonal = np.einsum("kii->ki", hessian) if hessian.ndim == 3 else hessian
        self._factors = [cho_factor(matrix) for matrix in hessian] if hessian.ndim == 3 else None

    def solve(self, vector: np.ndarray) -> np.ndarray:
        """Return the inverse times a vector."""
        if self._factors is None:
            return vector / self._diagonal.ravel()
        blocks = vector.reshape(len(self._factors), -1)
        return np.concatenate([cho_solve(factor, block) for factor, block in zip(self._factors, blocks, strict=True)])


class QuasiNewton:
    """Limited-memory BFGS (Nocedal 1980) that starts from a metric: a direction from gradients and what they moved."""

    def __init__(self, metric: Metric) -> None:
        self._metric, self._pairs = metric, deque(maxlen=_MEMORY)

    def remember(self, step: np.ndarray, change: np.ndarray) -> None:
        """Learn how the gradient changed along a step; what is no curvature is not learnt."""
        product = float(step @ change)
        if product > 1e-12 * float(np.linalg.norm(step) * np.linalg.norm(change)):
            self._pairs.append((step, change, 1 / product))

    def direction(self, gradient: np.ndarray) -> np.ndarray:
        """Return minus the inverse Hessian's guess times the gradient."""
        vector, shares = gradient.copy(), []
        for step, change, inverse in reversed(self._pairs):
            shares.append(inverse * float(step @ vector))
            vector -= shares[-1] * change
        vector = self._metric.solve(vector)
        for (step, change, inverse), share in zip(self._pairs, reversed(shares), strict=True):
            vector += (share - inverse * float(change @ vector)) * step
        return -vector


@dataclass(frozen=True, eq=False)
class Tilted:
    """``n F(x) + tilt'x`` over records: F has the objective's ridge, which may exceed that of the records' own."""

    objective: Minimised
    data: Rows
    tilt: np.ndarray

    def __post_init__(self) -> None:
        self.objective.require_same_records(self.data.problem)

    def certified(self, x: np.ndarray, kind: type, rows: np.ndarray | None = None) -> Certified:
        """Return the gradient, with a bound on its error; with ``rows``, as if all records were like these."""
        return certified_gradient(self.data, self.objective, x, self.tilt, kind, rows)


@dataclass(frozen=True, eq=False)
class Start:
    """Where searches over the same records begin: the untilted minimum of a sample, and the curvature there.

    It does not depend on tilts or on other searches, so that several may share it and each still finds what it would
    find by itself. The sample is of whole runs of records, evenly spread.
    """

    objective: Minimised
    data: Rows

    @cached_property
    def rows(self) -> np.ndarray | None:
        """The sample's records; None stands for all."""
        n, dimension = self.objective.n, self.objective.dimension
        size = max(_SMALLEST_SAMPLE, 8 * dimension, n // _SAMPLE_SHARE)
        return spread(n, size)

    @cached_property
    def point(self) -> np.ndarray:
        """Nearly the minimum of the sample, without a tilt."""
        tilted = Tilted(self.objective, self.data, np.zeros(self.objective.dimension))
        start = np.zeros(self.objective.dimension)
        n, size = self.objective.n, self.objective.n if self.rows is None else len(self.rows)
        near = 0.1 * self.objective.dimension / size  # the sample's own error, of its objective

        def gradient(x: np.ndarray) -> np.ndarray:
            return (tilted.certified(x, np.float64, self.rows).gradient / n).astype(float)

        search, x, here = QuasiNewton(self._metric(start)), start, gradient(start)
        for _ in range(_SAMPLE_STEPS):
            direction = search.direction(here)
            if -float(direction @ here) <= near:
                break
            x, here, there, before = *_advanced(gradient, x, direction, here), x, here
            search.remember(x - there, here - before)
        return x

    @cached_property
    def metric(self) -> Metric:
        """The curvature at that point."""
        return self._metric(self.point)

    @cached_property
    def _sizes(self) -> np.ndarray:
        return column_sizes(self.data, self.rows)

    def _metric(self, x: np.ndarray) -> Metric:
        n, width = self.objective.n, self.objective.problem.width
        size = min(n if self.rows is None else len(self.rows), _MATRIX_PASSES * n // width)
        whole = width <= _LARGEST_MATRIX and size >= 2 * width
        rows = spread(n, size) if whole else self.rows
        hessian = rough_hessian(self.data, self.objective, x, self._sizes, rows, whole=whole)
        try:
            return Metric(hessian)
        except np.linalg.LinAlgError:
            return Metric(np.einsum("kii->ki", hessian) if whole else hessian)


def spread(n: int, size: int) -> np.ndarray | None:
    """Return about so many of n records, in runs that are spread evenly; None for all where that is most of them."""
    count = -(-size // _RUN)
    if 2 * count * _RUN > n:
        return None
    starts = np.arange(count) * ((n - _RUN) // (count - 1)) if count > 1 else np.zeros(1, dtype=int)
    return np.add.outer(starts, np.arange(_RUN)).ravel()


def _advanced(gradient: _Gradient, x: np.ndarray, direction: np.ndarray, here: np.ndarray):
    """Return the point along a direction where the objective falls no more than a little, and its gradient.

    Only gradients are asked for: along a line the derivative of a convex function rises, and where it is still below a
    quarter of what it was, with the other sign, the function is below its start but for strange third derivatives.
    """
    slope, size = float(direction @ here), 1.0
    for _ in range(_HALVINGS):
        nearby = x + size * direction
        there = gradient(nearby)
        after = float(direction @ there)
        if after <= 0.25 * abs(slope):
            break
        size *= min(max(abs(slope) / (abs(slope) + after), 0.05), 0.9)
    return nearby, there


@np.errstate(all="ignore")  # a warning would tell something about a record
def grid_minimum(tilted: Tilted, goal: Goal, start: Start | None = None) -> np.ndarray:
    """Return a point of the goal's grid, as Python's integers, where the gradient is surely below its tolerance.

    The quasi-Newton method gets there in a few steps. Where it does not, for whatever reason, gradient descent on the
    grid from 0 does, by the theorem of ``Goal.require_reachable``; the other is tried again after 1, 2, 4, ... steps.
    """
    start = Start(tilted.objective, tilted.data) if start is None else start
    search = _Search(tilted, goal, start)
    minimum, steps = search.polished(start.point), 0
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
    start: Start

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
        """Return the point that the quasi-Newton method leads to from x; None if it does not get there."""
        n, step = self.goal.objective.n, self.goal.step
        search, point = QuasiNewton(self.start.metric), self._nearest(x)
        certified = self.gradient(point)
        shortest, stalled = certified.most, 0
        for _ in range(_STEPS):
            if self.is_met(certified):
                return point
            here = (certified.gradient / n).astype(float)
            direction = search.direction(here)
            better = self._advanced(point, direction, here)
            if better is None:
                return None
            before, (point, certified) = point, better
            search.remember(((point - before) * step).astype(float), (certified.gradient / n).astype(float) - here)
            stalled = 0 if certified.most < 0.9 * shortest else stalled + 1
            shortest = min(shortest, certified.most)
            if stalled > 30:
                return None
        return None

    def _advanced(self, point: np.ndarray, direction: np.ndarray, here: np.ndarray) -> tuple[np.ndarray, Certified] | None:
        """Return the grid's point along a direction where the objective falls no more than a little; None if none is."""
        slope, size = float(direction @ here), 1.0
        if not slope < 0:
            return None
        for _ in range(_HALVINGS):
            nearby = self._nearest(point * self.goal.step + size * direction)
            certified = self.gradient(nearby)
            after = float(direction @ (certified.gradient / self.goal.objective.n).astype(float))
            if self.is_met(certified) or after <= 0.25 * abs(slope):
                return nearby, certified
            size *= min(max(abs(slope) / (abs(slope) + after), 0.05), 0.9)
        return None

    def _nearest(self, x: np.ndarray) -> np.ndarray:
        """Return the grid's point next to x, within reach, where nothing overflows; 0 for what is no number."""
        size = float(np.linalg.norm(x))
        if not np.isfinite(size):
            return np.zeros(len(x), dtype=np.longdouble)
        x = x.astype(np.longdouble)
        return np.rint((x if size <= self.goal.reach else x * (self.goal.reach / size)) / self.goal.step)
