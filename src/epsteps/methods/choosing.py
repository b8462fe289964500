"""Choosing a plan: number of steps and noise scales, from public numbers alone."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from epsteps import bounds
from epsteps.bounds import ExactError, NoBoundError, Prediction
from epsteps.bounds.steps import Method, Steps, nesterov
from epsteps.budgets import Budget, Expense, mechanisms
from epsteps.budgets.mechanisms import Mechanism
from epsteps.plans.planning import ALLOCATIONS, OBJECTIVES, SENSITIVITIES, Plan, assumed_spectrum
from epsteps.problem import limits, validate
from epsteps.problem.problem import Problem
from epsteps.problem.sampling import Sampling

# Scales and expenses are rounded up by this much, so that the certificate, itself rounded up, stays within the budget.
_OUTWARD = 1 + 1e-12


def plan_steps(
    problem: Problem,
    budget: Budget,
    method: Method = nesterov,
    *,
    allocation: str = "optimal",
    iterations: int | str = "auto",
    max_iterations: int = 1000,
    batch: int | None = None,
    mechanism: str = "auto",
    sensitivity: str = "auto",
    objective: str = "bound",
    spectrum: Sequence[float] | np.ndarray | None = None,
    start_shares: Sequence[float] | np.ndarray | None = None,
    start_gap: float = 10.0,
    c: float = 1.0,
    expenses: Sequence[Expense] = (),
) -> Plan:
    """Decide the steps of a private run from public numbers alone.

    Parameters
    ----------
    problem, budget, method
        What is solved, what may be spent (``Pure``, ``Concentrated`` or ``Approximate``), and how: ``gd``,
        ``heavy_ball``, ``nesterov`` or ``multistage``.
    allocation : "optimal" or "uniform"
        Split the budget so that the predicted error is smallest, or evenly.
    iterations : int or "auto"
        Number of steps, or the one up to ``max_iterations`` with the smallest predicted error.
    batch : int, optional
        Records per step, drawn afresh without replacement; all by default (which is always more accurate).
    mechanism : "auto", "laplace", "l2", "linf", "hull", "blocks", "gaussian" or "ellipsoid"
        The noise; "auto" is the one with the smallest public trace among those that the budget is made for.
    sensitivity : "auto", "global" or "state"
        Scale the noise for all x, or for the public point of each step; "auto" is global where that is finite.
    objective : "bound" or "exact"
        What error is predicted by: the proven bound, or the exact error on a quadratic of the assumed ``spectrum``,
        which often chooses better and proves nothing.
    spectrum : sequence, optional
        Public guess of the eigenvalues of F for "exact"; a logarithmic grid on [mu, L] by default.
    start_shares : sequence, optional
        Public guess of how F(x_0) - F* is spread over those eigenvalues; evenly by default.
    start_gap : float
        A public guess of F(x_0) - F*; it decides iterations and the predicted error, never privacy.
        ``problem.start_gap`` bounds it for a start at 0.
    c : float
        The step size is c/L.
    expenses : sequence of Expense
        What the same budget has paid for, such as a private estimate of L; the steps get the rest. The problem may
        depend on it: the certificate adds expenses up with the steps such that it holds for every outcome.

    >>> import epsteps as es
    >>> problem = es.Problem(es.Logistic(), es.Ball(1, norm=np.inf), ridge=0.02, n=100_000, d=20)
    >>> p = es.plan(problem, es.Pure(1.0), es.nesterov, mechanism="laplace")
    >>> p.iterations, p.spent <= 1.0
    (120, True)
    """
    if iterations != "auto":
        limits.require_path(problem, _checked_horizon(iterations))
    validate.choice("allocation", allocation, ALLOCATIONS)
    validate.choice("mechanism", mechanism, ("auto", *mechanisms.NAMES))
    validate.choice("sensitivity", sensitivity, ("auto", *SENSITIVITIES))
    validate.choice("objective", objective, OBJECTIVES)
    validate.positive("start_gap", start_gap)
    sampling = Sampling(problem.n, problem.n if batch is None else batch)
    if sensitivity == "auto":
        sensitivity = "global" if problem.has_bounded_sensitivity else "state"
    auto = mechanism == "auto"
    noise = mechanisms.smallest(problem, budget.unit(sampling)) if auto else mechanisms.named(mechanism)
    reserved = sum(expense.cost for expense in expenses) * _OUTWARD
    eigenvalues, shares = (None if given is None else np.asarray(given, float) for given in (spectrum, start_shares))
    chosen = _Choice(
        problem, budget, method, noise, sampling, allocation, objective, eigenvalues, shares, start_gap, c, reserved
    )
    T = chosen.best_horizon(max_iterations) if iterations == "auto" else _checked_horizon(iterations)
    limits.require_path(problem, T)
    steps = method(problem.mu, problem.L, T, c=c)
    return Plan(
        problem=problem,
        budget=budget,
        method=method.__name__,
        steps=steps,
        scales=chosen.scales(steps),
        batch=sampling.m,
        mechanism=noise,
        allocation=allocation,
        sensitivity=sensitivity,
        objective=objective,
        spectrum=eigenvalues,
        start_shares=shares,
        start_gap=float(start_gap),
        expenses=tuple(expenses),
    )


@dataclass(frozen=True)
class _Choice:
    """The arguments of one call of ``plan_steps``, and what follows from them."""

    problem: Problem
    budget: Budget
    method: Method
    mechanism: Mechanism
    sampling: Sampling
    allocation: str
    objective: str
    spectrum: np.ndarray | None
    start_shares: np.ndarray | None
    start_gap: float
    c: float
    reserved: float

    @property
    def sensitivity(self) -> float:
        return self.problem.typical_sensitivity(self.mechanism.norm)

    def scales(self, steps: Steps) -> np.ndarray:
        weights = None if self.allocation == "uniform" else self._prediction(steps).weights
        costs = self.budget.allocate(weights, len(steps), self.mechanism, self.sampling, self.reserved)
        return self.mechanism.scales(self.sensitivity, costs, self.sampling) * _OUTWARD

    def best_horizon(self, max_iterations: int) -> int:
        """Return the T whose error is smallest: all T at once, since each T's steps begin the longest one's."""
        longest = validate.integer("max_iterations", max_iterations)
        limits.require_horizon(longest, squared=self.objective == "exact" or not self.sampling.is_full)
        prediction = self._prediction(self.method(self.problem.mu, self.problem.L, longest, c=self.c))
        noise = self.budget.noise_by_horizon(prediction, self.allocation, self.mechanism, self.sampling, self.reserved)
        noise = noise * self.mechanism.half_power(self.sensitivity, self.problem)
        noise += prediction.weight_sums(1.0) * self.sampling.variance(self.problem.gradient_radius) / 2
        return int(np.argmin(prediction.start_errors(self.start_gap) + noise)) + 1

    def _prediction(self, steps: Steps) -> Prediction:
        if self.objective == "exact":
            return ExactError(steps, assumed_spectrum(self.problem, self.spectrum), self.start_shares)
        try:
            return bounds.for_steps(steps, self.problem.mu, self.problem.L)
        except NoBoundError as error:
            raise NoBoundError(
                f"{error} Without a bound neither the number of iterations nor the split can be chosen by it: pass "
                f"objective='exact', or iterations=<a number> and allocation='uniform' (here: {self.method.__name__})."
            ) from None


def _checked_horizon(T: int | str) -> int:
    if isinstance(T, str):
        raise ValueError(f"iterations must be a whole number or 'auto', got {T!r}.")
    return validate.integer("iterations", T)
