"""The plan of output perturbation: the minimum itself, with noise, is published."""

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from epsteps.budgets import Budget, mechanisms
from epsteps.budgets.mechanisms import Mechanism
from epsteps.methods import minima
from epsteps.methods.minimum import (
    LEAST_BITS,
    LONG,
    Goal,
    Minimised,
    Minimum,
    OfMinimum,
    grid_step,
    least_tolerance,
    moved,
    rounding,
)
from epsteps.plans import covariances
from epsteps.plans.page import problem_fact
from epsteps.plans.plan import Charge, Conversation, Plan, Published
from epsteps.problem import limits, validate
from epsteps.problem.problem import Problem
from epsteps.problem.rounding import down, up

# The noise of a point: pure, and Gaussian.
_NAMES = ("l2", "gaussian")
# The solver's tolerance as a share of one record's gradient: what it adds to the noise, and the most that it may add.
_WASTE, _MOST_WASTE = 1e-4, 1e-2
# What predictions assume of the solution: its norm for the ridge, and its size for rounding errors. Never privacy.
_SOLUTION_NORM, _SOLUTION_SIZE = 3.0, 10.0


@dataclass(frozen=True, eq=False, repr=False)
class OutputPlan(OfMinimum, Plan):
    """Output perturbation, decided: the published x is the minimum of F plus noise.

    Every loss of the library with a bounded slope has it. It would not need a smooth loss, but all of them are (hinges
    are smoothed), and the solver uses that. Where objective perturbation is possible it needs less noise.

    Formal guarantee: replacing a record moves the minimum by at most 2 S/(n ridge), where S is the largest L2 norm of a
    record's gradient (Chaudhuri, Monteleoni, Sarwate 2011); S and what is minimised come from one place, ``objective``.
    The solver returns a point of a grid whose gradient of the sum is below the public ``tolerance``, rounding errors
    included, so that it is within tolerance/(n ridge) of the minimum: neighbours' points differ by at most
    ``sensitivity``. That it gets there is decided before the data are read (``methods.minimum.Goal``). "l2" noise of
    density ~ exp(-|z|_2/scale) is then sensitivity/scale-DP, and Gaussian noise sensitivity/scale-Gaussian-DP. Noise is
    drawn in integers of the grid.

    Parameters
    ----------
    problem, budget
        The public facts, and what may be spent.
    mechanism : str
        "l2" or "gaussian".
    ridge : float
        Ridge of the objective that is minimised, at least the problem's: more of it where noise is large.
    scale : float
        Noise of the model.
    tolerance : float
        Norm of the sum's gradient below which the solver stops.
    """

    method = "output perturbation"

    problem: Problem
    budget: Budget
    mechanism: str
    ridge: float
    scale: float
    tolerance: float

    def __post_init__(self) -> None:
        Minimised(self.problem, self.ridge)
        limits.require_solvable(self.problem)
        validate.choice("mechanism", self.mechanism, _NAMES)
        for name in ("scale", "tolerance"):
            validate.positive(name, getattr(self, name))
        super().__post_init__()

    @property
    def step(self) -> float:
        """Real size of one integer of the model: a power of two, small enough for rounding to keep the tolerance."""
        return grid_step(self.objective, self.tolerance, self.scale, LEAST_BITS, 0.0)

    @cached_property
    def goal(self) -> Goal:
        """What the solver must find."""
        return Goal(self.objective, self.step, self.tolerance, self.scale)

    @cached_property
    def minimum(self) -> Minimum:
        """The one release, as it is asked for."""
        return Minimum(self.goal, self.noise)

    def require_executable(self, unit: float | None = None) -> None:
        """Raise unless the solver is certain to meet its tolerance, whatever the records; by public numbers alone.

        In floats of this unit, by default the longest of this machine.
        """
        self.goal.require_reachable(unit)

    @property
    def sensitivity(self) -> float:
        """How far a replaced record moves the point that noise is added to, in the L2 norm; rounded up."""
        return self.minimum.sensitivity

    @property
    def cost(self) -> float:
        """Epsilon of "l2" noise, mu of Gaussian noise; rounded up."""
        return self.minimum.costs[0].amount

    def spending(self, repetitions: int = 1) -> Budget:
        """Return what so many runs cost together, rounded up."""
        return self.budget.of(self.minimum.costs[0].repeated(repetitions))

    @property
    def charges(self) -> list[Charge]:
        """What is released, in order."""
        return [Charge("minimum of the objective", self.minimum.costs[0], self.scale, self.mechanism)]

    def conversation(self) -> Conversation:
        """Publish the minimum, as the one row of a path."""
        model = yield self.minimum
        return Published(model[None, :])

    @cached_property
    def error(self) -> float:
        """A bound on the expected excess of the minimised objective: L E|z|²/2."""
        return self.minimised.L * _energy(self.mechanism, self.scale, self.problem.dimension) / 2

    @property
    def facts(self) -> dict[str, str]:
        """Lines of the plan's page."""
        return {
            "Problem": problem_fact(self.problem, self.ridge),
            "Published": "the minimum with noise, once; the solver's iterates, their number and its time stay private",
            "Solver": f"stops where the gradient of the sum is below {self.tolerance:.3g}",
            "Error": f"E F(x) - F* <= {self.error:.6g} for the objective that is minimised",
        }

    @property
    def guessed_error(self) -> float:
        """A public guess of the excess risk: the noise through the guessed curvature, and the added ridge."""
        bias = (self.ridge - self.problem.ridge) * _SOLUTION_NORM**2 / 2
        return _noise_risk(self.problem, self.mechanism, self.scale) + bias

    def noise_covariance(self, curvature: np.ndarray) -> np.ndarray:
        """Return the covariance of the noise in the last published point, if F has this curvature: a guess."""
        return covariances.of_noise(self.noise, self.scale, self.problem)


