"""The plan of a final model that fits its records: sizes are bought first, and what is minimised is chosen by them.

Noise pays for the longest record that the declared domain allows and for the steepest slope of the loss. Real records
are shorter, and few slopes are steep. For a few percent of epsilon the plan learns how long records are; then it
chooses weights for long records, a cap on slopes, the noise and the ridge, by the error that public and bought numbers
predict.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.random import Generator

from epsteps.budgets import Budget, Cost, Epsilon, Rho, mechanisms
from epsteps.budgets.costs import Certified
from epsteps.budgets.mechanisms import Mechanism
from epsteps.methods.bought import Radius, price, quantile
from epsteps.methods.intervals.table import Intervals
from epsteps.methods.minimum import LONG, Minimised, Minimum
from epsteps.methods.objective import ObjectivePlan, Sought, planned
from epsteps.plans import notation
from epsteps.plans.plan import Charge, Conversation, Example, Plan, Published
from epsteps.plans.utility import Typical, Utility
from epsteps.problem import limits, validate
from epsteps.problem.problem import Problem
from epsteps.problem.rounding import down, up
from epsteps.problem.shapes import BODY
from epsteps.problem.weighting import Weighting

# Caps on slopes that are chosen among; what each is guessed to cost, by fifteen tables; and by how much noise that is
# smaller by the cap costs more than its square, as there is less curvature. Below 1/2 all of the loss is a line near
# the model 0, where a large ridge keeps it.
CAPS = {1.0: (0.0, 1.0), 0.85: (4e-5, 1.02), 0.7: (8e-4, 1.1), 0.5: (0.01, 1.4)}
# The same for several classes, by four tables: more records are far from their class, of which there are many.
CAPS_OF_CLASSES = {1.0: (0.0, 1.0), 0.85: (2e-4, 1.05), 0.7: (2.5e-3, 1.2), 0.5: (0.025, 1.6)}
# What Gaussian noise of a body costs more than is predicted where there are several classes, by three of these tables:
# it is largest along what all columns share, which bends the loss of real records less than that of typical ones.
_ELLIPSOID = 1.5
# What weights are guessed to cost, and the length of a typical record over the radius that most lie within.
_WEIGHTED, _LENGTH = 1e-4, 0.85
# The radius, over the longest record's length, that is assumed before one is bought.
_GUESSED_RADIUS = 0.7
# What bought radii gain beyond what is predicted for records of that length, which are shorter in some tables: the
# geometric mean of measured over predicted gains on fifteen tables.
_GAINED = 0.8


@dataclass(frozen=True)
class Seen(Typical):
    """A typical problem of which the length that most records lie within is known."""

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
    """Objective perturbation of a sum in which long records count less, as its weighting says."""

    readers: ClassVar = {"weighting": notation.weighting_from_dict}
    writers: ClassVar = {"weighting": notation.weighting_to_dict}

    weighting: Weighting | None = None

    @cached_property
    def objective(self) -> Minimised:
        """What is minimised, but for a tilt."""
        return Minimised(self.problem, self.ridge, self.weighting)


def _length(radii: dict[int, float], problem: Problem) -> float | None:
    """Return the L2 norm that most records lie within; by the L1 norm it is at most √(|u|_1 |u|_inf)."""
    if 2 in radii or not radii:
        return radii.get(2)
    return min(radii[1], math.sqrt(radii[1] * float(problem.units.max())))


class Choice(NamedTuple):
    """Noise, what is minimised, with a cap on slopes and weights or without, and what these are guessed to cost."""

    noise: Mechanism
    sought: Sought
    bias: float


class Chosen(NamedTuple):
    """A plan of the minimum, and the error that is predicted for it."""

    plan: WeightedPlan
    expected: float


@dataclass(frozen=True, eq=False)
class CertifiedMinimum(Minimum):
    """A minimum that costs what its plan as a whole is certified for, whatever was bought before it."""

    plan: WeightedPlan = None  # pyright: ignore[reportAssignmentType]

    @cached_property
    def costs(self) -> tuple[Cost, ...]:
        """What the plan spends, computed from its scales: epsilon, at the delta of its budget if that has one."""
        plan = self.plan
        return (Certified(plan.spent) if plan.budget.delta else Epsilon(up(math.fsum(plan.costs))),)

    @property
    def noise_costs(self) -> tuple[Cost, ...]:
        """What the tilt and the noise on the output cost."""
        return self.plan.minima[0].costs


@dataclass(frozen=True, eq=False, repr=False)
class AdaptivePlan(Plan):
    """Objective perturbation, decided but for what bought numbers decide: radii of the records first, then a model.

    Formal guarantee: each purchase is epsilon-private at its price (``methods.bought``). Every choice that follows is a
    function of public numbers and of what was bought; whatever it is, the minimum is released by a plan that is
    certified for ``rest``: (rest, delta) where there is a delta. As prices and ``rest`` are fixed beforehand, all
    together are private for the sum of the epsilons, and delta. A purchase is a release like any other: it stays spent
    where a fit is interrupted.

    Parameters
    ----------
    problem, budget
        The public facts, and what may be spent.
    norms : tuple of int
        The norms, 1 or 2, of which a radius is bought; none where noise would drown it.
    price : float
        Epsilon of each radius; 0 where none is bought.
    rest : float
        Epsilon of the minimum.
    """

    reads = (Minimum, Radius)
    method = "adaptive objective perturbation"

    problem: Problem
    budget: Budget
    norms: tuple[int, ...]
    price: float
    rest: float

    def __post_init__(self) -> None:
        limits.require_solvable(self.problem)
        validate.positive("rest", self.rest)
        if len(set(self.norms)) < len(self.norms) or bool(self.norms) is not (self.price > 0):
            raise ValueError(f"radii are of different norms, each at a price, got {self.norms} at {self.price!r}.")
        for request in self.purchases:
            request.require_drawable()
        self._declared  # noqa: B018 - it raises where nothing can be released
        super().__post_init__()

    @cached_property
    def purchases(self) -> tuple[Radius, ...]:
        """The requests that come before the choice."""
        if not self.norms:
            return ()
        share = quantile(self.problem.n, self.price)
        return tuple(Radius(self.problem, norm, self.price, share) for norm in self.norms)

    def spending(self, repetitions: int = 1) -> Budget:
        """Return what so many runs cost together, rounded up."""
        prices = [request.costs[0].amount for request in self.purchases]
        return self._within(up(math.fsum([*prices, self.rest]) * repetitions), repetitions)

    def _within(self, epsilon: float, repetitions: int = 1) -> Budget:
        """Return a budget of the same kind, of so much epsilon; with the delta of so many runs, if there is one."""
        if not self.budget.delta:
            return self.budget.of(Epsilon(epsilon))
        return type(self.budget)(epsilon, self.budget.delta * repetitions)  # pyright: ignore[reportCallIssue]

    def chosen(self, radii: Sequence[float]) -> Chosen:
        """Return the plan of the minimum with the smallest predicted error, of all that can be executed.

        It is a function of public numbers and of the radii that were bought, one for each norm. The plan for records
        that fill their domain, without a cap, was made beforehand: there is always one.
        """
        best: Chosen | None = None
        bought = dict(zip(self.norms, radii, strict=True))
        for least, _, choice in sorted(self._offers(bought), key=lambda offer: offer[:2]):
            if best is None or least < best.expected:
                best = self._planned(choice, math.inf if best is None else best.expected) or best
        return best or self._declared

    @cached_property
    def _declared(self) -> Chosen:
        """The plan for records of which nothing is known but their domain."""
        found = self._planned(self._choices({})[0], math.inf)
        if found is None:
            raise ValueError(f"there is no noise for a minimum with {self.budget}. Use a larger budget.")
        return found

    def _offers(self, radii: dict[int, float]) -> Iterator[tuple[float, int, Choice]]:
        """Yield every choice, with a lower bound on what it is predicted to cost."""
        for place, choice in enumerate(self._choices(radii)):
            yield choice.sought.least_cost(choice.noise, self._left) + choice.bias, place, choice

    def _choices(self, radii: dict[int, float]) -> list[Choice]:
        noises: list[tuple[Mechanism, Weighting | None]] = []
        for kind in (Epsilon, Rho) if self.budget.delta else (Epsilon,):
            ball = mechanisms.for_tilts(kind.either("l2", "gaussian"), self.problem)
            noises += [(mechanisms.smallest(self.problem, kind, tilts=True), None), (ball, None)]
            for norm, radius in radii.items():
                if norm == 2 or kind.is_pure:
                    mean = 1 - (1 - quantile(self.problem.n, self.price)) / 4
                    noise = ball if norm == 2 else mechanisms.for_tilts("laplace", self.problem)
                    noises.append((noise, Weighting(norm, radius, mean)))
        typical, choices = Seen(self.problem, _length(radii, self.problem)), []
        caps = CAPS if self.problem.loss.outputs == 1 else CAPS_OF_CLASSES
        for (cap, (bias, power)), (noise, weighting) in product(caps.items(), noises):
            if self.problem.loss.outputs > 1 and noise.norm == BODY and not noise.kind.is_pure:
                power = power * _ELLIPSOID
            if (loss := self.problem.loss.capped(cap)) is not None:
                sought = Sought(replace(self.problem, loss=loss), typical, weighting=weighting, power=power)
                choices.append(Choice(noise, sought, bias + (_WEIGHTED if weighting else 0.0)))
        return choices

    def _planned(self, choice: Choice, limit: float) -> Chosen | None:
        """Return a plan for this choice with its predicted error; None where there is none below the limit."""
        noise, sought, bias = choice
        # No choice is known that cannot be planned (tests look for one); but this runs after the charge.
        with suppress(ValueError):
            weights: dict[str, Any] = {"weighting": sought.weighting}
            plan = planned(WeightedPlan, sought, self._left, noise, (1.0,), limit=limit - bias, **weights)
            if plan is not None:
                cost = sought.bias(plan.ridge) + plan.scales[0] ** 2 * sought.noise(noise, plan.ridge)
                expected = float(cost) + bias
                if expected < limit:
                    plan.require_executable(LONG)
                    return Chosen(plan, expected)
        return None

    @cached_property
    def _left(self) -> Budget:
        """What the minimum may cost."""
        return self._within(self.rest)

    @cached_property
    def guessed(self) -> Chosen:
        """What is chosen for records of a usual length."""
        return self.chosen([_GUESSED_RADIUS * self.problem.record_size(norm) for norm in self.norms])

    def conversation(self) -> Conversation:
        """Buy, choose, and publish the minimum, and what was bought besides."""
        answers = []
        for request in self.purchases:
            answers.append((yield request))
        radii = np.concatenate([np.zeros(0), *answers])
        plan = self.chosen(radii.tolist()).plan
        (minimum,) = plan.minima
        x = yield CertifiedMinimum(minimum.goal, minimum.noise, minimum.tilt, plan)
        return Published(np.array([x]), {"radii": radii} if answers else {})

    @property
    def charges(self) -> list[Charge]:
        """What is released, in order; the noise of the last is that for records of a usual length."""
        plan = self.guessed.plan
        cost = Certified(self.rest) if self.budget.delta else Epsilon(self.rest)
        noise = f"tilt: {plan.mechanism}, or what is chosen; output: l2"
        minimum = Charge("minimum of tilted objective", cost, plan.scales[0], noise)
        return [*(request.charge for request in self.purchases), minimum]

    @property
    def ridge(self) -> float:
        """The ridge that is chosen for records of a usual length."""
        return self.guessed.plan.ridge

    @property
    def mechanism(self) -> str:
        """The name of the noise that is chosen for records of a usual length."""
        return self.guessed.plan.mechanism

    @property
    def points(self) -> int:
        """One model."""
        return 1

    @property
    def besides(self) -> dict[str, tuple[int, ...]]:
        """The shape of what is bought."""
        return {"radii": (len(self.norms),)} if self.norms else {}

    def decided(self, extras: dict[str, np.ndarray]) -> WeightedPlan:
        """Return the plan of the minimum that was chosen in a run that published this."""
        return self.chosen(extras.get("radii", np.zeros(0)).tolist()).plan

    def choices(self, extras: Mapping[str, np.ndarray]) -> dict[str, str]:
        """Return what was chosen in a run that published this: its noise, ridge, weights and slopes, in words."""
        plan, loss = self.decided(dict(extras)), self.problem.loss
        radii = zip(self.norms, extras.get("radii", ()), strict=True)
        bought = ", ".join(f"{radius:.3g} in the L{norm} norm" for norm, radius in radii)
        weighting, share = plan.weighting, plan.problem.loss.slope / loss.slope
        longer = "" if weighting is None else f"beyond {weighting.radius:.3g} in the L{weighting.norm} norm"
        return {
            "Bought": f"a radius that most records lie within: {bought}" if bought else "nothing",
            "Noise": f"{plan.mechanism}, on the objective, of scale {plan.scales[0]:.3g}",
            "Ridge": f"{plan.ridge:.3g}, where {self.problem.ridge:.3g} was asked for",
            "Weights": f"records count less {longer}" if longer else "every record counts the same",
            "Slopes": f"capped at {share:.3g} of the largest" if share < 1 else "not capped",
        }

    def intervals(
        self,
        x: np.ndarray,
        extras: dict[str, np.ndarray],
        draw: Callable[..., np.ndarray],
        generator: Generator,
        **asked: Any,
    ) -> Intervals:
        """Return intervals for the minimum of the objective that was chosen: see ``Run.intervals``."""
        return self.decided(extras).intervals(x, {}, draw, generator, **asked)

    def examples(self) -> list[Example]:
        """Return the requests of a run on records of a usual length."""
        bought = [Example(request, request.charge.cost) for request in self.purchases]
        (minimum,) = self.guessed.plan.minima
        return [*bought, Example(minimum, minimum.costs[0])]

    @property
    def of_the_minimum(self) -> WeightedPlan:
        """The plan of the minimum for records of a usual length, for audits."""
        return self.guessed.plan

    @property
    def facts(self) -> dict[str, str]:
        """Lines of the plan's page."""
        prices = math.fsum(request.costs[0].amount for request in self.purchases)
        named = " and ".join(f"L{norm}" for norm in self.norms)
        bought = f"a radius that most records lie within ({named} norm), for epsilon {prices:.3g} in all"
        return {
            "Problem": notation.problem_fact(self.problem, self.problem.ridge),
            "Bought": bought if self.norms else "nothing: noise would drown it at this n and budget",
            "Chosen": "weights for long records, a cap on slopes, noise and ridge, by the error that public and bought "
            f"numbers predict; for records of a usual length {_described(self.guessed.plan, self.problem.loss.slope)}",
            "Published": "what is bought, and the minimum, once; the solver's iterates and its time stay private",
        }

    def worth(self) -> Utility:
        """Return what the model is expected to be worth: as for records of a usual length, or better."""
        return Typical(self.problem).utility(self.guessed.expected * (_GAINED if self.norms else 1.0), None)

    def require_executable(self) -> None:
        """Raise unless the solver is certain to meet its tolerance on this machine, whatever is chosen."""
        if float(np.finfo(np.longdouble).eps) > LONG:
            raise ValueError(
                "what an adaptive plan chooses is made for long doubles of 64 bits, which this machine has not. Use "
                "method='objective'."
            )
        self._declared.plan.require_executable()


