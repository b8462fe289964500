"""The plan of curvature first: moments, one second moment and a few gradients are released, and all is published."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.random import Generator

from epsteps.budgets import Budget, Cost, Epsilon, mechanisms
from epsteps.budgets.mechanisms import Mechanism
from epsteps.methods import curvature as designs
from epsteps.methods.curvature import (
    Division,
    Model,
    Moments,
    Spread,
    Statistic,
    Whitening,
    require_drawable,
)
from epsteps.methods.curvature.sums import ColumnMeans, SecondMoment, column_means
from epsteps.methods.intervals.posterior import BASIS, released_gradient, require_gradients
from epsteps.methods.intervals.table import Intervals, intervals_for
from epsteps.plans.notation import problem_fact
from epsteps.plans.plan import Aim, Charge, Conversation, Example, Plan, Published
from epsteps.plans.requests import Gradient
from epsteps.plans.utility import Typical, Utility
from epsteps.problem import limits, validate
from epsteps.problem.domain import Columns
from epsteps.problem.problem import Problem
from epsteps.problem.rounding import up
from epsteps.problem.sampling import FULL

# A gradient is followed where its noise alone is expected to cost no more than this share of F(0).
_FOLLOWED = 0.1


@dataclass(frozen=True, eq=False, repr=False)
class CurvaturePlan(Plan):
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

    reads = (Gradient, ColumnMeans)
    method = "curvature first"
    needs_besides = False

    problem: Problem
    budget: Budget
    mechanism: str
    ridge: float
    moments: float
    rest: float

    def __post_init__(self) -> None:
        limits.require_moments(self.problem)
        for name in ("ridge", "moments", "rest"):
            validate.positive(name, getattr(self, name))
        require_covered(self.problem)
        if self.ridge < self.problem.ridge:
            raise ValueError(f"ridge must be at least the problem's {self.problem.ridge!r}, got {self.ridge!r}.")
        mechanisms.require_fit(self.noise, self.problem)
        if self.moments > self.rest:  # the curvature takes up to 30 % of both, and gradients need some of the rest
            raise ValueError(f"moments must cost no more than the rest, got {self.moments!r} and {self.rest!r}.")
        require_drawable(self.problem.n, self.statistics, self.noise.kind, self.moments + self.rest, self.ridge)
        super().__post_init__()

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
        return self.problem.domain.columns(self.problem.d)

    @property
    def curvature(self) -> float:
        """What a covariance is multiplied by in the Hessian, typically."""
        return designs.typical_curvature(self.problem.loss)

    @cached_property
    def statistics(self) -> tuple[Statistic, ...]:
        """The releases of means and squares."""
        return designs.statistics_of(self.columns, self.problem.n, self.noise.kind, self.moments)

    @cached_property
    def expected(self) -> Division:
        """How the rest is divided if features are spread evenly over their domain."""
        return self._divide(self._even_moments)

    @property
    def _even_moments(self) -> Moments:
        """Those of features that are spread evenly, known exactly."""
        mean, variance = self.problem.domain.even_moments(self.problem.d)
        return Moments(mean, variance, np.zeros_like(mean), np.zeros_like(mean))

    def divide(self, moments: Moments) -> Division:
        """Return the costs of the second moment and of each gradient: at most ``rest`` together."""
        return self._divide(moments) if self.is_pure else self.expected

    def _divide(self, moments: Moments) -> Division:
        total = self.moments + self.rest
        return designs.divide(moments, self.noise.kind, self.curvature, self.ridge, self.problem.n, total, self.moments)

    def model(self, spread: Spread) -> Model:
        """Return the model of F that gradients correct; an intercept has mean 1 and no variance."""
        constants = int(self.problem.intercept)
        mean, covariance = np.append(spread.mean, np.ones(constants)), np.pad(spread.covariance, (0, constants))
        return Model(self.problem.loss, mean, covariance, self.ridge, radius=self.radius, largest=self.minimised.L)

    def noise_at(self, x: np.ndarray, cost: float) -> np.ndarray:
        """Return the covariance of the noise in a gradient that is released at x for this cost."""
        sensitivity = float(self.problem.sensitivity_at(x, self.noise.norm))
        scale = float(self.noise.scales(sensitivity, np.array(cost), FULL)) / self.problem.n
        return self.noise.matrix(scale, self.problem)

    @property
    def rarely(self) -> float:
        """The covariance of a gradient's noise, times this, is one that the noise rarely exceeds.

        By three standard deviations of a square of its size: √(2/d) of it for Gaussian noise, √(6/d) for noise of a
        norm, whose radius is random, too.
        """
        return 1 + 3 * math.sqrt((6 if self.is_pure else 2) / self.problem.dimension)

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

    def worth(self) -> Utility:
        """Return what the last point is expected to be worth; nothing is proved."""
        return Typical(self.problem).utility(
            _predicted(self.problem, self.noise, self.ridge, self.moments + self.rest), None
        )

    @property
    def is_pure(self) -> bool:
        """Whether the noise is pure: the costs of later releases may then depend on earlier ones."""
        return self.noise.kind.is_pure

    def spending(self, repetitions: int = 1) -> Budget:
        """Return what so many runs cost together, rounded up."""
        if self.is_pure:
            return self.budget.of(Epsilon(up((self.moments + self.rest) * repetitions)))
        return self.budget.spending(np.tile([self.moments, self.rest], repetitions), self.noise.kind)

    @property
    def charges(self) -> list[Charge]:
        """What is released, in order; with pure noise the last two lines share their costs by a public rule."""
        kind, count = self.noise.kind, len(self.expected.gradients)
        names = ("means of the columns", "squares of the columns")
        charges = [
            Charge(name, kind(statistic.cost), statistic.scale, statistic.mechanism.name)
            for name, statistic in zip(names, self.statistics, strict=False)
        ]
        if self.is_pure:
            noise = f"difference of Wisharts; {self.mechanism}"
            charge = Charge(f"second moment, {count} gradients", kind(self.rest), self.scale(self.rest), noise)
            return [*charges, charge]
        cost = self.expected.curvature
        scale = designs.matrix_noise(kind, self.problem.d + 1, 1.0, 1, cost).scale
        charges.append(Charge("second moment, records of norm 1", kind(cost), scale, "Gaussian matrix"))
        for number, cost in enumerate(self.expected.gradients, start=1):
            charges.append(Charge(f"gradient {number}", kind(cost), self.scale(cost), self.mechanism))
        return charges

    @property
    def allowance(self) -> list[Cost]:
        """What the moments cost, and all that follows them together."""
        return [self.noise.kind(self.moments), self.noise.kind(self.rest)]

    @property
    def requests(self) -> int:
        """Moments, the second moment, and gradients."""
        return len(self.statistics) + 1 + len(self.expected.gradients)

    def conversation(self) -> Conversation:
        """Publish the path x_0 = 0, ..., x_T, and all other released numbers."""
        released = []
        for request in column_means(self.problem, self.columns, self.statistics):
            released.append((yield request))
        extras: dict[str, np.ndarray] = dict(zip(("released_means", "released_squares"), released, strict=False))
        noises = tuple(statistic.deviations for statistic in self.statistics)
        moments = designs.decode_moments(self.columns, tuple(released), noises)
        division, matrix, known = self.divide(moments), None, None
        whitening = self._whitening(moments, division.curvature)
        if whitening is not None:
            matrix = yield SecondMoment(self.problem, whitening, self.noise.kind, division.curvature)
            known = whitening.noise(self.noise.kind, self.problem.n, division.curvature)
            extras["released_second_moment"] = matrix
        spread = designs.covariance(self.columns, moments, whitening, matrix, known, self.curvature)
        model, path, gradients = self.model(spread), [np.zeros(self.problem.dimension)], []
        for cost in division.gradients:
            gradients.append((yield Gradient.at(self.minimised, self.noise, path[-1], cost)))
            model, x = self.following(model, division.gradients, path, gradients)
            path.append(x)
        costs = np.array([division.curvature, *division.gradients])
        last = {"costs": costs, "gradients": np.array(gradients), "mean": spread.mean, "covariance": spread.covariance}
        return Published(np.array(path), extras | last)

    @property
    def besides(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the gradients and of what the second moment and each of them cost."""
        count = len(self.expected.gradients)
        return {"costs": (count + 1,), "gradients": (count, self.problem.dimension)}

    def aim(self, extras: dict[str, np.ndarray]) -> Aim:
        """Return the objective whose gradients are released."""
        return Aim(self.minimised)

    def intervals(
        self,
        path: np.ndarray,
        extras: dict[str, np.ndarray],
        draw: Callable[..., np.ndarray],
        generator: Generator,
        **asked: Any,
    ) -> Intervals:
        """Return intervals for the minimum, from the last gradient and its noise: see ``Run.intervals``.

        The released second moment is that of the columns, and says nothing certain of the Hessian at the model.
        """
        require_gradients(self.minimised)
        if not {"gradients", "costs"} <= extras.keys() or len(path) < 2:
            raise ValueError(
                "there are no intervals without the released gradients, which a model's file of before has not. Ask "
                "the run itself, or use method='objective', with intervals=0.95."
            )
        request = Gradient.at(self.minimised, self.noise, path[-2], float(extras["costs"][-1]))
        released = released_gradient(draw, request, extras["gradients"][-1], path[-1])
        asked |= {"asked_ridge": self.problem.ridge, "basis": BASIS}
        return intervals_for(self.problem, released, generator, **asked)

    def examples(self) -> list[Example]:
        """Return the requests of a run on features that are spread evenly over their domain.

        Where there are too few records for the second moment, it is that of more.
        """
        kind, n, cost = self.noise.kind, self.problem.n, self.expected.curvature
        weigh = partial(designs.whitening_of, self._even_moments, kind, self.curvature, self.ridge)
        while (whitening := weigh(n, cost)) is None:
            n *= 2
        means, start = column_means(self.problem, self.columns, self.statistics), np.zeros(self.problem.dimension)
        requests = [
            *((request, request.statistic.cost) for request in means),
            (SecondMoment(self.problem, whitening, kind, cost), cost),
            *((Gradient.at(self.minimised, self.noise, start, each), each) for each in self.expected.gradients),
        ]
        assumes = "releases are independent, and cost what the plan's division for evenly spread features says"
        return [Example(request, kind(each), assumes) for request, each in requests]

    def _whitening(self, moments: Moments, cost: float) -> Whitening | None:
        return designs.whitening_of(moments, self.noise.kind, self.curvature, self.ridge, self.problem.n, cost)

    def following(
        self, model: Model, costs: tuple[float, ...], path: list[np.ndarray], gradients: list[np.ndarray]
    ) -> tuple[Model, np.ndarray]:
        """Return the model that the last of the released gradients corrects, and its minimum: post-processing.

        It is finite, and no exception or warning, whatever finite numbers were released.
        """
        known = [self.possible(x, gradient) for x, gradient in zip(path, gradients, strict=True)]
        x, cost = path[-1], costs[len(path) - 1]
        if len(path) > 1:
            noise = self.noise_at(path[-2], costs[len(path) - 2]) + self.noise_at(x, cost)
            model = model.corrected(path[-2], x, known[-1] - known[-2], self.rarely * noise)
        if self.is_followed(model, x, cost):
            x = model.minimum(x, known[-1])
        return model, self.held(x, known[0], costs[0])

    def scale(self, cost: float) -> float:
        """Return the scale of the noise on a gradient's sum at this cost, where slopes are typical."""
        sensitivity = self.problem.typical_sensitivity(self.noise.norm)
        return float(self.noise.scales(sensitivity, np.array(cost), FULL))

    @property
    def facts(self) -> dict[str, str]:
        """Lines of the plan's page."""
        shares = ", ".join(f"{cost / (self.moments + self.rest):.1%}" for cost in self.expected.gradients)
        fixed = "about " if self.is_pure else ""
        return {
            "Problem": problem_fact(self.problem, self.ridge),
            "Published": "every released number, and the path that follows from them",
            "Division": f"second moment {fixed}{self.expected.curvature / (self.moments + self.rest):.1%}, gradients "
            f"{fixed}{shares} of the budget" + ("; a public rule sees the released moments" if fixed else ""),
        }


