"""The plan of output perturbation: the minimum itself, with noise, is published."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.random import Generator

from epsteps.budgets import Budget, mechanisms
from epsteps.budgets.mechanisms import Mechanism
from epsteps.methods import minima
from epsteps.methods.intervals.posterior import Released
from epsteps.methods.intervals.table import Intervals, intervals_for
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
from epsteps.plans.notation import problem_fact
from epsteps.plans.plan import Charge, Conversation, Plan, Published
from epsteps.plans.utility import Typical, Utility, least_of, ridge_bias, ridges
from epsteps.problem import limits, validate
from epsteps.problem.problem import Problem
from epsteps.problem.rounding import down, up

# What intervals follow from, in words.
_BASIS = "the law of the noise on the minimum, and for the population from the ridge"
# The noise of a point: pure, and Gaussian.
_NAMES = ("l2", "gaussian")
# The solver's tolerance as a share of one record's gradient: what it adds to the noise, and the most that it may add.
_WASTE, _MOST_WASTE = 1e-4, 1e-2
# What predictions assume of the size of the solution, for rounding errors. Never privacy.
_SOLUTION_SIZE = 10.0


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
        self.objective  # noqa: B018 - refuses what has no bounds
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

    def intervals(
        self,
        path: np.ndarray,
        extras: dict[str, np.ndarray],
        draw: Callable[..., np.ndarray],
        generator: Generator,
        **asked: Any,
    ) -> Intervals:
        """Return intervals for the minimum: see ``Run.intervals``. Noise of a known law separates the model from it."""
        d, is_ball = self.problem.dimension, self.noise.kind.is_pure
        released = Released(
            x=path[-1],
            n=self.problem.n,
            ridge=self.ridge,
            tilts=lambda _, count: np.zeros((count, d)),
            output_scale=self.scale if is_ball else 0.0,
            moves=None if is_ball else lambda generator, count: self.scale * generator.standard_normal((count, d)),
            slack=self.objective.radius(self.tolerance),
            likelihood=self.problem.loss.is_likelihood,
        )
        asked |= {"asked_ridge": self.problem.ridge, "basis": _BASIS}
        return intervals_for(self.problem, released, generator, **asked)

    @property
    def facts(self) -> dict[str, str]:
        """Lines of the plan's page."""
        return {
            "Problem": problem_fact(self.problem, self.ridge),
            "Published": "the minimum with noise, once; the solver's iterates, their number and its time stay private",
            "Solver": f"stops where the gradient of the sum is below {self.tolerance:.3g}",
        }

    def worth(self) -> Utility:
        """Return what the model is expected to be worth: what its noise and the larger ridge cost.

        Proved: the solver's point has a gradient of F' of at most tolerance/n, so that F' there is at most
        tolerance²/(2 n² ridge') above F'*; noise z of mean 0 adds at most L' E|z|²/2. What the larger ridge costs is
        bounded in ``utility.ridge_bias``.
        """
        typical, energy = Typical(self.problem), _energy(self.mechanism, self.scale, self.problem.dimension)
        noise = typical.moved(typical.power(*_spherical(energy, self.problem.dimension)))
        solver = (self.tolerance / self.problem.n) ** 2 / (2 * self.ridge)
        bound = solver + self.objective.L * energy / 2 + ridge_bias(self.problem, self.ridge)
        return typical.utility(float(typical.bias(self.ridge)) + noise, bound)


def plan_output(problem: Problem, budget: Budget, *, mechanism: str = "auto") -> OutputPlan:
    """Plan the release of the minimum with noise. "auto" takes the noise whose variance is smaller.

    The ridge is raised to where the predicted excess is smallest: the bias of more ridge, against noise that falls with
    its square.
    """
    Minimised(problem, max(problem.ridge, 1.0))  # refuses what has no bounds
    limits.require_solvable(problem)
    validate.choice("mechanism", mechanism, ("auto", *_NAMES))
    names = tuple(kind.either(*_NAMES) for kind in budget.kinds) if mechanism == "auto" else (mechanism,)
    best = min((_planned(problem, budget, name) for name in names), key=lambda plan: plan.utility.expected or 0.0)
    best.require_executable(LONG)
    return best


def _planned(problem: Problem, budget: Budget, name: str) -> OutputPlan:
    cost = _ratio(budget, mechanisms.named(name))
    typical, candidates = Typical(problem), ridges(problem)
    unit = typical.moved(typical.power(*_spherical(_energy(name, 1.0, problem.dimension), problem.dimension)))
    bias = typical.bias(candidates)

    def offer(place: int) -> tuple[float, float, float]:
        """Return a ridge, with the tolerance and the scale of the noise that go with it."""
        minimised = Minimised(problem, float(candidates[place]))
        tolerance = _tolerance(minimised, cost)
        return minimised.ridge, up(moved(minimised, tolerance) / cost, 1e-11), tolerance

    # At least the minimum's own sensitivity is covered, which falls with the ridge.
    size = 2 * Minimised(problem, float(candidates[0])).gradient_size / (problem.n * cost)
    place, _ = least_of(
        bias + unit * (size / candidates) ** 2 * (1 - 1e-9),
        lambda place, _: float(bias[place] + unit * offer(place)[1] ** 2),
    )
    return OutputPlan(problem, budget, name, *offer(place))


def _spherical(energy: float, d: int) -> tuple[np.ndarray, Callable[[np.ndarray], float]]:
    """Return the variances of noise without a direction, and what it is along a vector."""
    return np.full(d, energy / d), lambda vector: energy / d * float(vector @ vector)


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


def _energy(name: str, scale: float, d: int) -> float:
    return minima.ball_energy(scale, d) if name == "l2" else d * scale**2
