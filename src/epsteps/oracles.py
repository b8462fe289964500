"""A private step's noisy gradient, in exact integers, drawn and used apart."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from epsteps.grid import Grid
from epsteps.noise import Source
from epsteps.planning import Plan
from epsteps.records import Rows


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


class ExactOracle:
    """Integer sums and integer noise: what a private step releases is a whole number of grid steps.

    Formal guarantee: the noise is added to a sum whose sensitivity is that of the real problem, exactly
    (``epsteps.grid``), and follows its law exactly (``epsteps.noise``), so that a step costs what its plan says.
    """

    def __init__(self, plan: Plan, data: Rows, source: Source, t: int, x: np.ndarray) -> None:
        grid, bound = Grid(plan.problem), plan.slope_at(x)
        self._plan, self._data, self._source, self._x = plan, data, source.at_step(t), x
        self._points = grid.points(x, bound)
        self._release = grid.release(plan.scale_at(t, x) * plan.batch, bound, plan.mechanism.norm)

    def draw(self) -> Draw:
        """Draw what the step will add."""
        noise = self._source.integers(self._plan.mechanism, self._release.scale, self._x.shape)
        return Draw(noise, _subsets(self._plan, self._x.shape[1], self._source))

    def gradient(self, draw: Draw) -> np.ndarray:
        """Return the gradient at x with the drawn noise."""
        if draw.subsets is None:
            sums = self._data.sums(self._points)
        else:
            columns = [self._data.sums(self._points.column(r), rows) for r, rows in enumerate(draw.subsets)]
            sums = np.concatenate(columns, axis=1)
        noisy = self._release.rounded(sums) + draw.noise.astype(sums.dtype)
        return noisy.astype(float) * (self._release.step / self._plan.batch) + self._plan.problem.ridge * self._x


def _subsets(plan: Plan, columns: int, source: Source) -> np.ndarray | None:
    """Draw the records that each column reads, each its own; None when they read all."""
    if plan.sampling.is_full:
        return None
    return np.stack([source.subset(plan.sampling) for _ in range(columns)])
