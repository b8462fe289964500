"""The plan of sufficient statistics: least squares from second moments of the records, released once with noise."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from epsteps.budgets import Approximate, Budget, Concentrated, Pure, spending
from epsteps.budgets.conversions import gaussian_mu
from epsteps.methods.limits import require_units
from epsteps.methods.vectors import Vectors, chosen_vectors
from epsteps.plans import covariances
from epsteps.plans.planning import OverspentError
from epsteps.plans.published import Charge, Item, charges, describe, dumps, loads, problem_fact
from epsteps.problem import memory, validate
from epsteps.problem.grid import STEPS
from epsteps.problem.losses import Squared
from epsteps.problem.problem import Problem

WISHART, GAUSSIAN = "wishart", "gaussian"
# Noise of about so many bits is drawn quickly, and is still spread over billions of integers.
_NOISE_BITS = 36
_SUM_BITS = 62
# Eigenvalues below this share of the noise's norm are not believed. Measured; the error is flat around it.
_FLOOR_SHARE = 0.55
_OUTWARD, _INWARD = 1 + 1e-12, 1 - 1e-9


@dataclass(frozen=True)
class StatisticsPlan:
    """Noisy second moments of the vectors a = (1, features, target), decided: a model is then solved for.

    Everything that follows the noise is post-processing: the noisy matrix loses its negative eigenvalues, the features'
    part of it has its small eigenvalues e raised to √(e² + floor²), and the problem's ridge is added as it is. This
    replaces the released eigenvalue of AdaSSP (Wang 2018).

    Formal guarantee: vectors are ``weights x (1, u - centre, y)``, all public numbers but u and y, and are rounded to
    integers inside the declared domain; their largest squared length is ``Vectors.square``, R². Replacing one
    changes the sum of aa' by aa' - bb', of Frobenius norm √(|a|⁴ + |b|⁴ - 2 (a'b)²) <= √2 R² and of nuclear norm at
    most 2 R². "gaussian" adds a symmetric matrix with standard deviation ``scale`` on the diagonal and scale/√2 off it,
    which is √2 R²/scale-Gaussian-DP: the same as ``minima.statistics_mu`` says of moments and products together.
    "wishart" adds the difference of two Wishart matrices, which is R²/scale-DP (``Source.wishart_difference``). Sums
    are exact integers. Where they are rounded to coarser ones, each entry moves by at most one of those more, and that
    is counted.

    Parameters
    ----------
    problem, budget
        The public facts, and what may be spent.
    mechanism : str
        "gaussian" or "wishart".
    centre, weights : tuples of int
        As in ``Vectors``.
    scale : float
        Noise of the sum of aa', where a is in units of 2^20 integers.
    floor : float
        What small eigenvalues of the sum are raised to. It matters for the error, not for privacy.
    """

    problem: Problem
    budget: Budget
    mechanism: str
    centre: tuple[int, ...]
    weights: tuple[int, ...]
    scale: float
    floor: float

    def __post_init__(self) -> None:
        memory.require_moments(self.problem)
        require_squared(self.problem)
        validate.choice("mechanism", self.mechanism, (GAUSSIAN, WISHART))
        for name in ("scale", "floor"):
            validate.positive(name, getattr(self, name))
        if self.spent > self.budget.amount:
            raise OverspentError(
                f"the plan's scale spends {self.spent!r}, more than its budget {self.budget.amount!r}. "
                "Make the plan anew with epsteps.plan."
            )

    @property
    def method(self) -> str:
        """Name of the method, for people."""
        return "sufficient statistics"

    @cached_property
    def vectors(self) -> Vectors:
        """What each record becomes."""
        return Vectors(self.problem, self.centre, self.weights)

    @property
    def shift(self) -> int:
        """Sums are released in multiples of 2^shift of their integers."""
        return shift_of(self.scale, self.vectors)

    @property
    def step(self) -> float:
        """Size of one released integer: a power of two."""
        return math.ldexp(1.0, self.shift) / STEPS**2

    @property
    def sensitivity(self) -> float:
        """How far one record moves the released integers: in the nuclear norm for "wishart", else in Frobenius's."""
        return released_sensitivity(self.vectors, self.mechanism, self.shift)

    @cached_property
    def cost(self) -> float:
        """Epsilon of Wishart noise, mu of Gaussian noise; rounded up."""
        ratio = self.sensitivity / (self.scale / self.step) * _OUTWARD
        return ratio / 2 if self.mechanism == WISHART else ratio

    @cached_property
    def spent(self) -> float:
        """Epsilon (or rho, for a budget of rho) of everything that is published. Never above the budget."""
        return self.spending().amount

    def spending(self, repetitions: int = 1) -> Budget:
        """Return what so many runs cost together, rounded up."""
        if self.mechanism == WISHART:
            return spending.of_pure(self.budget, self.cost * repetitions * _OUTWARD)
        return spending.of_gaussian(self.budget, self.cost * math.sqrt(repetitions) * _OUTWARD)

    @property
    def largest_sum(self) -> float:
        """No eigenvalue of the sums is larger: n times the longest vector's square, in units of 2^20 integers."""
        return self.problem.n * (self.vectors.square / STEPS**2)

    @property
    def radius(self) -> float:
        """How far from 0 the model may lie: F(0) bounds ridge/2 |x|². Infinite without a ridge."""
        return math.sqrt(2 * self.problem.start_gap / self.problem.ridge) if self.problem.ridge > 0 else math.inf

    @property
    def deviation(self) -> float:
        """Standard deviation of the noise on the diagonal of the sum; that off it is 1/√2 of it."""
        return deviation(self.mechanism, self.scale, self.vectors.size)

    @property
    def items(self) -> tuple[Item, ...]:
        """What is released, in order."""
        unit = "epsilon" if self.mechanism == WISHART else "mu"
        return (Item("second moments", self.cost, unit, self.scale, self.mechanism),)

    @property
    def facts(self) -> dict[str, str]:
        """Lines of the plan's page."""
        return {
            "Problem": problem_fact(self.problem, self.problem.ridge),
            "Published": "noisy second moments of the centred, weighed records, and the model that is solved from them",
            "Solver": f"small eigenvalues of the sums are raised to about {self.floor:.3g}, in the noise's units",
            "Error": f"a guess of F(x) - F* is {predicted_risk(self):.3g}, for records that fill the domain evenly",
        }

    def to_json(self) -> str:
        """Return the plan as JSON; ``StatisticsPlan.from_json`` reads it back and checks the certificate."""
        return dumps(self)

    @staticmethod
    def from_json(text: str) -> "StatisticsPlan":
        """Read a plan, and refuse one whose scale does not certify what it says."""
        return loads(text, StatisticsPlan)

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
        """A public guess of how far the model's objective is above its minimum."""
        return predicted_risk(self)

    def noise_covariance(self, curvature: np.ndarray) -> np.ndarray:
        """Return the covariance of the noise in the last published point, if F has this curvature: a guess."""
        # H⁻¹ T' E[Nθθ'N] T H⁻¹ for noise N on the moments, as ``predicted_risk`` weighs it; small eigenvalues of H are
        # raised as those of the sums are.
        vectors, problem = self.vectors, self.problem
        units, slopes = vectors.model_units, vectors.slopes
        values, directions = np.linalg.eigh(curvature * np.outer(units, units))
        raised = np.hypot(values, self.floor / problem.n)
        length = 2 * (squared(problem).bound / vectors.weights[-1]) ** 2
        moments = (self.deviation / problem.n) ** 2 / 2 * length * slopes.T @ slopes
        return covariances.through((directions * raised) @ directions.T, moments) * np.outer(units, units)


