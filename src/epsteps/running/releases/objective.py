"""Objective perturbation, executed: draw a tilt, minimise the tilted objective, add noise to its minimum."""

from dataclasses import dataclass

import numpy as np

from epsteps.budgets.mechanisms import KNorm
from epsteps.data.rows import Rows
from epsteps.methods.objective import ObjectivePlan
from epsteps.noise import Source, added
from epsteps.running.releases.solving import Tilted, grid_minimum

_OUTPUT = KNorm("l2")


@dataclass(frozen=True, eq=False)
class TiltedMinimum:
    """One release of a plan: the minimum on a grid, of whose integers noise is added to each."""

    plan: ObjectivePlan
    number: int

    @property
    def step(self) -> float:
        """Real size of an integer of the output."""
        return self.plan.output_steps[self.number]

    def tilt(self, source: Source) -> np.ndarray:
        """Draw the tilt in integers. Sees no records."""
        plan = self.plan
        scale = plan.scales[self.number] / plan.tilt_steps[self.number]
        return source.integers(plan.noise, scale, (plan.problem.dimension,), plan.noise.shape(plan.problem))

    def noise(self, source: Source) -> np.ndarray:
        """Draw the noise of the output in integers. Sees no records."""
        scale = self.plan.output_scales[self.number] / self.step
        return source.integers(_OUTPUT, scale, (self.plan.problem.dimension,))

    def tilt_size(self, tilt: np.ndarray) -> np.ndarray:
        """Return the tilt in real units."""
        return self._long_tilt(tilt).astype(float)

    def minimum(self, data: Rows, tilt: np.ndarray) -> np.ndarray:
        """Return the minimum as integers, UNPROTECTED: a point of the grid whose gradient is below the tolerance."""
        tilted = Tilted(self.plan.objective, data, self._long_tilt(tilt))
        return grid_minimum(tilted, self.plan.goals[self.number])

    def _long_tilt(self, tilt: np.ndarray) -> np.ndarray:
        """Return the tilt in real units, in long doubles: its rounding counts as theirs."""
        shaped = self.plan.noise.shape(self.plan.problem) is not None
        units = self.plan.problem.units if shaped else np.ones(len(tilt))
        return tilt.astype(np.longdouble) * self.plan.tilt_steps[self.number] * units

    def model(self, minimum: np.ndarray, noise: np.ndarray) -> np.ndarray:
        """Return what is published: the noisy integers in real units."""
        return added(minimum, noise).astype(float) * self.step


def release_objective(plan: ObjectivePlan, data: Rows, source: Source) -> np.ndarray:
    """Return the published minima, one row each; of several, their weighted mean follows as the last."""
    models = []
    for number in range(len(plan.scales)):
        release = TiltedMinimum(plan, number)
        tilt, noise = release.tilt(source), release.noise(source)
        models.append(release.model(release.minimum(data, tilt), noise))
    if len(models) > 1:
        models.append(plan.weights @ np.array(models))
    return np.array(models)