def plan_output(problem: Problem, budget: Budget, *, mechanism: str = "auto") -> OutputPlan:
    """Plan the release of the minimum with noise. "auto" takes the noise whose variance is smaller.

    The ridge is raised to where a public guess of the excess risk is smallest: the bias of more ridge, against noise
    that falls with its square.
    """
    Minimised(problem, max(problem.ridge, 1.0))  # refuses what has no bounds
    limits.require_solvable(problem)
    validate.choice("mechanism", mechanism, ("auto", *_NAMES))
    names = tuple(kind.either(*_NAMES) for kind in budget.kinds) if mechanism == "auto" else (mechanism,)
    best = min((_planned(problem, budget, name) for name in names), key=lambda plan: plan.guessed_error)
    best.require_executable(LONG)
    return best


def _planned(problem: Problem, budget: Budget, name: str) -> OutputPlan:
    cost = _ratio(budget, mechanisms.named(name))
    # At a ridge of 1 the noise's risk is K, and it falls with the square: (ridge - less) norm²/2 + K/ridge² is smallest
    # where ridge³ = 4 K/norm².
    alone = Minimised(replace(problem, ridge=0.0, smoothness=None), 1.0)
    least = _noise_risk(problem, name, moved(alone, _tolerance(alone, cost)) / cost)
    ridge = max(problem.ridge, (4 * least / _SOLUTION_NORM**2) ** (1 / 3))
    minimised = Minimised(problem, ridge)
    tolerance = _tolerance(minimised, cost)
    scale = up(moved(minimised, tolerance) / cost, 1e-11)
    return OutputPlan(problem, budget, name, ridge, scale, tolerance)


def _ratio(budget: Budget, noise: Mechanism) -> float:
    """Return the epsilon or the mu that the budget allows."""
    if not (capacity := budget.capacity(type(noise.kind.of_ratio(1.0)))):
        raise ValueError(f"{budget!r} does not cover Gaussian noise. Use mechanism='auto', or an Approximate budget.")
    return down(capacity, 1e-9)


def _tolerance(minimised: Minimised, cost: float) -> float:
    """Return the gradient norm at which the solver stops: as small as pays, and as large as precision needs.

    The scale is at least 2 size/(n ridge cost), and the grid's step at least an eighth of tolerance/(n L √d): their
    ratio must leave room for the noise in 64 bits.
    """
    size, d = minimised.gradient_size, minimised.dimension
    usual = 2 * rounding(minimised, _SOLUTION_SIZE, 0.0, 2.0**-52)
    finest = 8 * minimised.n * minimised.L * math.sqrt(d)
    scale = 2 * minimised.minimum_sensitivity / cost
    room = finest * scale * (d + 40 * math.sqrt(d) + 800) * 2.0**-61
    # Where the noise decides the grid, its scale is 2 (size + tolerance)/(n ridge cost).
    grid = 4.1 * LONG * minimised.reach(0.0) * 2.0 ** (LEAST_BITS + 1) * cost * minimised.n * minimised.ridge / 2 - size
    return max(_WASTE * size, min(usual, _MOST_WASTE * size), least_tolerance(minimised, 0.0), room, grid)


def _noise_risk(problem: Problem, name: str, scale: float) -> float:
    """Return a public guess of E z'Hz/2."""
    spread, mean = problem.guessed_curvature
    curvature = (float(np.sum(spread)) + float(mean @ mean)) / problem.dimension
    return curvature * _energy(name, scale, problem.dimension) / 2


def _energy(name: str, scale: float, d: int) -> float:
    return minima.ball_energy(scale, d) if name == "l2" else d * scale**2
