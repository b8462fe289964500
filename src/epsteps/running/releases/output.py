"""Output perturbation, executed: minimise the objective, and add noise to its minimum."""

from dataclasses import dataclass

import numpy as np

from epsteps.data.rows import Rows
from epsteps.methods.output import OutputPlan
from epsteps.noise import Source, added
from epsteps.running.releases.solving import Tilted, grid_minimum


@dataclass(frozen=True, eq=False)
class NoisyMinimum:
    """The one release of a plan: the minimum on a grid, of whose integers noise is added to each."""

    plan: OutputPlan

    def noise(self, source: Source) -> np.ndarray:
        """Draw the noise in integers. Sees no records."""
        return source.integers(self.plan.noise, self.plan.scale / self.plan.step, (self.plan.problem.dimension,))

    def minimum(self, data: Rows) -> np.ndarray:
        """Return the minimum as integers, UNPROTECTED: a point of the grid whose gradient is below the tolerance."""
        none = np.zeros(self.plan.problem.dimension, dtype=np.longdouble)
        return grid_minimum(Tilted(self.plan.objective, data, none), self.plan.goal)

    def model(self, minimum: np.ndarray, noise: np.ndarray) -> np.ndarray:
        """Return what is published: the noisy integers in real units."""
        return added(minimum, noise).astype(float) * self.plan.step


def release_output(plan: OutputPlan, data: Rows, source: Source) -> np.ndarray:
    """Return the published minimum, as the one row of a path."""
    release = NoisyMinimum(plan)
    noise = release.noise(source)
    return release.model(release.minimum(data), noise)[None, :]