def require_covered(problem: Problem) -> None:
    """Raise unless the method is written for this problem."""
    designs.typical_curvature(problem.loss)
    problem.domain.columns(problem.d)
    limits.require_units(problem)
    if problem.clip is not None:
        raise ValueError(
            f"the curvature method models gradients that are not clipped: use clip=None, got {problem.clip!r}."
        )


# Share of the budget that means and squares of the columns get.
_MOMENTS = 0.03
# Certificates are rounded up, so what may be spent is rounded down by more than that.
_INWARD = (1 - 1e-11, 1 - 1e-8)
# How long the solution is taken to be when the ridge is chosen: noise/length is the ridge that is worth its bias. Pure
# noise is divided over steps at a higher price, and counts double.
_LENGTHS = (1.5, 3.0)  # pure, Gaussian


def plan_curvature(problem: Problem, budget: Budget, *, mechanism: str = "auto") -> CurvaturePlan:
    """Decide a run of curvature first from public numbers alone.

    Parameters
    ----------
    problem, budget
        What is solved, with the Logistic or the Squared loss over a Ball or a Box, and what may be spent.
    mechanism : "auto" or a name
        The gradients' noise; "auto" is the one whose guessed error is smallest. An (epsilon, delta) budget is spent on
        Gaussian noise or on pure noise, whichever is guessed to be better.

    >>> import epsteps as es
    >>> problem = es.Problem(es.Logistic(), es.Box(0, 1), ridge=0.02, n=100_000, d=20)
    >>> p = plan_curvature(problem, es.Pure(1.0))
    >>> p.mechanism, len(p.expected.gradients), p.spent <= 1.0
    ('hull', 3, True)
    """
    validate.choice("mechanism", mechanism, ("auto", *mechanisms.NAMES))
    limits.require_moments(problem)
    require_covered(problem)
    if mechanism == "auto":
        noises = [mechanisms.smallest(problem, kind) for kind in budget.kinds]
    else:
        noises = [mechanisms.named(mechanism)]
        if noises[0].kind not in budget.kinds:
            raise ValueError(f"{budget} does not cover {mechanism} noise. Use mechanism='auto'.")
    plans = [_plan(problem, budget, noise) for noise in noises]
    return min(plans, key=lambda plan: plan.utility.expected or 0.0)


