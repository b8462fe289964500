"""The plan of output perturbation: the minimum itself, with noise, is published."""

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from epsteps import _validate, mechanisms, memory, minima
from epsteps.budgets import Approximate, Budget, Concentrated, Pure
from epsteps.budgets.conversions import gaussian_mu
from epsteps.mechanisms import Mechanism
from epsteps.planning import OverspentError
from epsteps.plans import spending
from epsteps.plans.precision import rounding, worst_rounding
from epsteps.plans.published import Item, describe, dumps, loads, problem_fact
from epsteps.problem import Problem

_NAMES = ("l2", "gaussian")
# The solver's tolerance as a share of one record's gradient: what it adds to the noise, and the most that it may add.
_WASTE, _MOST_WASTE = 1e-4, 1e-2
# What predictions assume of the solution: its norm for the ridge, and its size for rounding errors. Never privacy.
_SOLUTION_NORM, _SOLUTION_SIZE = 3.0, 10.0
_OUTWARD, _INWARD = 1 + 1e-12, 1 - 1e-9


@dataclass(frozen=True)
class OutputPlan:
    """Output perturbation, decided: the published x is the minimum of F plus noise.

    Any loss with a bounded slope has it. It would not need a smooth loss, but every loss of the library is (hinges are
    smoothed), and the solver uses that. Where objective perturbation is possible it needs less noise.

    Formal guarantee: replacing a record moves the minimum by at most 2 S/(n ridge), where S is the largest L2 norm of a
    record's gradient (Chaudhuri, Monteleoni, Sarwate 2011). The solver returns a point of a grid whose gradient of the
    sum is below the public ``tolerance``, rounding errors included, so that it is within tolerance/(n ridge) of the
    minimum: neighbours' points differ by at most ``sensitivity``. "l2" noise of density ~ exp(-|z|_2/scale) is then
    sensitivity/scale-DP, and Gaussian noise sensitivity/scale-Gaussian-DP. Noise is drawn in integers of the grid.

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

    problem: Problem
    budget: Budget
    mechanism: str
    ridge: float
    scale: float
    tolerance: float

    def __post_init__(self) -> None:
        memory.require_hessian(self.problem)
        require_bounded_slope(self.problem)
        _validate.choice("mechanism", self.mechanism, _NAMES)
        for name in ("ridge", "scale", "tolerance"):
            _validate.positive(name, getattr(self, name))
        if self.ridge < self.problem.ridge:
            raise ValueError(f"ridge must be at least the problem's {self.problem.ridge!r}, got {self.ridge!r}.")
        if self.spent > self.budget.amount:
            raise OverspentError(
                f"the plan's scale spends {self.spent!r}, more than its budget {self.budget.amount!r}. "
                "Make the plan anew with epsteps.plan."
            )

    @property
    def method(self) -> str:
        """Name of the method, for people."""
        return "output perturbation"

    @cached_property
    def noise(self) -> Mechanism:
        """The noise of the model."""
        return mechanisms.named(self.mechanism)

    @cached_property
    def minimised(self) -> Problem:
        """The problem whose objective is minimised. Its smoothness is that of the domain, which is certain."""
        return replace(self.problem, ridge=self.ridge, smoothness=None)

    @property
    def step(self) -> float:
        """Real size of one integer of the model: a power of two, small enough for rounding to keep the tolerance."""
        largest = self.tolerance / (4 * self.problem.n * self.minimised.L * math.sqrt(self.problem.dimension))
        return math.ldexp(1.0, math.frexp(min(largest, self.scale * 2.0**-20))[1] - 1)

    @property
    def sensitivity(self) -> float:
        """How far a replaced record moves the point that noise is added to, in the L2 norm; rounded up."""
        return _sensitivity(self.minimised, self.tolerance)

    @cached_property
    def cost(self) -> float:
        """Epsilon of "l2" noise, mu of Gaussian noise; rounded up."""
        return self.sensitivity / self.scale * _OUTWARD

    @cached_property
    def spent(self) -> float:
        """Epsilon (or rho, for a budget of rho) of everything that is published. Never above the budget."""
        return self.spending().amount

    def spending(self, repetitions: int = 1) -> Budget:
        """Return what so many runs cost together, rounded up."""
        if self.mechanism == "l2":
            return spending.of_pure(self.budget, self.cost * repetitions * _OUTWARD)
        return spending.of_gaussian(self.budget, self.cost * math.sqrt(repetitions) * _OUTWARD)

    @property
    def error(self) -> float:
        """A bound on the expected excess of the minimised objective: L E|z|²/2."""
        return self.minimised.L * _energy(self.mechanism, self.scale, self.problem.dimension) / 2

    @property
    def items(self) -> tuple[Item, ...]:
        """What is released, in order."""
        unit = "epsilon" if self.mechanism == "l2" else "mu"
        return (Item("minimum of the objective", self.cost, unit, self.scale, self.mechanism),)

    @property
    def facts(self) -> dict[str, str]:
        """Lines of the plan's page."""
        return {
            "Problem": problem_fact(self.problem, self.ridge),
            "Published": "the minimum with noise, once; the solver's iterates, their number and its time stay private",
            "Solver": f"stops where the gradient of the sum is below {self.tolerance:.3g}",
            "Error": f"E F(x) - F* <= {self.error:.6g} for the objective that is minimised",
        }

    def to_json(self) -> str:
        """Return the plan as JSON; ``OutputPlan.from_json`` reads it back and checks the certificate."""
        return dumps(self)

    @staticmethod
    def from_json(text: str) -> "OutputPlan":
        """Read a plan, and refuse one whose scale does not certify what it says."""
        return loads(text, OutputPlan)

    def __str__(self) -> str:
        return describe(self)


