"""The plan of curvature first: moments, one second moment and a few gradients are released, and all is published."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from epsteps.budgets import Budget, mechanisms
from epsteps.budgets.mechanisms import Mechanism
from epsteps.budgets.spending import of_pure
from epsteps.methods import designs
from epsteps.methods.designs import Columns, Division, Model, Moments, Spread, Statistic
from epsteps.methods.limits import require_drawable, require_units
from epsteps.plans import covariances
from epsteps.plans.planning import OverspentError
from epsteps.plans.published import Charge, Item, charges, describe, dumps, loads, problem_fact
from epsteps.problem import memory, validate
from epsteps.problem.losses import Logistic, Squared
from epsteps.problem.problem import Problem
from epsteps.problem.sampling import Sampling

# A guess of how long the solution is: what a larger ridge costs.
_LENGTH = 3.0
_FULL = Sampling(1, 1)
_OUTWARD = 1 + 1e-12
# A gradient is followed where its noise alone is expected to cost no more than this share of F(0).
_FOLLOWED = 0.1


@dataclass(frozen=True)
class CurvaturePlan:
    """Curvature first, decided: what is released, what each release may cost, and the rule that divides the rest.

    Means and squares of the columns are released first; then the second moment of records that are whitened by them and
    shortened; then gradients, each at the minimum of a model of F for Gaussian records of that mean and covariance,
    corrected by the gradients before. Every released number is published.

    Formal guarantee: each release is a sum of integers with exact noise of its own sensitivity. Pure noise: the costs
    of the second moment and the gradients are computed from the released moments, and add up to at most ``rest``
    whatever these are, so that the epsilons compose adaptively. Gaussian noise: all costs are fixed in advance, and
    their rhos add up.

    Parameters
    ----------
    problem, budget
        The public facts, and what may be spent.
    mechanism : str
        Name of the gradients' noise; the other releases are paid in the same unit.
    ridge : float
        Ridge of the objective that is minimised, at least the problem's: more of it where noise is large.
    moments, rest : float
        Cost of the moments, and of everything after them.
    """

    problem: Problem
    budget: Budget
    mechanism: str
    ridge: float
    moments: float
    rest: float

    def __post_init__(self) -> None:
        memory.require_moments(self.problem)
        for name in ("ridge", "moments", "rest"):
            validate.positive(name, getattr(self, name))
        require_covered(self.problem)
        if self.ridge < self.problem.ridge:
            raise ValueError(f"ridge must be at least the problem's {self.problem.ridge!r}, got {self.ridge!r}.")
        mechanisms.require_fit(self.noise, self.problem)
        if self.moments > self.rest:  # the curvature takes up to 30 % of both, and gradients need some of the rest
            raise ValueError(f"moments must cost no more than the rest, got {self.moments!r} and {self.rest!r}.")
        require_drawable(self.problem.n, self.statistics, self.noise.unit, self.moments + self.rest, self.ridge)
        if self.spent > self.budget.amount:
            raise OverspentError(
                f"the plan's costs are {self.spent!r}, more than its budget {self.budget.amount!r}. "
                "Make the plan anew with epsteps.plan."
            )

    @property
    def method(self) -> str:
        """Name of the method, for people."""
        return "curvature first"

    @cached_property
    def noise(self) -> Mechanism:
        """The noise of the gradients."""
        return mechanisms.named(self.mechanism)

    @cached_property
    def minimised(self) -> Problem:
        """The problem whose gradients are released."""
        return self.problem.with_ridge(self.ridge)

    @cached_property
    def columns(self) -> Columns:
        """What the domain says of the columns."""
        return designs.columns_of(self.problem)

    @property
    def curvature(self) -> float:
        """What a covariance is multiplied by in the Hessian, typically."""
        return designs.typical_curvature(self.problem.loss)

    @cached_property
    def statistics(self) -> tuple[Statistic, ...]:
        """The releases of means and squares."""
        return designs.statistics_of(self.columns, self.problem.n, self.noise.unit, self.moments)

    @cached_property
    def expected(self) -> Division:
        """How the rest is divided if features are spread evenly over their domain."""
        mean, variance = self.problem.domain.even_moments(self.problem.d)
        return self._divide(Moments(mean, variance, np.zeros_like(mean), np.zeros_like(mean)))

    def divide(self, moments: Moments) -> Division:
        """Return the costs of the second moment and of each gradient: at most ``rest`` together."""
        return self.expected if self.noise.unit == "rho" else self._divide(moments)

    def _divide(self, moments: Moments) -> Division:
        total = self.moments + self.rest
        return designs.divide(moments, self.noise.unit, self.curvature, self.ridge, self.problem.n, total, self.moments)

    def model(self, spread: Spread) -> Model:
        """Return the model of F that gradients correct; an intercept has mean 1 and no variance."""
        more, loss = int(self.problem.intercept), self.problem.loss
        assert isinstance(loss, Logistic | Squared)
        mean, covariance = np.append(spread.mean, np.ones(more)), np.pad(spread.covariance, (0, more))
        return Model(loss, mean, covariance, self.ridge, radius=self.radius, largest=self.minimised.L)

    def noise_at(self, x: np.ndarray, cost: float) -> np.ndarray:
        """Return the covariance of the noise in a gradient that is released at x for this cost."""
        covariance, units = self.noise.covariance(self.problem)
        sensitivity = float(self.problem.sensitivity_at(x, self.noise.norm))
        scale = float(self.noise.scales(sensitivity, np.array(cost), _FULL)) / self.problem.n
        return scale**2 * covariance.matrix * np.outer(units, units)

    @property
    def rarely(self) -> float:
        """The covariance of a gradient's noise, times this, is one that the noise rarely exceeds.

        By three standard deviations of a square of its size: √(2/d) of it for Gaussian noise, √(6/d) for noise of a
        norm, whose radius is random, too.
        """
        return 1 + 3 * math.sqrt((2 if self.noise.unit == "rho" else 6) / self.problem.dimension)

    @property
    def radius(self) -> float:
        """How far from 0 the minimum may lie: F(0) bounds ridge/2 |x|², as losses are not negative."""
        return math.sqrt(2 * self.problem.start_gap / self.ridge)

    def possible(self, x: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        """Return a released gradient at x, its records' part shortened to the length that it may have."""
        largest = float(self.problem.gradient_size(self.problem.slope_at(x), 2))
        return self.ridge * x + designs.held(gradient - self.ridge * x, largest)

    def is_followed(self, model: Model, x: np.ndarray, cost: float) -> bool:
        """Whether the noise of a gradient at x leaves anything to gain, decided before it is looked at.

        Its noise alone leads to an error of tr(H⁻¹ Σ)/2 on a quadratic, and the model 0 has one of F(0) at most. From a
        tenth of that the path was on average no better than 0 (uniform and correlated records, d = 5 to 300).
        """
        return model.noise_cost(x, self.noise_at(x, cost)) <= _FOLLOWED * self.problem.start_gap

    def held(self, x: np.ndarray, gradient: np.ndarray, cost: float) -> np.ndarray:
        """Return x, shortened until the gradient released at 0 for this cost does not tell that 0 is better.

        F(x) - F(0) is at least ridge/2 |x|² + g'x, for the gradient g at 0 without noise: F is strongly convex. One
        standard deviation of the noise along x is granted. No point is outside the ball where the minimum must lie.
        """
        x = designs.held(x, self.radius)
        slope = float(gradient @ x) - math.sqrt(max(float(x @ self.noise_at(np.zeros_like(x), cost) @ x), 0.0))
        bend = self.ridge / 2 * float(x @ x)
        return x if slope + bend <= 0 else x * (max(-slope, 0.0) / bend if bend > 0 else 0.0)

    @property
    def error(self) -> float:
        """A guess of E F(x) - F*, the larger ridge's bias included; nothing is proved of it."""
        total = self.moments + self.rest
        limit = mechanisms.risk(self.noise, self.scale(total), self.minimised)
        excess = designs.predicted_excess(self.expected, self.noise.unit, limit, total, self.problem.start_gap)
        return excess + (self.ridge - self.problem.ridge) / 2 * _LENGTH**2

    @cached_property
    def spent(self) -> float:
        """Epsilon (or rho, for a budget of rho) of everything that is published. Never above the budget."""
        return self.spending().amount

    def spending(self, repetitions: int = 1) -> Budget:
        """Return what so many runs cost together, rounded up."""
        if self.noise.unit == "rho":
            return self.budget.spending(np.tile([self.moments, self.rest], repetitions), self.noise)
        return of_pure(self.budget, (self.moments + self.rest) * repetitions * _OUTWARD)

    @property
    def items(self) -> tuple[Item, ...]:
        """What is released, in order; with pure noise the last two lines share their costs by a public rule."""
        unit = self.noise.unit
        names = ("means of the columns", "squares of the columns")
        found = [
            Item(name, statistic.cost, unit, statistic.scale, statistic.mechanism.name)
            for name, statistic in zip(names, self.statistics, strict=False)
        ]
        matrix = "difference of Wisharts" if unit == "epsilon" else "Gaussian matrix"
        count = len(self.expected.gradients)
        if unit == "epsilon":
            what = f"second moment, {count} gradients"
            return (*found, Item(what, self.rest, unit, self.scale(self.rest), f"{matrix}; {self.mechanism}"))
        moment = designs.matrix_noise(unit, self.problem.d + 1, 1.0, 1, self.expected.curvature)
        found.append(Item("second moment, records of norm 1", self.expected.curvature, unit, moment.scale, matrix))
        for number, cost in enumerate(self.expected.gradients, start=1):
            found.append(Item(f"gradient {number}", cost, unit, self.scale(cost), self.mechanism))
        return tuple(found)

    def scale(self, cost: float) -> float:
        """Return the scale of the noise on a gradient's sum at this cost, where slopes are typical."""
        sensitivity = self.problem.typical_sensitivity(self.noise.norm)
        return float(self.noise.scales(sensitivity, np.array(cost), _FULL))

    @property
    def facts(self) -> dict[str, str]:
        """Lines of the plan's page."""
        shares = ", ".join(f"{cost / (self.moments + self.rest):.1%}" for cost in self.expected.gradients)
        fixed = "" if self.noise.unit == "rho" else "about "
        return {
            "Problem": problem_fact(self.problem, self.ridge),
            "Published": "every released number, and the path that follows from them",
            "Division": f"second moment {fixed}{self.expected.curvature / (self.moments + self.rest):.1%}, gradients "
            f"{fixed}{shares} of the budget" + ("; a public rule sees the released moments" if fixed else ""),
            "Error": f"E F(x) - F* is guessed as {self.error:.3g}",
        }

    def to_json(self) -> str:
        """Return the plan as JSON; ``CurvaturePlan.from_json`` reads it back and checks the certificate."""
        return dumps(self)

    @staticmethod
    def from_json(text: str) -> "CurvaturePlan":
        """Read a plan, and refuse one whose costs are not what it says."""
        return loads(text, CurvaturePlan)

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
        return self.error

    def noise_covariance(self, curvature: np.ndarray) -> np.ndarray:
        """Return the covariance of the noise in the last published point, if F has this curvature: a guess."""
        scale = self.scale(self.expected.gradients[-1]) / self.problem.n
        return covariances.through(curvature, covariances.of_noise(self.noise, scale, self.problem))


def require_covered(problem: Problem) -> None:
    """Raise unless the method is written for this problem."""
    designs.typical_curvature(problem.loss)
    designs.columns_of(problem)
    require_units(problem)
    if problem.clip is not None:
        raise ValueError(
            f"the curvature method models gradients that are not clipped: use clip=None, got {problem.clip!r}."
        )