def plan_statistics(problem: Problem, budget: Budget, *, mechanism: str = "auto") -> StatisticsPlan:
    """Plan the release of least squares' sufficient statistics.

    A budget in epsilon takes Wishart noise, which is pure. Under (epsilon, delta) "auto" takes the noise whose
    variance is smaller: Gaussian, but for few features.
    """
    memory.require_moments(problem)
    require_squared(problem)
    validate.choice("mechanism", mechanism, ("auto", GAUSSIAN, WISHART))
    vectors = chosen_vectors(problem)
    if mechanism == "auto":
        kinds = {Pure: (WISHART,), Concentrated: (GAUSSIAN,)}.get(type(budget), (GAUSSIAN, WISHART))
    else:
        kinds = (mechanism,)
    scales = {kind: _scale(vectors, budget, kind) for kind in kinds}
    best = min(kinds, key=lambda kind: deviation(kind, scales[kind], vectors.size))
    norm = deviation(best, scales[best], vectors.size) * math.sqrt(2 * vectors.size)
    return StatisticsPlan(
        problem, budget, best, vectors.centre, vectors.weights, scales[best], floor=_FLOOR_SHARE * norm
    )


def predicted_risk(plan: StatisticsPlan) -> float:
    """Return a public guess of the excess risk: what noise on the moments costs through the guessed curvature.

    The gradient at the minimum is off by Nθ, for noise N and the residual's coefficients θ, half of whose squared
    length is taken to be the target's. Never more than what the model 0 may cost.
    """
    vectors, problem = plan.vectors, plan.problem
    units, slopes = vectors.model_units, vectors.slopes
    spread, mean = problem.guessed_curvature
    curvature = (np.diag(spread) + np.outer(mean, mean)) * np.outer(units, units)
    trace = float(np.trace(slopes @ np.linalg.solve(curvature, slopes.T)))
    length = 2 * (squared(problem).bound / vectors.weights[-1]) ** 2
    return min((plan.deviation / problem.n) ** 2 / 4 * length * trace, problem.start_gap)


