"""The minimum of a tilted objective over private records: a quasi-Newton method, and one that always ends.

Nothing that happens here is published: neither the iterates nor how many there were, nor how long it took. Nothing
here raises or warns, whatever the records: a plan's ``Goal.require_reachable`` has proved that the search ends.
"""

import math
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from epsteps.data.rows import Rows
from epsteps.methods.minimum import Goal, Minimised
from epsteps.problem.rounding import up
from epsteps.running import passes
from epsteps.running.passes import FINE, LONG, MIDDLE, ROUGH, Certified, Precision

# Steps over a sample, and over all records before the search is given up; steps in which a gradient must fall to a
# tenth, and tries to find a step's length; pairs of steps that a quasi-Newton method remembers.
_SAMPLE_STEPS, _STEPS, _PATIENCE, _TRIES, _MEMORY = 25, 400, 8, 40, 20
# A sample has runs of so many records that lie side by side; its size, from the smallest on, is this part of all.
_RUN, _SMALLEST_SAMPLE, _SAMPLE_SHARE, _LARGEST_SAMPLE = 256, 2**13, 64, 2**22
# Second derivatives as a matrix, of a larger sample: worth as much work as so many passes over all, and no larger.
_MATRIX_SHARE, _MATRIX_PASSES, _LARGEST_MATRIX = 16, 8, 2_500
# Coordinates up to which outputs are coupled in it from the start, and multiplications that a finer one may take, and
# second derivatives of its records.
_LARGEST_COUPLED, _MATRIX_WORK, _MATRIX_NUMBERS = 500, 2**33, 2**26

# Precisions of gradients, coarsest first: the next one may be off by so much of the last one's length. A step makes a
# gradient shorter by a factor of 30 or so: one that is off by more than it is long would have to be computed again.
_LADDER, _NEXT_ERROR = (ROUGH, MIDDLE, FINE), 0.01
# What a tilt's first step may gain, by the curvature where it begins, before the tilt is followed on the sample.
_FAR = 0.05
# A gradient that is expected to be off by so many tolerances at most is likely to be the last: it is made fine enough.
_LAST = 4


class View(NamedTuple):
    """What a search sees at a point: the mean's gradient, and whether the point is good enough."""

    x: np.ndarray
    gradient: np.ndarray
    is_good: bool

    @property
    def size(self) -> float:
        """The gradient's length."""
        return float(np.linalg.norm(self.gradient))


# What a search does with a point, which it may move a little: to a grid, or within reach. The second number is how far
# off its gradient may be.
_Look = Callable[[np.ndarray, float], View]


