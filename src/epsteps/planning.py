"""The plan: everything that is decided before the data is opened, and its certificate."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from epsteps import _validate, bounds, plan_json, plan_table
from epsteps.bounds import Bound, NoBoundError
from epsteps.budgets import Pure
from epsteps.mechanisms import Laplace
from epsteps.methods import Method, Steps, nesterov
from epsteps.problem import Problem
from epsteps.sampling import Sampling

ALLOCATIONS = ("optimal", "uniform")
SENSITIVITIES = ("global", "state")

# Scales are rounded up by this much, so that the certificate, itself rounded up, stays within the budget.
_OUTWARD = 1 + 1e-12


class OverspentError(ValueError):
    """The scales of a plan spend more than its budget."""


@dataclass(frozen=True, eq=False)
class Plan:
    """A private run, decided: steps, noise scales, and the certificate that follows from them.

    Made by :func:`plan`; a changed plan is a new plan, checked again. Nothing in it depends on data.

    Parameters
    ----------
    problem, budget
        The public facts, and what may be spent.
    method : str
        Name of the method, for people.
    steps : Steps
        What the loop executes.
    scales : array of length T
        Noise scale of each step at the planned ``sensitivity_bound``.
    batch : int
        Records per step, m.
    allocation : str
        How the budget was split, for people.
    sensitivity : "global" or "state"
        Whether a step's noise has the planned scale, or that scale times the sensitivity at the step's public point
        over ``sensitivity_bound``. The cost of the step is the same.
    start_gap : float
        F(x_0) - F* that ``error`` assumes.
    """

    problem: Problem
    budget: Pure
    method: str
    steps: Steps
    scales: np.ndarray
    batch: int
    allocation: str
    sensitivity: str
    start_gap: float
    mechanism: Laplace

    def __post_init__(self) -> None:
        scales = np.array(self.scales, dtype=float)
        if scales.shape != (len(self.steps),):
            raise ValueError(f"scales must have one entry for each of the {len(self.steps)} steps, got {scales.shape}.")
        if not (np.all(np.isfinite(scales)) and np.all(scales > 0)):
            raise ValueError(f"scales must be positive and finite, got {scales.min()!r} to {scales.max()!r}.")
        scales.flags.writeable = False
        object.__setattr__(self, "scales", scales)
        _validate.choice("sensitivity", self.sensitivity, SENSITIVITIES)
        _validate.positive("start_gap", self.start_gap)
        if self.sensitivity == "global" and not self.problem.has_bounded_sensitivity:
            raise ValueError(
                f"{type(self.problem.loss).__name__} has no bounded gradient: use sensitivity='state', got 'global'."
            )
        if not self.budget.covers(self.costs):
            raise OverspentError(
                f"the plan's scales spend epsilon = {self.spent!r}, more than its budget {self.budget.epsilon!r}. "
                "Make the plan anew with epsteps.plan."
            )

    @property
    def iterations(self) -> int:
        """Number of steps, T."""
        return len(self.steps)

    @property
    def sampling(self) -> Sampling:
        """Which records a step reads: the run draws from this object, the certificate computes with it."""
        return Sampling(self.problem.n, self.batch)

    @property
    def sensitivity_bound(self) -> float:
        """Sensitivity of one record's gradient that the planned scales are for."""
        return self.problem.typical_sensitivity(self.mechanism.norm)

    @cached_property
    def costs(self) -> np.ndarray:
        """Epsilon of each step, computed from its scale."""
        losses = self.mechanism.loss(self.sensitivity_bound / self.batch, self.scales)
        return self.sampling.amplified_epsilon(losses)

    @property
    def spent(self) -> float:
        """Epsilon of the whole run, computed from the scales and rounded up. Never above the budget."""
        return self.budget.total(self.costs)

    @cached_property
    def bound(self) -> Bound | None:
        """The convergence theorem for these steps, if one is known."""
        try:
            return bounds.for_steps(self.steps, self.problem.mu, self.problem.L)
        except NoBoundError:
            return None

    @property
    def error(self) -> float | None:
        """Bound on E F(x_T) - F* for a start within ``start_gap``, or None where no theorem covers the steps.

        It is proved for ``sensitivity="global"``; under "state" it holds while the sensitivity at the points visited
        stays below ``sensitivity_bound``.
        """
        if self.bound is None:
            return None
        power = self.mechanism.half_power(self.scales, self.problem.dimension)
        return self.bound.error(self.start_gap, power + self.sampling.variance(self.problem.gradient_radius) / 2)

    def scale_at(self, t: int, point: np.ndarray) -> np.ndarray | float:
        """Return the noise scale that step t (from 0) uses at its public point, one for each column."""
        if self.sensitivity == "global":
            return float(self.scales[t])
        return self.scales[t] / self.sensitivity_bound * self.problem.sensitivity_at(point, self.mechanism.norm)

    def to_json(self) -> str:
        """Return the plan as JSON; ``Plan.from_json`` reads it back and checks the certificate."""
        return plan_json.dumps(self)

    @staticmethod
    def from_json(text: str) -> "Plan":
        """Read a plan, and refuse one whose scales do not certify what it says."""
        fields, stated = plan_json.read(text)
        return plan_json.check(Plan(**fields), stated)

    def __str__(self) -> str:
        return plan_table.describe(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plan) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash(self.to_json())


