"""Output perturbation, executed: minimise the objective, and add noise to its minimum."""

from dataclasses import dataclass

import numpy as np

from epsteps.noise import Source
from epsteps.plans.output import OutputPlan
from epsteps.plans.precision import worst_rounding
from epsteps.records import Rows
from epsteps.releases.certified import Certified, certified_gradient
from epsteps.releases.solving import Tilted, minimise


@dataclass(frozen=True, eq=False)
class NoisyMinimum:
    """The one release of a plan: the minimum on a grid, of whose integers noise is added to each."""

    plan: OutputPlan

    def noise(self, source: Source) -> np.ndarray:
        """Draw the noise in integers. Sees no records."""
        return source.integers(self.plan.noise, self.plan.scale / self.plan.step, (self.plan.problem.dimension,))

    def minimum(self, data: Rows) -> np.ndarray:
        """Return the minimum as integers, UNPROTECTED: a point of the grid where the gradient is below the tolerance.

        The step is a power of two, so that a float is rounded to the grid and back without error.
        """
        plan = self.plan

        def refine(x: np.ndarray) -> tuple[np.ndarray | None, np.ndarray]:
            integers = np.rint(x / plan.step)
            found = self._gradient(data, integers * plan.step)
            return integers if _size(found) <= plan.tolerance else None, found.gradient / plan.problem.n

        found = minimise(Tilted(plan.minimised, data, np.zeros(plan.problem.dimension)), refine)
        return np.array([int(entry) for entry in found], dtype=object)

    def _gradient(self, data: Rows, x: np.ndarray) -> Certified:
        """Return the gradient of the sum, in longer floats where these decide whether it is below the tolerance."""
        none, tolerance = np.zeros(len(x)), self.plan.tolerance
        found = certified_gradient(data, self.plan.minimised, x, none, np.float64)
        if _size(found) <= tolerance or np.linalg.norm(found.gradient) > tolerance:
            return found
        return certified_gradient(data, self.plan.minimised, x, none, np.longdouble)

    def model(self, minimum: np.ndarray, noise: np.ndarray) -> np.ndarray:
        """Return what is published: the noisy integers in real units."""
        return (minimum + noise.astype(object)).astype(float) * self.plan.step


def release_output(plan: OutputPlan, data: Rows, source: Source) -> np.ndarray:
    """Return the published minimum, as the one row of a path."""
    release = NoisyMinimum(plan)
    noise = release.noise(source)
    return release.model(release.minimum(data), noise)[None, :]


def _size(found: Certified) -> float:
    """Bound the norm of the gradient, rounding errors included."""
    return float(np.linalg.norm(found.gradient)) * (1 + 1e-12) + found.error


def require_precision(plan: OutputPlan) -> None:
    """Raise if this machine's floats cannot certify the plan's tolerance. Decided from public numbers."""
    error = worst_rounding(plan.minimised, 0.0, float(np.finfo(np.longdouble).eps))
    if error > plan.tolerance / 2:
        raise ValueError(
            f"floats of this machine are too coarse for the plan: rounding may reach {error:.3g} at its tolerance of "
            f"{plan.tolerance:.3g}. Use a machine whose long doubles are longer, or a larger ridge."
        )