class Metric:
    """The first guess of a quasi-Newton method at the inverse of second derivatives: matrices, or a diagonal."""

    def __init__(self, hessian: np.ndarray) -> None:
        self._factors = [cho_factor(matrix) for matrix in hessian] if hessian.ndim == 3 else None
        self._diagonal = hessian
        if self._factors is None and not np.all((hessian > 0) & np.isfinite(hessian)):
            raise ValueError("second derivatives must be positive and finite.")

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

    def certified(self, x: np.ndarray, precision: Precision, rows: np.ndarray | None = None) -> Certified:
        """Return the gradient, with a bound on its error; with ``rows``, as if all records were like these."""
        return passes.certified_gradient(self.data, self.objective, x, self.tilt, precision, rows)


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
        size = max(_SMALLEST_SAMPLE, 8 * dimension, min(n // _SAMPLE_SHARE, _LARGEST_SAMPLE))
        return spread(n, size)

    @cached_property
    def point(self) -> np.ndarray:
        """Nearly the minimum of the sample, without a tilt."""
        start = np.zeros(self.objective.dimension)
        return self._found(start, start, self.rough_metric(start, _SMALLEST_SAMPLE))

    def near(self, tilt: np.ndarray) -> tuple[np.ndarray, Metric]:
        """Return where the search for a tilted minimum begins, and the curvature there, roughly.

        A tilt is followed by its first step, for which no record is read; one that leads far away, where the curvature
        is another one, on the sample.
        """
        pull = (tilt / self.objective.n).astype(float)
        step = self.metric.solve(pull)
        if float(pull @ step) <= _FAR:
            return self.point - step, self.metric
        point = self._found(self.point, tilt, self.metric)
        return point, self.rough_metric(point)

    def _found(self, start: np.ndarray, tilt: np.ndarray, metric: Metric) -> np.ndarray:
        """Return nearly the tilted minimum of the sample, from a point on; that point if the search does not end."""
        n, reach = self.objective.n, self.objective.reach(float(np.linalg.norm(tilt)))
        tilted = Tilted(self.objective, self.data, tilt)

        def look(x: np.ndarray, far: float) -> View:
            x = _within(x, reach)
            return View(x, (tilted.certified(x, MIDDLE, self.rows).gradient / n).astype(float), False)

        error = self.objective.dimension / (n if self.rows is None else len(self.rows))  # the sample's own, about
        found = quasi_newton(look, start, metric, self.rough_metric, error / 4, _SAMPLE_STEPS)
        return start if found is None else found.x

    @cached_property
    def metric(self) -> Metric:
        """The curvature at that point, roughly."""
        return self.rough_metric(self.point)

    @cached_property
    def _sizes(self) -> np.ndarray:
        return passes.column_sizes(self.data, self.rows)

    def rough_metric(self, x: np.ndarray, most: int | None = None) -> Metric:
        """Return the curvature at a point, roughly; with what couples the outputs of a loss, if it has few.

        With ``most``, from about so many records, where that is fewer: for steps over the sample alone.
        """
        coupled = self.objective.loss.outputs > 1 and self.objective.dimension <= _LARGEST_COUPLED
        return (self._fine(x) if coupled else None) or self._rough(x, most)

    def fine_metric(self, x: np.ndarray) -> Metric:
        """Return the curvature at a point with its small eigenvalues, where that can be had."""
        return self._fine(x) or self._rough(x)

    def _rough(self, x: np.ndarray, most: int | None = None) -> Metric:
        """Return a metric of matrices where they pay; else, or where they fail, one of diagonals."""
        n, problem = self.objective.n, self.objective.problem
        sampled = n if self.rows is None else max(len(self.rows), min(n // _MATRIX_SHARE, _LARGEST_SAMPLE))
        size = min(sampled, _MATRIX_PASSES * n // problem.width)
        worth = problem.width <= _LARGEST_MATRIX and size >= 2 * problem.width
        size = size if most is None else min(size, max(most, 8 * problem.width))
        for whole in (True, False) if worth else (False,):
            rows = spread(n, size) if whole else self.rows
            with suppress(np.linalg.LinAlgError, ValueError, MemoryError):  # a solver does without what fails
                return Metric(passes.rough_hessian(self.data, self.objective, x, self._sizes, rows, whole=whole))
        return Metric(np.full((problem.loss.outputs, problem.width), self.objective.L))

    def _fine(self, x: np.ndarray) -> Metric | None:
        """Return a metric from all records, or from a sample where they are many; None where it fails."""
        dimension, outputs = self.objective.dimension, self.objective.loss.outputs
        size = min(max(8 * dimension, _MATRIX_WORK // dimension**2), _MATRIX_NUMBERS // outputs**2)
        if dimension <= _LARGEST_MATRIX:
            with suppress(np.linalg.LinAlgError, ValueError, MemoryError):
                return Metric(passes.hessian(self.data, self.objective, x, spread(self.objective.n, size))[None])
        return None


def spread(n: int, size: int) -> np.ndarray | None:
    """Return about so many of n records, in runs that are spread evenly; None for all where that is most of them."""
    count = -(-size // _RUN)
    if 2 * count * _RUN > n:
        return None
    starts = np.arange(count) * ((n - _RUN) // (count - 1)) if count > 1 else np.zeros(1, dtype=int)
    return np.add.outer(starts, np.arange(_RUN)).ravel()


def quasi_newton(
    look: _Look, x: np.ndarray, metric: Metric, better: Callable[[np.ndarray], Metric], near: float, steps: int
) -> View | None:
    """Return the first good point, or the first from which a step would gain no more than ``near``; None if none is.

    Where gradients do not get much shorter with a metric, a better one is asked for.
    """
    search, here = QuasiNewton(metric), look(x, math.inf)
    before, taken = here.size, 0
    for _ in range(steps):
        direction = search.direction(here.gradient)
        gain = -float(direction @ here.gradient)
        if here.is_good or 0 <= gain <= near:
            return here
        there = _along(look, here, direction, gain) if gain > 0 else None
        if there is None and taken == 0:
            return None
        taken += 1
        if there is None or (taken == _PATIENCE and there.size > before / 10):
            here = here if there is None else there
            search, before, taken = QuasiNewton(better(here.x)), here.size, 0
            continue
        if taken == _PATIENCE:
            before, taken = there.size, 0
        search.remember((there.x - here.x).astype(float), there.gradient - here.gradient)
        here = there
    return None


def _along(look: _Look, here: View, direction: np.ndarray, gain: float) -> View | None:
    """Return a point along a direction, where the objective falls, or no longer does but hardly rises; None if none is.

    Only gradients are asked for: along a line the derivative of a convex function rises, so that the function has
    fallen wherever it is still negative, and, but for strange third derivatives, where it is small yet. A step is
    made longer where the function falls almost as steeply as before.
    """
    size, best = 1.0, None
    for _ in range(_TRIES):
        there = look(here.x + size * direction, here.size * _NEXT_ERROR)
        rise = float(direction @ there.gradient)
        if there.is_good or (best is None and -0.8 * gain <= rise <= 0.25 * gain):
            return there
        if rise > 0.25 * gain:
            if best is not None:
                return best
            size *= min(max(gain / (gain + rise), 0.05), 0.9)
        elif rise > -0.8 * gain or not np.any(there.x != (here if best is None else best).x):
            return there
        else:
            best, size = there, 10 * size
    return best


@np.errstate(all="ignore")  # a warning would tell something about a record
def grid_minimum(tilted: Tilted, goal: Goal, start: Start | None = None) -> np.ndarray:
    """Return a point of the goal's grid, as Python's integers, where the gradient is surely below its tolerance.

    The quasi-Newton method gets there in a few steps. Where it does not, for whatever reason, gradient descent on the
    grid from 0 does, by the theorem of ``Goal.require_reachable``; the other is tried again after 1, 2, 4, ... steps.
    """
    start = Start(tilted.objective, tilted.data) if start is None else start
    if not tilted.objective == goal.objective == start.objective:
        raise ValueError(f"a search must have one objective, got {tilted.objective} for {goal.objective}.")
    search = _Search(tilted, goal, start)
    minimum, steps = search.polished(*start.near(tilted.tilt)), 0
    point = np.zeros(goal.objective.dimension, dtype=np.longdouble)
    while minimum is None:
        gradient = search.gradient(point, goal.tolerance / 8)
        if search.is_met(gradient):
            minimum = point
        else:
            point = np.rint(point - gradient.gradient / (np.longdouble(goal.smoothness) * goal.step))
            steps += 1
            if steps & (steps - 1) == 0:
                minimum = search.polished((point * goal.step).astype(float), start.metric)
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

    def gradient(self, point: np.ndarray, far: float) -> Certified:
        """Return the gradient at a point of the grid: as coarsely as errors stay below ``far``, if that will do.

        It does not where it leaves open whether the gradient is small enough; but one that is known to an eighth of the
        tolerance is left there, as another step is cheaper. Nothing is finer than long doubles.
        """
        x = point * self.goal.step
        sizes = passes.sizes_of(x, self.tilted.tilt, self.goal.objective.problem.units)
        errors = [precision.error(self.goal.objective, *sizes) for precision in _LADDER]
        coarse = sum(error > far for error in errors)
        gradient = self.tilted.certified(x, (*_LADDER, LONG)[coarse])
        for error, precision in zip(errors[coarse:], (*_LADDER, LONG)[coarse + 1 :], strict=True):
            if self.is_met(gradient) or gradient.least > self.goal.tolerance or error <= self.goal.tolerance / 8:
                break
            gradient = self.tilted.certified(x, precision)
        return gradient

    def polished(self, x: np.ndarray, metric: Metric) -> np.ndarray | None:
        """Return the point that the quasi-Newton method leads to from x; None if it does not get there."""
        found = quasi_newton(self._look, x, metric, self.start.fine_metric, 0.0, _STEPS)
        return None if found is None or not found.is_good else np.rint(found.x / self.goal.step)

    def _look(self, x: np.ndarray, far: float) -> View:
        point, n, tolerance = self._nearest(x), self.goal.objective.n, self.goal.tolerance
        certified = self.gradient(point, far * n if far * n > _LAST * tolerance else tolerance / 8)
        return View(point * self.goal.step, (certified.gradient / n).astype(float), self.is_met(certified))

    def _nearest(self, x: np.ndarray) -> np.ndarray:
        """Return the grid's point next to x, within reach."""
        return np.rint(_within(x.astype(np.longdouble), self.goal.reach) / self.goal.step)


def _within(x: np.ndarray, reach: float) -> np.ndarray:
    """Return x within reach, where nothing overflows; 0 in the place of what is no number."""
    size = float(np.linalg.norm(x))
    if not np.isfinite(size):
        return np.zeros_like(x)
    return x if size <= reach else x * (reach / size)
