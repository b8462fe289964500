"""The plan: everything that is decided before the data is opened, and its certificate."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from epsteps import bounds
from epsteps.bounds import Bound, ExactError, NoBoundError
from epsteps.bounds.steps import Steps
from epsteps.budgets import Budget, Expense, mechanisms
from epsteps.budgets.mechanisms import Mechanism
from epsteps.plans import covariances, plan_json, plan_table
from epsteps.plans.plan_json import PlanFormatError
from epsteps.plans.published import Charge, Item, charges
from epsteps.problem import memory, validate
from epsteps.problem.bodies import Body, Ellipsoid
from epsteps.problem.extras import MissingExtraError
from epsteps.problem.hulls import Hull
from epsteps.problem.problem import Problem
from epsteps.problem.sampling import Sampling

ALLOCATIONS = ("optimal", "uniform")
OBJECTIVES = ("bound", "exact")
SENSITIVITIES = ("global", "state")


class OverspentError(PlanFormatError):
    """The scales of a plan spend more than its budget: no certificate follows from them."""


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
    mechanism : Mechanism
        The noise.
    allocation : str
        How the budget was split, for people.
    sensitivity : "global" or "state"
        Whether a step's noise has the planned scale, or that scale times the sensitivity at the step's public point
        over ``sensitivity_bound``. The cost of the step is the same.
    objective : "bound" or "exact"
        What ``error`` says: the proven bound, or the exact error on a quadratic of the assumed ``spectrum``.
    spectrum, start_shares : arrays, optional
        Eigenvalues for "exact", a logarithmic grid on [mu, L] by default, and how the gap of the start is spread over
        them, evenly by default.
    start_gap : float
        F(x_0) - F* that ``error`` assumes.
    expenses : tuple of Expense
        What the same budget paid for before.
    """

    problem: Problem
    budget: Budget
    method: str
    steps: Steps
    scales: np.ndarray
    batch: int
    mechanism: Mechanism
    allocation: str
    sensitivity: str
    objective: str
    spectrum: np.ndarray | None
    start_shares: np.ndarray | None
    start_gap: float
    expenses: tuple[Expense, ...] = ()

    def __post_init__(self) -> None:
        memory.require_path(self.problem, len(self.steps))
        scales = np.array(self.scales, dtype=float)
        if scales.shape != (len(self.steps),):
            raise ValueError(f"scales must have one entry for each of the {len(self.steps)} steps, got {scales.shape}.")
        if not (np.all(np.isfinite(scales)) and np.all(scales > 0)):
            raise ValueError(f"scales must be positive and finite, got {scales.min()!r} to {scales.max()!r}.")
        scales.flags.writeable = False
        object.__setattr__(self, "scales", scales)
        object.__setattr__(self, "expenses", tuple(self.expenses))
        validate.choice("sensitivity", self.sensitivity, SENSITIVITIES)
        validate.choice("objective", self.objective, OBJECTIVES)
        validate.positive("start_gap", self.start_gap)
        for name in ("spectrum", "start_shares"):
            if (values := getattr(self, name)) is not None and not np.all(np.isfinite(values)):
                raise ValueError(f"{name} must hold finite numbers, got {values!r}.")
        if self.mechanism != mechanisms.named(validate.choice("mechanism", self.mechanism.name, mechanisms.NAMES)):
            raise ValueError(
                f"mechanism must be the library's own, got {self.mechanism!r}: its sampler is chosen by name."
            )
        mechanisms.require_fit(self.mechanism, self.problem)
        for expense in self.expenses:
            if expense.unit != self.mechanism.unit:
                raise ValueError(f"{expense} was paid in {expense.unit}, but the steps cost {self.mechanism.unit}.")
        if self.sensitivity == "global" and not self.problem.has_bounded_sensitivity:
            raise ValueError(
                f"{type(self.problem.loss).__name__} has no bounded gradient: use sensitivity='state', got 'global'."
            )
        if self.spent > self.budget.amount:
            raise OverspentError(
                f"the plan's scales spend {self.spent!r}, more than its budget {self.budget.amount!r}. "
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
        """Cost of each step, computed from its scale: epsilon for pure noise, rho for Gaussian noise."""
        return self.mechanism.costs(self.sensitivity_bound, self.scales, self.sampling)

    def spending(self, repetitions: int = 1) -> Budget:
        """Return what the steps of so many runs cost together: computed from the scales and rounded up."""
        return self.budget.spending(np.tile(self.costs, repetitions), self.mechanism)

    @cached_property
    def spent(self) -> float:
        """Epsilon (or rho, for a budget of rho) of the expenses and one run. Never above the budget.

        It holds for a plan that depends on what the expenses bought.
        """
        expenses = [expense.cost for expense in self.expenses]
        return self.budget.spending(self.costs, self.mechanism, expenses).amount

    @cached_property
    def bound(self) -> Bound | None:
        """The convergence theorem for these steps, if one is known (heavy ball's needs ``epsteps[theory]``)."""
        try:
            return bounds.for_steps(self.steps, self.problem.mu, self.problem.L)
        except (NoBoundError, MissingExtraError):
            return None

    @cached_property
    def error(self) -> float | None:
        """Predicted E F(x_T) - F* for a start within ``start_gap``.

        With ``objective="bound"`` it is proved (None where no theorem covers the steps), under
        ``sensitivity="state"`` while the sensitivity at the points visited stays below ``sensitivity_bound``. With
        "exact" it is the error on the assumed quadratic.
        """
        prediction = self.bound if self.objective == "bound" else self._exact()
        if prediction is None:
            return None
        power = self.mechanism.half_power(self.scales, self.problem)
        return prediction.error(self.start_gap, power + self.sampling.variance(self.problem.gradient_radius) / 2)

    def _exact(self) -> ExactError:
        return ExactError(self.steps, assumed_spectrum(self.problem, self.spectrum), self.start_shares)

    def scale_at(self, t: int, point: np.ndarray) -> np.ndarray | float:
        """Return the noise scale that step t (from 0) uses at its public point, one for each column."""
        if self.sensitivity == "global":
            return float(self.scales[t])
        return self.scales[t] / self.sensitivity_bound * self.problem.sensitivity_at(point, self.mechanism.norm)

    @cached_property
    def shape(self) -> Body | Hull | Ellipsoid | None:
        """What the noise is shaped like, in the domain's units; None for noise of a usual norm."""
        return self.mechanism.shape(self.problem)

    def slope_at(self, point: np.ndarray) -> np.ndarray | float:
        """Return the largest slope of any record's loss that a step's noise is scaled for, one for each column."""
        known = self.sensitivity == "global" and math.isfinite(self.problem.loss.slope)
        return self.problem.loss.slope if known else self.problem.slope_at(point)

    def to_json(self) -> str:
        """Return the plan as JSON; ``Plan.from_json`` reads it back and checks the certificate."""
        return plan_json.dumps(self)

    @staticmethod
    def from_json(text: str) -> "Plan":
        """Read a plan, and refuse with a ``PlanFormatError`` one whose scales do not certify what it says."""
        with plan_json.refusing():
            fields, stated = plan_json.read(text)
            return plan_json.check(Plan(**fields), stated)

    def __str__(self) -> str:
        return plan_table.describe(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plan) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash(self.to_json())

    @property
    def charges(self) -> tuple[Charge, ...]:
        """What is released, in order, with costs as values: a gradient in each step."""
        name, unit = self.mechanism.name, self.mechanism.unit
        pairs = enumerate(zip(self.costs, self.scales, strict=True), start=1)
        return charges(Item(f"step {t}", float(cost), unit, float(scale), name) for t, (cost, scale) in pairs)

    @property
    def points(self) -> int:
        """How many points are published, besides the first."""
        return self.iterations

    @property
    def guessed_error(self) -> float | None:
        """A public guess of how far the model's objective is above its minimum; None where there is none."""
        return self.error

    def noise_covariance(self, curvature: np.ndarray) -> np.ndarray:
        """Return the covariance of the noise in the last published point, if F has this curvature: a guess."""
        noise = covariances.of_noise(self.mechanism, 1.0, self.problem)
        return covariances.of_steps(self.steps, self.scales, noise, curvature)


def assumed_spectrum(problem: Problem, spectrum: np.ndarray | None) -> np.ndarray:
    """Return the declared eigenvalues, or a logarithmic grid on [mu, L]."""
    if spectrum is not None:
        return np.asarray(spectrum, dtype=float)
    if problem.mu <= 0:
        raise NoBoundError("the default spectrum needs strong convexity (mu > 0): pass spectrum=..., or use ridge > 0.")
    return np.geomspace(problem.mu, problem.L, 40)
