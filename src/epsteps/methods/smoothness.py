"""The smoothness constant L, bought with a little budget: one eigenvalue with noise, and what follows from it."""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtri

from epsteps.budgets import Budget, Cost, Expense, mechanisms
from epsteps.budgets.mechanisms import Mechanism
from epsteps.plans.notation import problem_fact
from epsteps.plans.plan import Charge, Conversation, Plan, Published
from epsteps.plans.requests import Draw, Records, Request
from epsteps.problem import limits, validate
from epsteps.problem.grid import added
from epsteps.problem.problem import Problem
from epsteps.problem.rounding import up
from epsteps.problem.sampling import FULL
from epsteps.problem.shapes import L1

if TYPE_CHECKING:
    from epsteps.noise import Source

# The eigenvalue is released as a whole number of steps, so many of which one record can move it by.
_STEPS = 2**20
# The noise, pure and Gaussian, and the quantiles of it at a confidence, for a scale of 1.
_NOISES = (mechanisms.named("laplace"), mechanisms.named("gaussian"))
_QUANTILES = (lambda confidence: -math.log(2 * (1 - confidence)), ndtri)


@dataclass(frozen=True)
class SmoothnessEstimate:
    """A private upper estimate of L: the problem that declares it, and the line of expense for its plan."""

    problem: Problem
    expense: Expense
    seeded: bool

    @property
    def L(self) -> float:
        """The estimated smoothness constant."""
        return self.problem.L


@dataclass(frozen=True, eq=False)
class Eigenvalue(Request):
    """The largest eigenvalue of U'U/n, in whole steps, with noise.

    Formal guarantee: it moves by at most (largest record)²/n when a record is replaced, since uu' - vv' has its
    eigenvalues between -|v|² and |u|². It is computed from exact integer sums, and the sensitivity includes what the
    eigenvalue's own rounding may add.
    """

    problem: Problem
    mechanism: Mechanism
    scale: float

    @property
    def size(self) -> float:
        """Real size of a released integer."""
        return self.problem.record_size(2) ** 2 / self.problem.n / _STEPS

    @property
    def sensitivity(self) -> int:
        """How far a replaced record moves the released integer."""
        largest = self.problem.record_size(2) ** 2
        return _STEPS + 1 + math.ceil(2 * _eigenvalue_error(self.problem.dimension) * largest / self.size)

    @cached_property
    def costs(self) -> tuple[Cost, ...]:
        """The cost of noise of this scale on such an integer."""
        return (self.mechanism.kind(float(self.mechanism.costs(self.sensitivity, np.array(self.scale), FULL))),)

    @staticmethod
    def prepare(records: Records) -> None:
        """Round the records."""
        records.prepare()

    def draw(self, source: "Source") -> Draw:
        """Draw what is added, in integers."""
        return {"noise": source.integers(self.mechanism, self.scale, (1,))}

    def read(self, records: Records, draw: Draw) -> np.ndarray:
        """Return the eigenvalue in whole steps."""
        largest = np.linalg.eigvalsh(records.second_moment())[-1]
        return np.array([math.floor(largest / self.size + 0.5)], dtype=object)

    def publish(self, reading: np.ndarray, draw: Draw) -> np.ndarray:
        """Return the noisy eigenvalue."""
        return np.array([float(added(reading, draw["noise"])[0]) * self.size])


@dataclass(frozen=True, eq=False, repr=False)
class SmoothnessPlan(Plan):
    """An upper estimate of the smoothness constant, decided: Laplace noise makes it epsilon-DP, Gaussian rho-zCDP.

    Parameters
    ----------
    problem, budget
        The public facts, and the price.
    confidence : float
        Probability that the estimate is large enough.
    """

    reads = (Eigenvalue,)
    method = "smoothness"

    problem: Problem
    budget: Budget
    confidence: float

    def __post_init__(self) -> None:
        limits.require_eigenvalue(self.problem)
        if not 0.5 <= validate.number("confidence", self.confidence) < 1:
            raise ValueError(f"confidence must lie in [0.5, 1), got {self.confidence!r}.")
        if self.budget.delta:
            raise TypeError(f"budget must be Pure(epsilon) or Concentrated(rho), got {self.budget!r}.")
        super().__post_init__()

    @cached_property
    def eigenvalue(self) -> Eigenvalue:
        """The one release, as it is asked for."""
        noise = self.budget.kinds[0].either(*_NOISES)
        known = Eigenvalue(self.problem, noise, 1.0)
        return replace(known, scale=up(float(noise.scales(known.sensitivity, np.array(self.budget.amount), FULL))))

    @property
    def charges(self) -> list[Charge]:
        """The whole budget."""
        request = self.eigenvalue
        cost = request.mechanism.kind(self.budget.amount)
        return [
            Charge(
                "largest eigenvalue of the second moment", cost, request.scale * request.size, request.mechanism.name
            )
        ]

    def spending(self, repetitions: int = 1) -> Budget:
        """Return the budget for each run."""
        kind = self.budget.kinds[0]
        return self.budget if repetitions == 1 else self.budget.spending(np.full(repetitions, self.budget.amount), kind)

    def require_executable(self) -> None:
        """Raise unless the noise can be drawn."""
        if self.eigenvalue.scale > L1(1).coarsest:
            raise ValueError(f"noise of {self.budget} does not fit the integers of an eigenvalue. Use a larger budget.")

    def note(self, runs: int) -> str:
        """Return what a ledger says."""
        return self.method

    @property
    def facts(self) -> dict[str, str]:
        """Lines of the plan's page."""
        return {
            "Problem": problem_fact(self.problem, self.problem.ridge),
            "Published": f"an estimate of L that is large enough with probability {self.confidence:g}",
        }

    def conversation(self) -> Conversation:
        """Publish the noisy eigenvalue, as the one row of a path."""
        eigenvalue = yield self.eigenvalue
        return Published(eigenvalue[None, :])

    def estimate(self, eigenvalue: float, seeded: bool) -> SmoothnessEstimate:
        """Return what a released eigenvalue says of L: post-processing."""
        problem, request = self.problem, self.eigenvalue
        slack = request.scale * request.size * float(request.mechanism.kind.either(*_QUANTILES)(self.confidence))
        bounded = float(np.clip(eigenvalue + slack, 0.0, problem.record_size(2) ** 2))
        smoothness = max(problem.loss.curvature * bounded + problem.ridge, 1e-12)
        expense = Expense("smoothness constant L", self.budget.amount, request.mechanism.unit)
        return SmoothnessEstimate(replace(problem, smoothness=smoothness), expense, seeded)


def _eigenvalue_error(d: int) -> float:
    """Bound the relative error of a symmetric matrix's largest computed eigenvalue.

    LAPACK's is backward stable: the error is a modest polynomial in d times the rounding unit. 16 d is generous.
    """
    return 16 * d * np.finfo(float).eps
