"""The request for a minimum: that of an objective, tilted by noise or not, with noise on the point that is found."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from epsteps.budgets import Cost, Epsilon
from epsteps.budgets.mechanisms import Mechanism
from epsteps.methods import minima
from epsteps.methods.minimised import Minimised
from epsteps.methods.precision import Goal
from epsteps.plans.requests import Draw, Records, Request
from epsteps.problem.grid import added
from epsteps.problem.problem import Problem

if TYPE_CHECKING:
    from epsteps.noise import Source

_UP = 1 + 1e-12


@dataclass(frozen=True, eq=False)
class Tilt:
    """Noise on the objective itself: b'x is added to the sum, b an integer multiple of ``step`` in its law's units."""

    mechanism: Mechanism
    scale: float
    step: float

    def units(self, problem: Problem) -> np.ndarray:
        """Return the real size of a step along each coordinate: noise of a body is in the domain's units."""
        return self.step * self.mechanism.units(problem)


@dataclass(frozen=True, eq=False)
class Minimum(Request):
    """The minimum on a grid of a goal's objective, of whose integers noise is added to each.

    What is minimised, what the noise is scaled by and when the solver stops come from one place, ``goal``.

    Formal guarantee, without a tilt: replacing a record moves the exact minimum by at most 2 S/(n ridge), and the point
    that is found is within tolerance/(n ridge) of it. With a tilt, that costs what the Jacobian of x -> b adds to its
    noise (``minima``), the tilt's cells are counted, and noise on the point hides how far it is from the minimum.
    """

    goal: Goal
    noise: Mechanism
    tilt: Tilt | None = None

    @property
    def problem(self) -> Problem:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The objective without its own ridge, which records are read for."""
        return self.goal.objective.problem

    @cached_property
    def sensitivity(self) -> float:
        """How far a replaced record moves the point that is found, in the L2 norm, if nothing is tilted; rounded up."""
        return moved(self.goal.objective, self.goal.tolerance)

    @property
    def output_cost(self) -> float:
        """Epsilon of the noise on the point: it hides the tolerance where a tilt protects the minimum."""
        return 2 * self.goal.objective.radius(self.goal.tolerance) / self.goal.scale * _UP

    @cached_property
    def costs(self) -> tuple[Cost, ...]:
        """Without a tilt that of the noise on the point. With one, in all if it is pure; if Gaussian, of each apart."""
        if self.tilt is None:
            return (self.noise.kind.of_ratio(self.sensitivity / self.goal.scale * _UP),)
        objective, noise = self.goal.objective, self.tilt.mechanism
        ratio, output = objective.sensitivity(noise.norm) / self.tilt.scale, self.output_cost
        if not noise.kind.is_pure:
            return noise.kind.of_ratio(ratio * _UP), Epsilon(output)
        cells = noise.cell(self.problem) * self.tilt.step / self.tilt.scale
        return (Epsilon((minima.total_epsilon(ratio, objective.kappa, objective.saturation) + cells + output) * _UP),)

    @staticmethod
    def prepare(records: Records) -> None:
        """Read a block, which records in dask workers refuse, and all records once."""
        next(iter(records.blocks()))
        records.value(np.zeros(records.problem.dimension))

    def draw(self, source: "Source") -> Draw:
        """Draw the tilt, if there is one, and then the noise on the point, in integers."""
        size, drawn = (self.problem.dimension,), {}
        if self.tilt is not None:
            scale, shape = self.tilt.scale / self.tilt.step, self.tilt.mechanism.shape(self.problem)
            drawn["tilt"] = source.integers(self.tilt.mechanism, scale, size, shape)
        return drawn | {"noise": source.integers(self.noise, self.goal.scale / self.goal.step, size)}

    def read(self, records: Records, draw: Draw) -> np.ndarray:
        """Return the minimum as integers: a point of the grid whose gradient is below the tolerance."""
        return records.minimum(self.goal, self.tilt_of(draw))

    def tilt_of(self, draw: Draw) -> np.ndarray:
        """Return the drawn tilt in real units, in long doubles: its rounding counts as theirs."""
        if self.tilt is None:
            return np.zeros(self.problem.dimension, dtype=np.longdouble)
        return draw["tilt"].astype(np.longdouble) * self.tilt.units(self.problem)

    def publish(self, reading: np.ndarray, draw: Draw) -> np.ndarray:
        """Return the noisy integers in real units."""
        return added(reading, draw["noise"]).astype(float) * self.goal.step


def moved(objective: Minimised, tolerance: float) -> float:
    """Bound how far a replaced record moves the point that a solver finds, in the L2 norm; rounded up."""
    return (objective.minimum_sensitivity + 2 * objective.radius(tolerance)) * _UP


def power_of_two(scale: float, bits: int) -> float:
    """Return the power of two in which noise of this scale has about so many bits."""
    return math.ldexp(1.0, math.frexp(scale)[1] - 1 - bits)
