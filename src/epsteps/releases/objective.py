"""Objective perturbation, executed: draw a tilt, minimise the tilted objective, add noise to its minimum."""

from dataclasses import dataclass

import numpy as np

from epsteps.mechanisms import KNorm
from epsteps.noise import Source
from epsteps.plans.objective import ObjectivePlan
from epsteps.plans.precision import worst_rounding
from epsteps.records import Rows
from epsteps.releases.certified import Certified, certified_gradient
from epsteps.releases.solving import Tilted, minimise

_OUTPUT = KNorm("l2")
_KINDS = (np.float64, np.longdouble)


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
        shaped = self.plan.noise.shape(self.plan.problem) is not None
        units = self.plan.problem.units if shaped else np.ones(len(tilt))
        return tilt.astype(float) * self.plan.tilt_steps[self.number] * units

    def minimum(self, data: Rows, tilt: np.ndarray) -> np.ndarray:
        """Return the minimum as integers, UNPROTECTED: a point of the grid where the gradient is below the tolerance.

        The step is a power of two, so that a float is rounded to the grid and back without error.
        """
        plan, real = self.plan, self.tilt_size(tilt)

        def refine(x: np.ndarray) -> tuple[np.ndarray | None, np.ndarray]:
            integers = np.rint(x / self.step)
            near, gradient = self._is_near(data, integers * self.step, real)
            return integers if near else None, gradient / plan.problem.n

        found = minimise(Tilted(plan.minimised, data, real), refine)
        return np.array([int(entry) for entry in found], dtype=object)

    def _is_near(self, data: Rows, x: np.ndarray, tilt: np.ndarray) -> tuple[bool, np.ndarray]:
        """Return whether the gradient at x is surely below the tolerance, and the gradient."""
        found = certified_gradient(data, self.plan.minimised, x, tilt, np.float64)
        for kind in _KINDS[1:]:
            if self._size(found) <= self.plan.tolerance or np.linalg.norm(found.gradient) > self.plan.tolerance:
                break  # near enough, or so far that more digits would not help
            found = certified_gradient(data, self.plan.minimised, x, tilt, kind)
        return self._size(found) <= self.plan.tolerance, found.gradient

    def _size(self, found: Certified) -> float:
        """Bound the norm of the gradient for the theorem's tilt."""
        return float(np.linalg.norm(found.gradient)) * (1 + 1e-12) + found.error + self.plan.tilt_slack

    def model(self, minimum: np.ndarray, noise: np.ndarray) -> np.ndarray:
        """Return what is published: the noisy integers in real units."""
        return (minimum + noise.astype(object)).astype(float) * self.step


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


def require_precision(plan: ObjectivePlan) -> None:
    """Raise if this machine's floats cannot certify the plan's tolerance. Decided from public numbers."""
    error = min(worst_rounding(plan.minimised, max(plan.scales), float(np.finfo(kind).eps)) for kind in _KINDS)
    if error + plan.tilt_slack > plan.tolerance / 2:
        raise ValueError(
            f"floats of this machine are too coarse for the plan: rounding may reach {error:.3g} at its tolerance of "
            f"{plan.tolerance:.3g}. Use a machine whose long doubles are longer, a larger ridge, or method='output'."
        )