def _described(plan: WeightedPlan, slope: float) -> str:
    """Return what a plan minimises in the place of a loss with this largest slope, in words."""
    parts = [f"{plan.mechanism} noise", f"a ridge of {plan.ridge:.3g}"]
    if plan.problem.loss.slope < slope:
        parts.append(f"slopes up to {plan.problem.loss.slope:g}")
    if plan.weighting is not None:
        parts.append(f"less weight beyond the L{plan.weighting.norm} norm {plan.weighting.radius:.3g}")
    return ", ".join(parts)


def plan_adaptive(problem: Problem, budget: Budget) -> AdaptivePlan:
    """Plan a final model whose noise and objective are chosen by bought sizes of the records.

    >>> import epsteps as es
    >>> problem = es.Problem(es.Logistic(), es.Box(0, 1), ridge=0.001, n=50_000, d=20)
    >>> plan = plan_adaptive(problem, es.Pure(1.0))
    >>> plan.norms, round(plan.price, 4), round(plan.rest, 4)
    ((1, 2), 0.005, 0.99)
    """
    limits.require_solvable(problem)
    capacity = budget.amount if budget.delta else budget.capacity(Epsilon)
    both = not budget.delta or problem.loss.outputs > 1
    norms, each = _affordable(problem.n, capacity, ((1, 2), (2,) if budget.delta else (1,)) if both else ((2,),))
    rest = down(capacity - up(each * len(norms)), 1e-9)
    return AdaptivePlan(problem, budget, norms, each, rest)


def _affordable(n: int, epsilon: float, offers: Sequence[tuple[int, ...]]) -> tuple[tuple[int, ...], float]:
    """Return the first offer of norms whose radii are worth their price, and that; none where none is."""
    for norms in offers:
        if each := price(n, epsilon, len(norms)):
            return norms, each
    return (), 0.0
