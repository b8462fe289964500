"""The plan of a final model that fits its records: sizes are bought first, and what is minimised is chosen by them.

Noise pays for the longest record that the declared domain allows and for the steepest slope of the loss. Real records
are shorter, and few slopes are steep. For a few percent of epsilon the plan learns how long records are; then it
chooses weights for long records, a cap on slopes, the noise and the ridge, by the error that public and bought numbers
predict. Where slopes are capped each record has a cap of its own, larger for short ones: what noise pays for is the
longest gradient, not the steepest slope.
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
from epsteps.methods.bought import Quantile, Radius, price, quantile
from epsteps.methods.intervals.posterior import Released, Tilts
from epsteps.methods.intervals.table import Intervals
from epsteps.methods.minimum import LONG, Minimised, Minimum
from epsteps.methods.objective import ObjectivePlan, Sought, least_costs, planned
from epsteps.plans import notation
from epsteps.plans.plan import Aim, Charge, Conversation, Example, Plan, Published
from epsteps.plans.utility import RIDGE_STEP, Typical, Utility
from epsteps.problem import limits, validate
from epsteps.problem.problem import Problem, extent_of, restated
from epsteps.problem.rounding import down, up
from epsteps.problem.shapes import BODY
from epsteps.problem.weighting import Weighting

# Caps on slopes that are chosen among; what each is guessed to cost, by fifteen tables; and by how much noise that is
# smaller by the cap costs more than its square, as there is less curvature. Below 1/2 all of the loss is a line near
# the model 0, where a large ridge keeps it.
CAPS = {
    1.0: (0.0, 1.0),
    0.95: (1e-6, 1.0),
    0.9: (1.2e-5, 1.01),
    0.85: (5e-5, 1.02),
    0.8: (2e-4, 1.05),
    0.7: (1e-3, 1.1),
    0.6: (4e-3, 1.25),
    0.5: (0.012, 1.4),
}
# The same for several classes, by four tables: more records are far from their class, of which there are many.
CAPS_OF_CLASSES = {1.0: (0.0, 1.0), 0.85: (2e-4, 1.05), 0.7: (2.5e-3, 1.2), 0.5: (0.025, 1.6)}
# A lower cap, for one output and for several, where each record has its own: records that are short, as near the model
# 0 in most directions, bend the loss there.
_LOW, _LOW_COSTS = 0.35, ((0.03, 2.0), (0.12, 2.0))
# What Gaussian noise of a body costs more than is predicted where there are several classes, by three of these tables:
# it is largest along what all columns share, which bends the loss of real records less than that of typical ones.
_ELLIPSOID = 1.5
# What weights are guessed to cost, and the length of a typical record over the radius that most lie within.
_WEIGHTED, _LENGTH = 1e-4, 0.85
# What a cap costs where each record has its own, over what one for all does: by so much, and more for each share of the
# records that lies beyond the radius; and what it costs to shorten these to it, in squares of that share and of how
# much longer than the radius records may be. By nine tables.
_HELD, _HELD_OUTSIDE, _SHORTENED = 0.25, 1.6, 2e-4
# The share of the records that are assumed to be no longer than those that fill their domain evenly, where no radius is
# bought; and the least that this length is taken for, over the longest: in a cross-polytope real ones lie at its ends.
_BELIEVED, _SHORTEST = 0.6, 0.5
# The radius, over the longest record's length, that is assumed before one is bought.
_GUESSED_RADIUS = 0.7
# A radius below this share of the longest record's length is put there by noise, where all records are longer, with a
# chance of exp(-n price share/2) for each cell: it is wrong with so many times that chance, if records of two tables in
# five are so short, in any of 40 cells. Slopes that are held by a wrong one cost so many times what the model 0 does.
_SHORT, _DOUBT, _WRONG = 0.5, 60.0, 5.0
# What bought radii gain beyond what is predicted for records of that length, which are shorter in some tables: the
# geometric mean of measured over predicted gains on fifteen tables.
_GAINED = 0.8
# Of classes the ridge one step above the one with the least predicted error is taken where it is predicted to cost up
# to so many times as much, and the least is no more than this share of what the model 0 costs: too small a ridge costs
# more than one as much too large. By sixteen tables of two classes and seven of more; on seven of numbers it does not.
_FIRM, _HOPEFUL = 1.1, 0.5


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
        mean, variance = extent_of(self.problem).moments
        square = float(mean @ mean + np.sum(variance)) + self.problem.intercept
        return 1.0 if self.radius is None or square == 0 else min((_LENGTH * self.radius) ** 2 / square, 1.0)


@dataclass(frozen=True, eq=False, repr=False)
class WeightedPlan(ObjectivePlan):
    """Objective perturbation of a sum in which long records count less, as its weighting says."""

    readers: ClassVar = ObjectivePlan.readers | {"weighting": notation.weighting_from_dict}
    writers: ClassVar = ObjectivePlan.writers | {"weighting": notation.weighting_to_dict}

    weighting: Weighting | None = None

    @cached_property
    def objective(self) -> Minimised:
        """What is minimised, but for a tilt."""
        return Minimised(self.problem, self.ridge, self.weighting)

    def released(self, x: np.ndarray, extras: dict[str, np.ndarray], *tilts: Tilts) -> Released:
        """Return what intervals are computed from. No record counts more than 1/mean, and none more than it is curved.

        So slopes vary at most 1/mean times as much as the sum is curved, if the model holds: v² slope² against v s'.
        Shortened margins are nearer to 0 than the model's, and the mean of their slopes' squares is below their s'.
        """
        return replace(super().released(x, extras, *tilts), largest=1 / self.objective.mean)

    @property
    def changes(self) -> list[str]:
        """In what else than the ridge the minimised objective differs from the declared one, in words."""
        if self.weighting is None:
            return super().changes
        return [*super().changes, _long_records(self.weighting)]


def consistent(radii: dict[int, float], problem: Problem) -> dict[int, float]:
    """Return radii of which neither contradicts the other, as norms do not: |u|_2 <= |u|_1 <= √width |u|_2.

    The shorter of two that do was put where no record is, by noise: it is made longer, and no longer than records are.
    """
    if len(radii) < 2:
        return radii
    mended = {1: max(radii[1], radii[2]), 2: max(radii[2], radii[1] / math.sqrt(problem.width))}
    return {norm: min(radius, problem.record_size(norm)) for norm, radius in mended.items()}


def length_by(radii: dict[int, float], problem: Problem) -> float | None:
    """Return the L2 norm that most records lie within; by the L1 norm it is at most √(|u|_1 |u|_inf)."""
    if 2 in radii or not radii:
        return radii.get(2)
    return min(radii[1], math.sqrt(radii[1] * float(problem.units.max())))


@dataclass(frozen=True)
class Alike(Sought):
    """A loss with a cap for each record, which bends as the declared one where most records are."""

    @cached_property
    def bend(self) -> float:
        """How much the loss bends, over that of the one that was declared."""
        return 1.0


class Choice(NamedTuple):
    """Noise, what is minimised, with a cap on slopes and weights or without, and what these are guessed to cost."""

    noise: Mechanism
    sought: Sought
    bias: float

    @property
    def instead_of(self) -> str:
        """Name of the declared loss, where another takes its place because it has no largest slope."""
        declared = self.sought.typical.problem.loss
        return "" if math.isfinite(declared.slope) else type(declared).__name__


class Chosen(NamedTuple):
    """A plan of the minimum, the error that is predicted for it, and the choice that it is a plan for."""

    plan: WeightedPlan
    expected: float
    choice: Choice


def best_of(choices: Sequence[Choice], budget: Budget) -> Chosen | None:
    """Return the plan with the smallest predicted error, of all choices that can be executed; None if none can."""
    best: Chosen | None = None
    least_of_all = least_costs([(each.sought, each.noise) for each in choices], budget)
    bounds = [(least + each.bias, place) for place, (least, each) in enumerate(zip(least_of_all, choices, strict=True))]
    for least, place in sorted(bounds):
        if best is None or least < best.expected:
            best = _planned(choices[place], budget, math.inf if best is None else best.expected) or best
    return best


def _firmer(best: Chosen, budget: Budget) -> Chosen:
    """Return the same plan with the next larger ridge, where that is predicted to cost hardly more.

    What is expected stays: measured, such a plan costs no more, and so a larger budget is never expected to be worse.
    """
    typical = best.choice.sought.typical
    if best.expected > _HOPEFUL * typical.trivial or not hasattr(typical.problem.loss.targets, "classes"):
        return best
    sought = replace(best.choice.sought, firm=RIDGE_STEP * best.plan.ridge)
    found = _planned(best.choice._replace(sought=sought), budget, _FIRM * best.expected)
    return best if found is None else found._replace(expected=best.expected)


def only(choice: Choice, budget: Budget) -> Chosen:
    """Return the plan for one choice, or raise where there is none."""
    found = _planned(choice, budget, math.inf)
    if found is None:
        raise ValueError(f"there is no noise for a minimum with {budget}. Use a larger budget.")
    return found


def _planned(choice: Choice, budget: Budget, limit: float) -> Chosen | None:
    """Return a plan for this choice with its predicted error; None where there is none below the limit."""
    noise, sought, bias = choice
    # No choice is known that cannot be planned (tests look for one); but this runs after the charge.
    with suppress(ValueError):
        fields: dict[str, Any] = {"weighting": sought.weighting, "instead_of": choice.instead_of}
        plan = planned(WeightedPlan, sought, budget, noise, (1.0,), limit=limit - bias, **fields)
        if plan is not None:
            cost = sought.bias(plan.ridge) + plan.scales[0] ** 2 * sought.noise(noise, plan.ridge)
            expected = float(cost) + bias
            if expected < limit:
                plan.require_executable(LONG)
                return Chosen(plan, expected, choice)
    return None


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
        if len(set(self.norms)) < len(self.norms):
            raise ValueError(f"radii are of different norms, got {self.norms}.")
        self._require_priced()
        for request in self.purchases:
            request.require_drawable()
        self._declared  # noqa: B018 - it raises where nothing can be released
        super().__post_init__()

    def _require_priced(self) -> None:
        """Raise unless what is bought has a price, and nothing else has one."""
        if bool(self.norms) is not (self.price > 0):
            raise ValueError(f"radii have a price each, got {self.norms} at {self.price!r}.")

    @property
    def purchases(self) -> tuple[Quantile, ...]:
        """The quantiles that are bought before the choice."""
        return self._radii

    @cached_property
    def _radii(self) -> tuple[Radius, ...]:
        if not self.norms:
            return ()
        share = quantile(self.problem.n, self.price)
        return tuple(Radius(self.problem, norm, self.price, share) for norm in self.norms)

    def spending(self, repetitions: int = 1) -> Budget:
        """Return what so many runs cost together, rounded up."""
        return self._within(up(math.fsum([*self.prices, self.rest]) * repetitions), repetitions)

    @property
    def prices(self) -> list[float]:
        """What is paid before the minimum is chosen, in epsilon."""
        return [request.costs[0].amount for request in self.purchases]

    def _within(self, epsilon: float, repetitions: int = 1) -> Budget:
        """Return a budget of the same kind, of so much epsilon; with the delta of so many runs, if there is one."""
        if not self.budget.delta:
            return self.budget.of(Epsilon(epsilon))
        return type(self.budget)(epsilon, self.budget.delta * repetitions)  # pyright: ignore[reportCallIssue]

    def chosen(self, radii: Sequence[float]) -> Chosen:
        """Return the plan of the minimum with the smallest predicted error, of all that can be executed.

        It is a function of public numbers and of the radii that were bought, one for each norm. The plan for records
        that fill their domain, without a cap, was made beforehand: there is always one. Of classes its ridge may be a
        step larger.
        """
        bought = consistent(dict(zip(self.norms, radii, strict=True)), self.problem)
        return _firmer(best_of(list(self._choices(bought)), self._left) or self._declared, self._left)

    @cached_property
    def _declared(self) -> Chosen:
        """The plan for records of which nothing is known but their domain."""
        return only(next(self._choices({})), self._left)

    def _choices(self, radii: dict[int, float]) -> Iterator[Choice]:
        typical = Seen(self.problem, length_by(radii, self.problem))
        noises = self._noises(radii, self._left)
        several = self.problem.loss.outputs > 1
        can_hold = self.problem.loss.uncapped == self.problem.loss  # a declared cap is every record's
        caps = (CAPS_OF_CLASSES if several else CAPS) | {_LOW: _LOW_COSTS[several]}
        for (cap, (bias, power)), (noise, weighting) in product(caps.items(), noises):
            if several and noise.norm == BODY and not noise.kind.is_pure:
                power = power * _ELLIPSOID
            sought = Alike(self.problem, typical, weighting=weighting, power=power)
            if cap < 1 and can_hold and (weighting is not None or noise.norm == 2):
                yield from self._held(cap, Choice(noise, sought, bias))
            elif cap != _LOW and (loss := self.problem.loss.capped(cap)) is not None:
                sought = Sought(restated(self.problem, loss=loss), typical, weighting=weighting, power=power)
                yield Choice(noise, sought, bias + (_WEIGHTED if weighting else 0.0))

    def _held(self, cap: float, capped: Choice) -> Iterator[Choice]:
        """Yield choices that hold the slopes of records as long as a radius at a cap, and those of shorter ones less.

        They take the place of the same cap for all, with weights or without. Records are shortened to the radius or, at
        the price of a Jacobian twice as large, to twice as much. Where no radius was bought, usual records are assumed
        to lie within one, and none is shortened.
        """
        noise, sought, bias = capped
        if sought.weighting is None:
            norm, longest = 2, self.problem.record_size(2)
            within, outside, offers = max(self._usual_length, _SHORTEST * longest), 1 - _BELIEVED, [(longest, 0.0)]
        else:
            norm, within = sought.weighting.norm, sought.weighting.radius
            outside, longest = 1 - quantile(self.problem.n, self.price), self.problem.record_size(norm)
            offers = [(within, _SHORTENED * (outside * longest / within) ** 2)]
            offers += [(min(2 * within, longest), 0.0)] if within < longest else []
        doubt = self._doubt * sought.typical.trivial if within < _SHORT * self.problem.record_size(norm) else 0.0
        for radius, shortened in offers:
            loss = self.problem.loss.capped(cap * min(within / radius, 1.0))
            if loss is not None:
                held = Weighting(norm, radius, held=True)
                choice = replace(sought, problem=restated(self.problem, loss=loss), weighting=held)
                yield Choice(noise, choice, (_HELD + _HELD_OUTSIDE * outside) * bias + shortened + doubt)

    @property
    def _doubt(self) -> float:
        """What a short radius is expected to cost because noise may have put it there, over what the model 0 costs."""
        if not self.norms:
            return 0.0
        share = quantile(self.problem.n, self.price)
        return _WRONG * min(_DOUBT * math.exp(-self.problem.n * self.price * share / 2), 1.0)

    @property
    def _usual_length(self) -> float:
        """The length of records that fill their domain evenly."""
        mean, variance = extent_of(self.problem).moments
        return math.sqrt(float(mean @ mean + np.sum(variance)) + self.problem.intercept)

    def _noises(self, radii: dict[int, float], budget: Budget) -> list[tuple[Mechanism, Weighting | None]]:
        """Return what noise may be chosen among, each with the weights that it is for."""
        noises: list[tuple[Mechanism, Weighting | None]] = []
        for kind in (Epsilon, Rho) if budget.delta else (Epsilon,):
            ball = mechanisms.for_tilts(kind.either("l2", "gaussian"), self.problem)
            noises += [(self._smallest[kind], None), (ball, None)]
            for norm, radius in radii.items():
                if norm == 2 or kind.is_pure:
                    mean = 1 - (1 - quantile(self.problem.n, self.price)) / 4
                    noise = ball if norm == 2 else mechanisms.for_tilts("laplace", self.problem)
                    noises.append((noise, Weighting(norm, radius, mean)))
        return noises

    @cached_property
    def _smallest(self) -> dict[type[Cost], Mechanism]:
        """The noise of either currency whose public trace is smallest for records that fill their domain."""
        kinds = (Epsilon, Rho) if self.budget.delta else (Epsilon,)
        return {kind: mechanisms.smallest(self.problem, kind, tilts=True) for kind in kinds}

    @cached_property
    def _left(self) -> Budget:
        """What the minimum may cost."""
        return self._within(self.rest)

    @cached_property
    def guessed(self) -> Chosen:
        """What is chosen for records of a usual length."""
        return self.chosen(self._usual_radii)

    @property
    def _usual_radii(self) -> list[float]:
        return [_GUESSED_RADIUS * self.problem.record_size(norm) for norm in self.norms]

    def conversation(self) -> Conversation:
        """Buy, choose, and publish the minimum, and what was bought besides."""
        answers = []
        for request in self.purchases:
            answers.append((yield request))
        radii = np.concatenate([np.zeros(0), *answers])
        x = yield self._certified(self.chosen(radii.tolist()).plan)
        return Published(np.array([x]), {"radii": radii} if answers else {})

    @staticmethod
    def _certified(plan: WeightedPlan) -> CertifiedMinimum:
        (minimum,) = plan.minima
        return CertifiedMinimum(minimum.goal, minimum.noise, minimum.tilt, plan)

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
        return self._chosen_by(extras).plan

    def _chosen_by(self, extras: Mapping[str, np.ndarray]) -> Chosen:
        return self.chosen(extras.get("radii", np.zeros(0)).tolist())

    def choices(self, extras: Mapping[str, np.ndarray]) -> dict[str, str]:
        """Return what was chosen in a run that published this: its noise, ridge, weights and slopes, in words."""
        plan = self.decided(dict(extras))
        weighting, slope = plan.weighting, plan.problem.loss.slope
        weights, slopes = "every record counts the same", "not capped"
        if slope < self.problem.loss.slope:
            slopes = f"held below {slope:.3g}"
        if weighting is not None:
            place = f"{weighting.radius:.3g} in the L{weighting.norm} norm"
            if weighting.held:
                slopes += f" for records as long as {place}, and less for shorter ones; longer ones are shortened"
            else:
                weights = f"records count less beyond {place}"
        return {
            "Bought": "; ".join(self._bought(extras)) or "nothing",
            "Noise": f"{plan.mechanism}, on the objective, of scale {plan.scales[0]:.3g}",
            "Ridge": f"{plan.ridge:.3g}, where {self.problem.ridge:.3g} was asked for",
            "Weights": weights,
            "Slopes": slopes,
        }

    def _bought(self, extras: Mapping[str, np.ndarray]) -> list[str]:
        """Return what was bought in a run that published this, in words."""
        radii = zip(self.norms, extras.get("radii", ()), strict=True)
        said = ", ".join(f"{radius:.3g} in the L{norm} norm" for norm, radius in radii)
        return [f"a radius that most records lie within: {said}"] if said else []

    def intervals(
        self,
        path: np.ndarray,
        extras: dict[str, np.ndarray],
        draw: Callable[..., np.ndarray],
        generator: Generator,
        **asked: Any,
    ) -> Intervals:
        """Return intervals for the minimum of the objective that was chosen: see ``Run.intervals``.

        It has the cap and the weights that were chosen, and the result says so. Slopes that are capped are those of no
        likelihood, so that there is nothing then to say how samples vary: intervals are for the sample's minimum.
        """
        plan = self.decided(extras)
        capped = plan.problem.loss.slope < self.problem.loss.slope
        changes = [*([f"slopes up to {plan.problem.loss.slope:.3g}"] if capped else []), *plan.changes]
        return plan.intervals(path, {}, draw, generator, changes=changes, **asked)

    def aim(self, extras: dict[str, np.ndarray]) -> Aim:
        """Return the objective that was chosen."""
        return self.decided(extras).aim({})

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
        bought = f"{self.bought}, for epsilon {math.fsum(self.prices):.3g} in all"
        return {
            "Problem": notation.problem_fact(self.problem, self.problem.ridge),
            "Bought": bought if self.prices else "nothing: noise would drown it at this n and budget",
            "Chosen": "weights for long records, a cap on slopes, noise and ridge, by the error that public and bought "
            f"numbers predict; for records of a usual length {_described(self.guessed.plan, self.problem.loss.slope)}",
            "Published": "what is bought, and the minimum, once; the solver's iterates and its time stay private",
        }

    @property
    def bought(self) -> str:
        """What is bought, in words."""
        return f"a radius that most records lie within ({' and '.join(f'L{norm}' for norm in self.norms)} norm)"

    def worth(self) -> Utility:
        """Return what the model is expected to be worth: as for records of a usual length, or better."""
        return Typical(self.problem).utility(self.guessed.expected * self.gained, None)

    def utility_after(self, path: np.ndarray, extras: Mapping[str, np.ndarray]) -> Utility:
        """Return what the model of a run that published this is expected to be worth: by what was bought, too."""
        plan, _, choice = self._chosen_by(extras)
        parts = choice.sought.parts(plan)
        found = replace(self.utility, trivial=choice.sought.typical.trivial)
        return found.after(parts._replace(other=parts.other + choice.bias), path[-1], self.problem.loss.outputs)

    @property
    def gained(self) -> float:
        """What is expected over what is predicted for records of a usual length."""
        return _GAINED if self.norms else 1.0

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
        parts.append(_long_records(plan.weighting))
    return ", ".join(parts)


def _long_records(weighting: Weighting) -> str:
    """Return what a weighting does to long records, in words."""
    place = f"the L{weighting.norm} norm {weighting.radius:.3g}"
    if weighting.held:
        return f"slopes of records shorter than {place} held less, longer ones shortened"
    return f"less weight for records beyond {place}"


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
    norms, each = affordable(problem.n, capacity, ((1, 2), (2,) if budget.delta else (1,)) if both else ((2,),))
    rest = down(capacity - up(each * len(norms)), 1e-9)
    return AdaptivePlan(problem, budget, norms, each, rest)


def affordable(n: int, epsilon: float, offers: Sequence[tuple[int, ...]]) -> tuple[tuple[int, ...], float]:
    """Return the first offer of norms whose radii are worth their price, and that; none where none is."""
    for norms in offers:
        if each := price(n, epsilon, len(norms)):
            return norms, each
    return (), 0.0
