"""The plan of objective perturbation: a model that minimises a tilted objective, and nothing else, is published."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from epsteps.budgets import Approximate, Budget, mechanisms
from epsteps.budgets.mechanisms import Mechanism
from epsteps.budgets.spending import of_pure
from epsteps.methods import minima
from epsteps.methods.minima import Corners, Saturation
from epsteps.methods.minimised import Minimised, saturation_of
from epsteps.methods.precision import Goal, grid_step, tilt_length
from epsteps.plans import covariances
from epsteps.plans.planning import OverspentError
from epsteps.plans.published import Charge, Item, charges, describe, dumps, loads, problem_fact
from epsteps.problem import memory, validate
from epsteps.problem.problem import Problem

# Bits of the integers that the tilt and the noise on the output are drawn in.
TILT_BITS, _OUTPUT_BITS = 36, 28
_OUTWARD = 1 + 1e-12
# What predictions assume of the solution's norm. Never privacy.
SOLUTION_NORM = 3.0


@dataclass(frozen=True)
class ObjectivePlan:
    """Objective perturbation, decided: the published x nearly minimises ``n F(x) + b'x`` for a drawn tilt b.

    Only the minimum is published, never the solver's iterates, their number or its time. Of several releases, each with
    its own tilt, the last model is the mean of all, weighted by their precision.

    Formal guarantee: b has the mechanism's law, and costs as ``methods.minima`` says, the Jacobian of x -> b included
    (Chaudhuri, Monteleoni, Sarwate 2011, with the joint bound of that package). What the noise is scaled by and what is
    minimised come from one place, ``objective``. The solver stops where the gradient is below the public ``tolerance``,
    rounding errors included, so that its point is within tolerance/(n ridge) of the exact minimum, by strong convexity;
    noise of density ~ exp(-|z|_2/output_scale) hides the difference (Iyengar et al. 2019). That it gets there, whatever
    the records, is decided before they are read (``plans.precision.Goal``). The drawn tilt is an integer multiple of a
    tiny step. Spread evenly over its cell it is the continuous tilt of the theorem, at a cost that is counted, and the
    solver's tolerance covers the distance.

    Parameters
    ----------
    problem, budget
        The public facts, and what may be spent.
    mechanism : str
        Name of the tilt's noise.
    ridge : float
        Ridge of the objective that is minimised, at least the problem's: more of it where noise is large.
    scales, output_scales : tuples of float
        Noise of each release: of the tilt of the sum, and of the output.
    tolerance : float
        Norm of the sum's gradient, tilt included, below which the solver stops.
    """

    problem: Problem
    budget: Budget
    mechanism: str
    ridge: float
    scales: tuple[float, ...]
    output_scales: tuple[float, ...]
    tolerance: float

    def __post_init__(self) -> None:
        saturation_of(self.problem.loss)
        Minimised(self.problem, self.ridge)
        memory.require_hessian(self.problem)
        validate.positive("tolerance", self.tolerance)
        for name in ("scales", "output_scales"):
            object.__setattr__(self, name, tuple(validate.positive(name, scale) for scale in getattr(self, name)))
        if not len(self.scales) == len(self.output_scales) > 0:
            raise ValueError("scales and output_scales must have one entry for each release, and at least one.")
        mechanisms.require_fit(self.noise, self.problem)
        if self.spent > self.budget.amount:
            raise OverspentError(
                f"the plan's scales spend {self.spent!r}, more than its budget {self.budget.amount!r}. "
                "Make the plan anew with epsteps.plan."
            )

    @property
    def method(self) -> str:
        """Name of the method, for people."""
        return "objective perturbation" if len(self.scales) == 1 else "sequential objective perturbation"

    @cached_property
    def noise(self) -> Mechanism:
        """The noise of the tilt."""
        return mechanisms.named(self.mechanism)

    @cached_property
    def objective(self) -> Minimised:
        """What is minimised, but for the tilt: the solver's function, and the bounds that noise is scaled by."""
        return Minimised(self.problem, self.ridge)

    @property
    def minimised(self) -> Problem:
        """The objective as a problem."""
        return self.objective.stated

    @property
    def saturation(self) -> Saturation:
        """How the loss's slope saturates."""
        return self.objective.saturation

    @property
    def kappa(self) -> float:
        """What one record weighs against the ridge."""
        return self.objective.kappa

    @property
    def tilt_steps(self) -> tuple[float, ...]:
        """Real size of one integer of each tilt, in the mechanism's units: a power of two."""
        return tuple(_step(scale, TILT_BITS) for scale in self.scales)

    @property
    def output_steps(self) -> tuple[float, ...]:
        """Real size of one integer of each output: a power of two, small enough for rounding to keep the tolerance."""
        return tuple(
            grid_step(self.objective, self.tolerance, scale, _OUTPUT_BITS, tilt)
            for scale, tilt in zip(self.output_scales, self.tilt_lengths, strict=True)
        )

    @property
    def tilt_lengths(self) -> tuple[float, ...]:
        """How long each tilt is at most, but with a probability below 1e-300."""
        return tuple(tilt_length(self.objective, self.noise, scale) for scale in self.scales)

    @cached_property
    def goals(self) -> tuple[Goal, ...]:
        """What the solver must find for each release."""
        return tuple(
            Goal(self.objective, step, self.tolerance, output, self.tilt_slack, tilt)
            for step, output, tilt in zip(self.output_steps, self.output_scales, self.tilt_lengths, strict=True)
        )

    def require_reachable(self, unit: float | None = None) -> None:
        """Raise unless the solver is certain to meet its tolerance, whatever the records; by public numbers alone.

        In floats of this unit, by default the longest of this machine.
        """
        for goal in self.goals:
            goal.require_reachable(unit)

    @property
    def tilt_slack(self) -> float:
        """How far the tilt that is used may be from the theorem's, in the L2 norm."""
        units = self.problem.units if self.noise.shape(self.problem) is not None else np.ones(self.problem.dimension)
        return max(self.tilt_steps) * float(np.linalg.norm(units)) * _OUTWARD

    @cached_property
    def output_costs(self) -> tuple[float, ...]:
        """Epsilon of the noise on each output."""
        radius = self.objective.radius(self.tolerance)
        return tuple(2 * radius / scale * _OUTWARD for scale in self.output_scales)

    @cached_property
    def costs(self) -> tuple[float, ...]:
        """Cost of each release: epsilon where the noise is pure; for Gaussian tilts the mu of each, output apart."""
        sensitivity = self.objective.sensitivity(self.noise.norm)
        if self.noise.unit == "rho":
            return tuple(sensitivity / scale * _OUTWARD for scale in self.scales)
        cells = cell_size(self.noise, self.problem)
        return tuple(
            (minima.total_epsilon(sensitivity / scale, self.kappa, self.saturation) + cells * step / scale + output)
            * _OUTWARD
            for scale, step, output in zip(self.scales, self.tilt_steps, self.output_costs, strict=True)
        )

    @cached_property
    def corners(self) -> Corners:
        """The Gaussian releases together, outputs apart: what they are composed by."""
        if not isinstance(self.budget, Approximate):
            raise ValueError(f"Gaussian tilts need an Approximate budget, got {self.budget!r}.")
        left = self.budget.epsilon - math.fsum(self.output_costs)
        return composed_corners(self.kappa, self.saturation, left, self.costs)

    @property
    def cost(self) -> Budget | Corners:
        """What a ledger may be charged instead of ``spending()``: the corners, which compose better."""
        if self.noise.unit == "epsilon":
            return self.spending()
        outputs = math.fsum(self.output_costs) * _OUTWARD
        shifts = tuple(shift + outputs for shift in self.corners.shifts)
        return Corners(self.corners.multiplicities, self.corners.ratios, shifts)

    @cached_property
    def spent(self) -> float:
        """Epsilon (or rho, for a budget of rho) of everything that is published. Never above the budget."""
        return self.spending().amount

    def spending(self, repetitions: int = 1) -> Budget:
        """Return what so many runs cost together, rounded up."""
        if self.noise.unit == "rho":
            assert isinstance(self.budget, Approximate)
            epsilon = self.corners.epsilon(1.0, self.budget.delta) + math.fsum(self.output_costs) * _OUTWARD
            return Approximate(epsilon * repetitions, self.budget.delta * repetitions)
        return of_pure(self.budget, math.fsum(self.costs) * repetitions * _OUTWARD)

    @property
    def weights(self) -> np.ndarray:
        """What each published minimum counts in their mean: its precision."""
        precision = np.array(self.scales) ** -2.0
        return precision / precision.sum()

    @property
    def error(self) -> float:
        """A bound on the expected excess of the minimised objective at the last model: E|b|²/(2 n² ridge)."""
        energy = 2 * self.noise.half_power(np.array(self.scales), self.problem)
        return float(np.sum(self.weights**2 * energy)) / (2 * self.problem.n**2 * self.ridge)

    @property
    def items(self) -> tuple[Item, ...]:
        """What is released, in order."""
        unit = "epsilon" if self.noise.unit == "epsilon" else "mu"
        return tuple(
            Item(f"minimum of tilted objective {number}", cost, unit, scale, f"tilt: {self.mechanism}; {_OUTPUT}")
            for number, (cost, scale) in enumerate(zip(self.costs, self.scales, strict=True), start=1)
        )

    @property
    def facts(self) -> dict[str, str]:
        """Lines of the plan's page."""
        return {
            "Problem": problem_fact(self.problem, self.ridge),
            "Published": "the minima, each once; the solver's iterates, their number and its time stay private",
            "Solver": f"stops where the gradient of the sum is below {self.tolerance:.3g}; noise of scale "
            f"{max(self.output_scales):.3g} on the model covers the rest, at epsilon {sum(self.output_costs):.3g}",
            "Error": f"E F(x) - F* <= {self.error:.6g} for the objective that is minimised",
        }

    def to_json(self) -> str:
        """Return the plan as JSON; ``ObjectivePlan.from_json`` reads it back and checks the certificate."""
        return dumps(self)

    @staticmethod
    def from_json(text: str) -> "ObjectivePlan":
        """Read a plan, and refuse one whose scales do not certify what it says."""
        return loads(text, ObjectivePlan)

    def __str__(self) -> str:
        return describe(self)

    @property
    def charges(self) -> tuple[Charge, ...]:
        """What is released, in order, with costs as values."""
        return charges(self.items)

    @property
    def points(self) -> int:
        """How many points are published at most, besides the first."""
        return len(self.items) + 4

    @property
    def guessed_error(self) -> float:
        """A public guess of the excess risk: what the noise costs through the guessed curvature, and the ridge."""
        noise = [mechanisms.risk(self.noise, scale, self.minimised) for scale in self.scales]
        more = (self.ridge - self.problem.ridge) * SOLUTION_NORM**2 / 2
        return float(np.sum(self.weights**2 * noise)) + more

    def noise_covariance(self, curvature: np.ndarray) -> np.ndarray:
        """Return the covariance of the noise in the last published point, if F has this curvature: a guess."""
        squares, problem = self.weights**2, self.problem
        tilt = float(np.sqrt(squares @ np.square(self.scales)))
        outputs = float(squares @ np.square(self.output_scales)) * (problem.dimension + 1)
        noise = covariances.of_noise(self.noise, tilt / problem.n, problem)
        return covariances.through(curvature, noise) + outputs * np.eye(problem.dimension)


_OUTPUT = "output: l2"


def _step(scale: float, bits: int) -> float:
    """Return the power of two in which noise of this scale has about so many bits."""
    return math.ldexp(1.0, math.frexp(scale)[1] - 1 - bits)


def cell_size(noise: Mechanism, problem: Problem) -> float:
    """Return what a cell of the tilt's integers adds to its sensitivity: nothing where an ideal law was rounded."""
    if noise.name in ("linf", "hull", "blocks"):
        shape = noise.shape(problem)
        assert shape is not None
        return shape.cube
    return float(problem.dimension) if noise.name == "laplace" else 0.0


def composed_corners(kappa: float, saturation: Saturation, epsilon: float, mus: Sequence[float]) -> Corners:
    """Return the corners of Gaussian tilts with these mus together: the best for their total at this epsilon."""
    best = saturation.corners(kappa, math.hypot(*mus), max(epsilon, 1e-9))
    return minima.composed([best.scaled(mu) for mu in mus])
