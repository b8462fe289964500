"""The plan of a final model that fits its records: sizes are bought first, and what is minimised is chosen by them.

Noise pays for the longest record that the declared domain allows and for the steepest slope of the loss. Real records
are shorter, and few slopes are steep: for a few percent of epsilon the plan learns how long records are and how many
there are of each class, and then chooses weights for long records, a cap on slopes, the noise and the ridge by the
error that public and bought numbers predict.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np

from epsteps.budgets import Budget, Cost, Epsilon, Rho, mechanisms
from epsteps.budgets.costs import Certified
from epsteps.budgets.mechanisms import Mechanism
from epsteps.methods.bought import ClassShares, Radius, price, quantile
from epsteps.methods.minimum import LONG, Minimum
from epsteps.methods.objective import ObjectivePlan, Sought, planned
from epsteps.plans.notation import problem_fact
from epsteps.plans.plan import Charge, Conversation, Example, Plan, Published
from epsteps.plans.requests import Request
from epsteps.plans.utility import Typical, Utility
from epsteps.problem import limits, validate
from epsteps.problem.problem import Problem
from epsteps.problem.rounding import down, up
from epsteps.problem.weighting import Weighting

# Caps on slopes that are chosen among, what each is guessed to cost where classes are equally frequent, and by how much
# noise that is smaller by the cap costs more than its square: curvature is lost where slopes are capped.
CAPS = {1.0: (0.0, 1.0), 0.7: (0.001, 1.04), 0.5: (0.006, 1.16), 0.35: (0.018, 1.4)}
# What a cap costs more where one class is rare: (even/share)², within these; and the share that is assumed unbought.
_EVEN, _MOST_RARE, _UNBOUGHT = 0.25, 5.0, 0.15
# What weights are guessed to cost, and the length of a typical record over the radius that most lie within.
_WEIGHTED, _LENGTH = 1e-4, 0.85
# The radius, over the longest record's length, that is assumed before one is bought.
_GUESSED_RADIUS = 0.7


@dataclass(frozen=True)
class Seen(Typical):
    """A typical problem whose records are known to lie within a radius, most of them."""

    radius: float | None = None

    @cached_property
    def curvature(self) -> np.ndarray:
        """Eigenvalues of A, for records of the length that goes with the radius."""
        return self._declared.curvature * self._shrunk

    @cached_property
    def gains(self) -> np.ndarray:
        """What of F(0) - F* lies along each entry: less where short records leave more of it to the ridge."""
        ridge, declared = self.problem.ridge, self._declared
        lost = (declared.curvature + ridge) / (self.curvature + ridge) if ridge > 0 else 1 / self._shrunk
        return declared.gains * self._shrunk * lost

    @cached_property
    def _declared(self) -> Typical:
        return Typical(self.problem)

    @cached_property
    def _shrunk(self) -> float:
        """Mean square of the records over that of records that fill their domain."""
        mean, variance = self.problem.domain.even_moments(self.problem.d)
        square = float(mean @ mean + np.sum(variance)) + self.problem.intercept
        return 1.0 if self.radius is None or square == 0 else min((_LENGTH * self.radius) ** 2 / square, 1.0)


@dataclass(frozen=True, eq=False, repr=False)
class WeightedPlan(ObjectivePlan):
    """Objective perturbation of a sum in which long records count less, as ``Weighting`` says."""

    norm: int = 2
    radius: float = math.inf
    mean: float = 1.0

    @cached_property
    def weighting(self) -> Weighting | None:
        """The weights; none where every record counts in full."""
        return Weighting(self.norm, self.radius, self.mean) if math.isfinite(self.radius) else None


@dataclass(frozen=True)
class Bought:
    """What was bought of the records: radii by their norm, and the share of the rarer class; None where nothing was."""

    radii: dict[int, float]
    rarer: float | None = None

    def length(self, problem: Problem) -> float | None:
        """The L2 norm that most records lie within; from the L1 norm it is at most √(|u|_1 |u|_inf)."""
        if 2 in self.radii or not self.radii:
            return self.radii.get(2)
        return min(self.radii[1], math.sqrt(self.radii[1] * float(problem.units.max())))

    @property
    def rareness(self) -> float:
        """What a cap costs, relative to classes that are about equally frequent."""
        share = _UNBOUGHT if self.rarer is None else max(self.rarer, 1e-9)
        return min(max((_EVEN / share) ** 2, 1.0), _MOST_RARE)


@dataclass(frozen=True)
class Choice:
    """A cap, weights and noise, among which a plan chooses by the error that is predicted."""

    cap: float
    noise: Mechanism
    weighting: Weighting | None
    bias: float
    power: float


@dataclass(frozen=True, eq=False)
class Certain(Minimum):
    """A minimum whose cost is that of its plan as a whole, which is certified whatever was bought before it."""

    plan: Any = None

    @cached_property
    def costs(self) -> tuple[Cost, ...]:
        """What the plan spends, computed from its scales: epsilon, at the delta of its budget if that has one."""
        spent = self.plan.spending().amount
        return (Certified(spent) if self.plan.budget.delta else Epsilon(spent),)


@dataclass(frozen=True, eq=False, repr=False)
class AdaptivePlan(Plan):
    """Objective perturbation, decided but for what bought numbers decide: a radius, the classes' shares, then a model.

    Formal guarantee: each purchase is epsilon-private at its price, as ``methods.bought`` proves. Every choice that
    follows is a function of public numbers and of what was bought; whatever it is, the minimum is released by a plan
    that is certified for ``rest``, (epsilon, delta) if there is a delta. So all together are private for the sum of the
    epsilons, and delta (docs/proofs.md, section 12; prices and ``rest`` are fixed beforehand). A purchase is a release
    like any other: it stays spent if a fit is interrupted.

    Parameters
    ----------
    problem, budget
        The public facts, and what may be spent.
    norms : tuple of int
        The norms, 1 or 2, of which a radius is bought; none where noise would drown it.
    price : float
        Epsilon of each radius. The classes' shares cost half as much.
    rest : float
        Epsilon of the minimum.
    """

    reads = (Minimum, Radius, ClassShares)
    method = "objective perturbation, fitted to bought sizes"

    problem: Problem
    budget: Budget
    norms: tuple[int, ...]
    price: float
    rest: float

    def __post_init__(self) -> None:
        limits.require_solvable(self.problem)
        validate.positive("rest", self.rest)
        if self.norms and not self.price > 0 or not self.norms and self.price != 0:
            raise ValueError(f"price must be above 0 where radii are bought, and 0 where none is, got {self.price!r}.")
        for request in self.purchases:
            request.require_drawable()
        super().__post_init__()

    @cached_property
    def purchases(self) -> tuple[Radius | ClassShares, ...]:
        """The requests that come before the choice."""
        if not self.norms:
            return ()
        share = quantile(self.problem.n, self.price)
        radii = [Radius(self.problem, norm, self.price, share) for norm in self.norms]
        return (*radii, ClassShares(self.problem, self.price / 2))

    @property
    def total(self) -> float:
        """Epsilon of everything, rounded up."""
        prices = [request.costs[0].amount for request in self.purchases]
        return up(math.fsum([*prices, self.rest]))

    def spending(self, repetitions: int = 1) -> Budget:
        """Return what so many runs cost together, rounded up."""
        epsilon = up(self.total * repetitions)
        if not self.budget.delta:
            return self.budget.of(Epsilon(epsilon))
        return replace(self.budget, epsilon=epsilon, delta=self.budget.delta * repetitions)

    @property
    def _left(self) -> Budget:
        """What the minimum may cost."""
        if not self.budget.delta:
            return self.budget.of(Epsilon(self.rest))
        return replace(self.budget, epsilon=self.rest)

    def bought(self, answers: Sequence[np.ndarray]) -> Bought:
        """Return published answers to the purchases as what choices go by."""
        if not answers:
            return Bought({})
        radii = (float(answer[0]) for answer in answers[:-1])
        return Bought(dict(zip(self.norms, radii, strict=True)), float(np.min(answers[-1])))

    def chosen(self, bought: Bought) -> WeightedPlan:
        """Return the plan of the minimum: of all that is allowed, that with the smallest predicted error.

        A function of public and bought numbers. What cannot be executed is left out; the declared domain's plan, which
        was tried beforehand, always can.
        """
        found = [plan for choice in self._choices(bought) if (plan := self._planned(choice, bought)) is not None]
        return min(found, key=lambda pair: pair[1])[0]

    def _choices(self, bought: Bought) -> Iterator[Choice]:
        kinds = (Epsilon, Rho) if self.budget.delta else (Epsilon,)
        noises: list[tuple[Mechanism, Weighting | None]] = []
        for kind in kinds:
            noises.append((mechanisms.smallest(self.problem, kind), None))
            noises.append((mechanisms.named(kind.either("l2", "gaussian")), None))
            for norm, radius in bought.radii.items():
                if kind.is_pure or norm == 2:
                    mean = 1 - (1 - quantile(self.problem.n, self.price)) / 4
                    name = "laplace" if norm == 1 else kind.either("l2", "gaussian")
                    noises.append((mechanisms.named(name), Weighting(norm, radius, mean)))
        for (cap, (bias, power)), (noise, weighting) in product(CAPS.items(), noises):
            cost = bias * bought.rareness + (_WEIGHTED if weighting else 0.0)
            yield Choice(cap, noise, weighting, cost, power)

    def _planned(self, choice: Choice, bought: Bought) -> tuple[WeightedPlan, float] | None:
        """Return a plan for this choice with its predicted error; None where there is none."""
        typical = Seen(self.problem, bought.length(self.problem))
        capped = replace(self.problem, loss=self.problem.loss.capped(choice.cap))
        sought = Sought(capped, typical, choice.weighting, choice.power)
        fields: dict[str, Any] = {}
        if choice.weighting is not None:
            fields = {name: getattr(choice.weighting, name) for name in ("norm", "radius", "mean")}
        with suppress(ValueError):
            plan = planned(WeightedPlan, capped, self._left, choice.noise, (1.0,), sought=sought, **fields)
            if plan is not None:
                plan.require_executable(LONG)
                noise = float(sought.noise(choice.noise, plan.ridge)) * plan.scales[0] ** 2
                return plan, float(typical.bias(plan.ridge)) + noise + choice.bias
        return None

    @cached_property
    def guessed(self) -> tuple[WeightedPlan, float]:
        """The plan that is chosen for typical records, and its predicted error."""
        radii = {norm: _GUESSED_RADIUS * self.problem.record_size(norm) for norm in self.norms}
        bought = Bought(radii, _EVEN if radii else None)
        found = [plan for choice in self._choices(bought) if (plan := self._planned(choice, bought)) is not None]
        return min(found, key=lambda pair: pair[1])

    def conversation(self) -> Conversation:
        """Buy, choose, and publish the minimum."""
        answers = []
        for request in self.purchases:
            answers.append((yield request))
        plan = self.chosen(self.bought(answers))
        (minimum,) = plan.minima
        x = yield Certain(minimum.goal, minimum.noise, minimum.tilt, plan)
        return Published(np.array([x]), {"bought": np.concatenate(answers)} if answers else {})

    @property
    def charges(self) -> list[Charge]:
        """What is released, in order."""
        cost = Certified(self.rest) if self.budget.delta else Epsilon(self.rest)
        plan = self.guessed[0]
        last = Charge("minimum of tilted objective", cost, plan.scales[0], f"tilt: {plan.mechanism}; output: l2")
        return [*(request.charge for request in self.purchases), last]

    @property
    def points(self) -> int:
        """One model."""
        return 1

    def worth(self) -> Utility:
        """Return what the model is expected to be worth, if records are as long as they usually are."""
        return Typical(self.problem).utility(self.guessed[1], None)

    def require_executable(self) -> None:
        """Raise unless the solver is certain to meet the tolerance of the plan that can always be chosen."""
        self.guessed[0].require_executable()