def plan_output(problem: Problem, budget: Budget, *, mechanism: str = "auto") -> OutputPlan:
    """Plan the release of the minimum with noise. "auto" takes the noise whose variance is smaller.

    The ridge is raised to where a public guess of the excess risk is smallest: the bias of more ridge, against noise
    that falls with its square.
    """
    memory.require_hessian(problem)
    require_bounded_slope(problem)
    _validate.choice("mechanism", mechanism, ("auto", *_NAMES))
    if mechanism == "auto":
        names = {Pure: ("l2",), Concentrated: ("gaussian",)}.get(type(budget), _NAMES)
    else:
        names = (mechanism,)
    return min((_planned(problem, budget, name) for name in names), key=predicted_risk)


def predicted_risk(plan: OutputPlan) -> float:
    """Return a public guess of the excess risk: the noise through the guessed curvature, and the added ridge."""
    more = (plan.ridge - plan.problem.ridge) * _SOLUTION_NORM**2 / 2
    return _noise_risk(plan.problem, plan.mechanism, plan.scale) + more


def require_bounded_slope(problem: Problem) -> None:
    """Raise unless one record's gradient is bounded at every x, and is that of the loss."""
    if not math.isfinite(problem.loss.slope):
        raise ValueError(
            f"output perturbation needs a loss with a bounded slope, got {type(problem.loss).__name__}. "
            "Use method='statistics', or PseudoHuber."
        )
    if problem.clip is not None:
        raise ValueError(f"clipped gradients have no minimum. Leave clip out, got {problem.clip!r}.")


def _planned(problem: Problem, budget: Budget, name: str) -> OutputPlan:
    cost = _cost(budget, name)
    # At a ridge of 1 the noise's risk is K, and it falls with the square: (ridge - less) norm²/2 + K/ridge² is smallest
    # where ridge³ = 4 K/norm².
    alone = replace(problem, ridge=1.0, smoothness=None)
    least = _noise_risk(problem, name, _sensitivity(alone, _tolerance(alone)) / cost)
    ridge = max(problem.ridge, (4 * least / _SOLUTION_NORM**2) ** (1 / 3))
    minimised = replace(problem, ridge=ridge, smoothness=None)
    tolerance = _tolerance(minimised)
    scale = _sensitivity(minimised, tolerance) / cost * (1 + 1e-11)
    return OutputPlan(problem, budget, name, ridge, scale, tolerance)


def _cost(budget: Budget, name: str) -> float:
    """Return the epsilon or the mu that the budget allows."""
    if name == "l2":
        return spending.pure_epsilon(budget)
    if isinstance(budget, Approximate):
        return gaussian_mu(budget.epsilon, budget.delta) * _INWARD
    if isinstance(budget, Concentrated):
        return math.sqrt(2 * budget.rho) * _INWARD
    raise ValueError(f"{budget!r} does not cover Gaussian noise. Use mechanism='auto', or an Approximate budget.")


def _sensitivity(minimised: Problem, tolerance: float) -> float:
    size = float(minimised.gradient_size(minimised.loss.slope, 2))
    exact = minima.minimum_sensitivity(size, minimised.n, minimised.ridge)
    return (exact + 2 * minima.minimum_radius(tolerance, minimised.n, minimised.ridge)) * _OUTWARD


def _tolerance(minimised: Problem) -> float:
    """Return the gradient norm at which the solver stops: as small as pays, and as large as rounding needs."""
    size = float(minimised.gradient_size(minimised.loss.slope, 2))
    usual = 2 * rounding(minimised, _SOLUTION_SIZE, 0.0, 2.0**-52)
    needed = 4 * worst_rounding(minimised, 0.0, 2.0**-63)
    return max(_WASTE * size, min(usual, _MOST_WASTE * size), needed)


def _noise_risk(problem: Problem, name: str, scale: float) -> float:
    """Return a public guess of E z'Hz/2."""
    spread, mean = problem.guessed_curvature
    curvature = (float(np.sum(spread)) + float(mean @ mean)) / problem.dimension
    return curvature * _energy(name, scale, problem.dimension) / 2


def _energy(name: str, scale: float, d: int) -> float:
    return minima.ball_energy(scale, d) if name == "l2" else d * scale**2