def _plan(problem: Problem, budget: Budget, noise: Mechanism) -> CurvaturePlan:
    total = budget.capacity(noise.kind) * noise.kind.either(*_INWARD)
    return CurvaturePlan(
        problem=problem,
        budget=budget,
        mechanism=noise.name,
        ridge=_paying_ridge(problem, noise, total),
        moments=_MOMENTS * total,
        rest=(1 - _MOMENTS) * total,
    )


def _paying_ridge(problem: Problem, noise: Mechanism, total: float) -> float:
    """Return the ridge, at least the problem's, that is worth its bias.

    It falls as the scale of the noise does, so that all that noise costs through it, and what is predicted, falls too.
    """
    sensitivity = problem.typical_sensitivity(noise.norm)
    scale = float(noise.scales(sensitivity, np.array(total), FULL))
    size = math.sqrt(2 * float(noise.half_power(scale, problem))) / problem.n
    return max(problem.ridge, size / noise.kind.either(*_LENGTHS))


def _predicted(problem: Problem, noise: Mechanism, ridge: float, total: float) -> float:
    """Return the predicted excess: what the gradients, the Hessian's error and the larger ridge leave; at most 0's."""
    typical, kind = Typical(problem), noise.kind
    scale = float(noise.scales(problem.typical_sensitivity(noise.norm), np.array(total), FULL)) / problem.n
    limit = float(typical.noise(scale**2 * typical.gradient_power(noise), ridge))
    variance = problem.domain.even_moments(problem.d)[1]
    need = designs.needed_error(variance, kind, designs.typical_curvature(problem.loss), ridge, problem.n, total)
    excess = designs.predicted_excess(need, kind, limit, typical.trivial, 1 - _MOMENTS)
    return min(float(typical.bias(ridge)) + excess, typical.trivial)


__all__ = ["CurvaturePlan", "plan_curvature"]