def plan(
    problem: Problem,
    budget: Pure,
    method: Method = nesterov,
    *,
    allocation: str = "optimal",
    iterations: int | str = "auto",
    max_iterations: int = 1000,
    batch: int | None = None,
    mechanism: str = "auto",
    sensitivity: str = "auto",
    start_gap: float = 10.0,
    c: float = 1.0,
) -> Plan:
    """Decide a private run from public numbers alone.

    Parameters
    ----------
    problem, budget, method
        What is solved, what may be spent, and how: ``gd``, ``heavy_ball``, ``nesterov`` or ``multistage``.
    allocation : "optimal" or "uniform"
        Split the budget so that the proven error bound is smallest, or evenly.
    iterations : int or "auto"
        Number of steps, or the one up to ``max_iterations`` with the smallest bound.
    batch : int, optional
        Records per step, drawn afresh without replacement; all by default (which is always more accurate).
    mechanism : "auto" or "laplace"
        The noise.
    sensitivity : "auto", "global" or "state"
        Scale the noise for all x, or for the public point of each step; "auto" is global where that is finite.
    start_gap : float
        A public guess of F(x_0) - F*; it decides iterations and the predicted error, never privacy.
        ``problem.start_gap`` bounds it for a start at 0.
    c : float
        The step size is c/L.

    >>> import epsteps as es
    >>> problem = es.Problem(es.Logistic(), es.Ball(1, norm=np.inf), ridge=0.02, n=100_000, d=20)
    >>> p = es.plan(problem, es.Pure(1.0), es.nesterov)
    >>> p.iterations, p.spent <= 1.0
    (120, True)
    """
    _validate.choice("allocation", allocation, ALLOCATIONS)
    _validate.choice("mechanism", mechanism, ("auto", Laplace.name))
    _validate.choice("sensitivity", sensitivity, ("auto", *SENSITIVITIES))
    _validate.positive("start_gap", start_gap)
    sampling = Sampling(problem.n, problem.n if batch is None else batch)
    if sensitivity == "auto":
        sensitivity = "global" if problem.has_bounded_sensitivity else "state"
    chosen = _Choice(problem, budget, method, Laplace(), sampling, allocation, start_gap, c)
    T = chosen.best_horizon(max_iterations) if iterations == "auto" else iterations
    steps = method(problem.mu, problem.L, _checked_horizon(T), c=c)
    return Plan(
        problem=problem,
        budget=budget,
        method=method.__name__,
        steps=steps,
        scales=chosen.scales(steps),
        batch=sampling.m,
        allocation=allocation,
        sensitivity=sensitivity,
        start_gap=float(start_gap),
        mechanism=chosen.mechanism,
    )


@dataclass(frozen=True)
class _Choice:
    """The arguments of one call of ``plan``, and what follows from them."""

    problem: Problem
    budget: Pure
    method: Method
    mechanism: Laplace
    sampling: Sampling
    allocation: str
    start_gap: float
    c: float

    @property
    def sensitivity(self) -> float:
        return self.problem.typical_sensitivity(self.mechanism.norm) / self.sampling.m

    def scales(self, steps: Steps) -> np.ndarray:
        if self.allocation == "uniform":
            costs = self.budget.split_evenly(len(steps))
        else:
            costs = self.budget.split(self._bound(steps).weights, self.sampling.n, self.sampling.m)
        return self.mechanism.scale(self.sensitivity, self.sampling.base_epsilon(costs)) * _OUTWARD

    def best_horizon(self, max_iterations: int) -> int:
        """Return the T whose bound is smallest: all T at once, since each T's steps begin the longest one's."""
        longest = _validate.integer("max_iterations", max_iterations)
        bound = self._bound(self.method(self.problem.mu, self.problem.L, longest, c=self.c))
        unit = self.mechanism.half_power(np.array(self.sensitivity), self.problem.dimension)
        noise = unit * self.budget.noise_by_horizon(bound, self.allocation, self.sampling)
        noise += bound.weight_sums(1.0) * self.sampling.variance(self.problem.gradient_radius) / 2
        errors = bound.decays() * bound.start_factor * self.start_gap + noise
        return int(np.argmin(errors)) + 1

    def _bound(self, steps: Steps) -> Bound:
        try:
            return bounds.for_steps(steps, self.problem.mu, self.problem.L)
        except NoBoundError as error:
            raise NoBoundError(
                f"{error} Without a bound neither the number of iterations nor the split can be chosen: "
                f"pass iterations=<a number> and allocation='uniform' to use {self.method.__name__} here."
            ) from None


def _checked_horizon(T: int | str) -> int:
    if isinstance(T, str):
        raise ValueError(f"iterations must be a whole number or 'auto', got {T!r}.")
    return _validate.integer("iterations", T)