def squared(problem: Problem) -> Squared:
    """Return the problem's loss, which is squared."""
    assert isinstance(problem.loss, Squared)
    return problem.loss


def require_squared(problem: Problem) -> None:
    """Raise unless the problem is least squares."""
    if not isinstance(problem.loss, Squared):
        raise ValueError(
            f"sufficient statistics are those of Squared, got {type(problem.loss).__name__}. "
            "Use method='objective' or method='output'."
        )
    if problem.clip is not None:
        raise ValueError(f"clip is for gradients, which are not taken here. Leave it out, got {problem.clip!r}.")
    require_units(problem)


def deviation(mechanism: str, scale: float, size: int) -> float:
    """Return the diagonal's standard deviation: 2c √(k + 1) for the difference of two Wishart matrices."""
    return 2 * scale * math.sqrt(size + 1) if mechanism == WISHART else scale


def shift_of(scale: float, vectors: Vectors) -> int:
    """Return by how many bits the sums' integers are coarsened, for noise of this scale.

    Sums of all records then fit 62 bits: noise is known modulo 2^64, and is added modulo 2^64.
    """
    largest = vectors.problem.n * vectors.square
    return max(0, math.frexp(scale * STEPS**2)[1] - _NOISE_BITS, largest.bit_length() - _SUM_BITS)


def released_sensitivity(vectors: Vectors, mechanism: str, shift: int) -> float:
    """Return the norm of the change of released integers when a record is replaced, rounded up.

    Rounding moves each of the k² entries of a change by less than 1: by k in Frobenius's norm, k^(3/2) in the nuclear.
    """
    square, k = float(vectors.square) / 2.0**shift, vectors.size
    more = 0.0 if shift == 0 else float(k)
    if mechanism == WISHART:
        return (2 * square + more * math.sqrt(k)) * _OUTWARD
    return (math.sqrt(2) * square + more) * _OUTWARD


def _scale(vectors: Vectors, budget: Budget, mechanism: str) -> float:
    """Return the scale that spends the budget."""
    if mechanism == WISHART:
        cost = 2 * spending.pure_epsilon(budget)
    elif isinstance(budget, Approximate):
        cost = gaussian_mu(budget.epsilon, budget.delta) * _INWARD
    elif isinstance(budget, Concentrated):
        cost = math.sqrt(2 * budget.rho) * _INWARD
    else:
        raise ValueError(f"{budget!r} does not cover Gaussian noise. Use mechanism='auto', or an Approximate budget.")
    rough = released_sensitivity(vectors, mechanism, 0) / STEPS**2 / cost
    shift = shift_of(rough, vectors) + 1  # no less than that of the scale itself, which its own rounding enters
    scale = released_sensitivity(vectors, mechanism, shift) * math.ldexp(1.0, shift) / STEPS**2 / cost * _OUTWARD
    if shift_of(scale, vectors) > shift:  # the rounding to coarser integers alone costs more than the budget
        raise ValueError(f"{budget} is too small: its noise does not fit the released integers. Use a larger budget.")
    return scale
