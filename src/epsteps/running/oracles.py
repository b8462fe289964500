"""A private step's noisy gradient, in exact integers, drawn and used apart."""

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from epsteps.budgets.mechanisms import Mechanism
from epsteps.data.rows import Rows
from epsteps.noise import Source
from epsteps.plans.planning import Plan
from epsteps.problem.bodies import Body, Ellipsoid
from epsteps.problem.grid import Grid, Points, Release
from epsteps.problem.hulls import Hull
from epsteps.problem.problem import Problem
from epsteps.problem.sampling import Sampling

# A scale is rounded up by this much, far above its rounding error.
_OUTWARD = 1 + 1e-12


@dataclass(frozen=True, eq=False)
class Draw:
    """The secrets of one step: its noise, and the records that each repetition reads (None for all of them)."""

    noise: np.ndarray
    subsets: np.ndarray | None


class Oracle(Protocol):
    """One step of a plan at its public point x (one per column): what it will add, and what it then releases."""

    def draw(self) -> Draw:
        """Draw what the step will add. Sees no records."""
        ...

    def gradient(self, draw: Draw) -> np.ndarray:
        """Return the gradient at x with the drawn noise: the one line that reads records."""
        ...


@dataclass(frozen=True, eq=False)
class GradientRelease:
    """A sum of gradients at public points (one per column of ``x``), to be released with integer noise.

    Formal guarantee: the noise is added to a sum whose sensitivity is that of the real problem, exactly
    (``problem.grid``), and follows its law exactly (``epsteps.noise``). ``scale`` is the real scale of the noise on the
    sum, and ``bound`` the largest slope that it is scaled for.
    """

    problem: Problem
    mechanism: Mechanism
    x: np.ndarray
    scale: np.ndarray | float
    bound: np.ndarray | float

    @cached_property
    def shape(self) -> Body | Hull | Ellipsoid | None:
        """What the noise is shaped like."""
        return self.mechanism.shape(self.problem)

    @cached_property
    def points(self) -> Points:
        """The points on the grid."""
        return Grid(self.problem).points(self.x, self.bound)

    @cached_property
    def release(self) -> Release:
        """The integers that are released."""
        return Grid(self.problem).release(self.scale, self.bound, self.mechanism.norm, self.shape)

    def noise(self, source: Source) -> np.ndarray:
        """Draw what is added. Sees no records."""
        return source.integers(self.mechanism, self.release.scale, self.x.shape, self.shape)

    def noisy(self, sums: np.ndarray, noise: np.ndarray) -> np.ndarray:
        """Return the released sum in real units."""
        return self.release.noisy(sums, noise)


def noisy_gradient(
    problem: Problem, mechanism: Mechanism, cost: float, x: np.ndarray, data: Rows, source: Source
) -> np.ndarray:
    """Release the gradient of F at one public point for this cost, in the mechanism's unit.

    The noise is scaled by the sensitivity at x.
    """
    sensitivity = problem.sensitivity_at(x, mechanism.norm)
    scale = mechanism.scales(float(sensitivity), np.array(cost), Sampling(1, 1)) * _OUTWARD
    release = GradientRelease(problem, mechanism, x[:, None], float(scale), problem.slope_at(x[:, None]))
    noise = release.noise(source)
    return release.noisy(data.sums(release.points), noise)[:, 0] / problem.n + problem.ridge * x


class ExactOracle:
    """A step of a plan in integer sums and integer noise, so that it costs what its plan says."""

    def __init__(self, plan: Plan, data: Rows, source: Source, t: int, x: np.ndarray) -> None:
        self._plan, self._data, self._source = plan, data, source.at_step(t)
        scale = plan.scale_at(t, x) * plan.batch
        self._release = GradientRelease(plan.problem, plan.mechanism, x, scale, plan.slope_at(x))

    def draw(self) -> Draw:
        """Draw what the step will add."""
        noise = self._release.noise(self._source)
        return Draw(noise, _subsets(self._plan, self._release.x.shape[1], self._source))

    def gradient(self, draw: Draw) -> np.ndarray:
        """Return the gradient at x with the drawn noise."""
        plan, points = self._plan, self._release.points
        if draw.subsets is None:
            sums = self._data.sums(points)
        else:
            columns = [self._data.sums(points.column(r), rows) for r, rows in enumerate(draw.subsets)]
            sums = np.concatenate(columns, axis=1)
        return self._release.noisy(sums, draw.noise) / plan.batch + plan.problem.ridge * self._release.x


def _subsets(plan: Plan, columns: int, source: Source) -> np.ndarray | None:
    """Draw the records that each column reads, each its own; None when they read all."""
    if plan.sampling.is_full:
        return None
    return np.stack([source.subset(plan.sampling) for _ in range(columns)])
