"""The adaptive plan of squared loss: sizes of targets and residuals are bought, and what is minimised goes by them.

In the place of squared loss, whose slope has no bound, pseudo-Huber loss is minimised, which turns from squared to
absolute around residuals of a size c, its largest slope. Noise grows with c, and what is lost by the other loss falls
with it: both go by c over the size of the residuals, which may be far below the declared range of the targets. So the
size of the targets is bought, a first model for a few percent of epsilon, and the size of the residuals around it;
where a first model would be noise, the size of the targets has to do. Where the size of residuals is known, the loss
may turn sharply, and c be little above them.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import NamedTuple, cast

import numpy as np
from scipy.special import ndtri

from epsteps.budgets import Budget, Epsilon, Pure
from epsteps.methods.adaptive import (
    AdaptivePlan,
    Choice,
    Chosen,
    Seen,
    WeightedPlan,
    affordable,
    best_of,
    consistent,
    length_by,
    only,
)
from epsteps.methods.bought import Cover, Quantile, Radius, Spread, quantile
from epsteps.methods.minimum import Minimum
from epsteps.methods.objective import HELD_SHARES, Sought, is_expected
from epsteps.plans.plan import Charge, Conversation, Example, Published
from epsteps.plans.utility import Typical, held_bias
from epsteps.problem import limits
from epsteps.problem.losses import POWERS, TYPICAL_RESIDUAL, PseudoHuber, Squared
from epsteps.problem.problem import Problem, restated
from epsteps.problem.rounding import down, up

# A first model costs the first of these shares of epsilon at which its error is expected to be at most the second share
# of the model 0's, and is not bought where none is: residuals around a worse one say more of its noise than of the
# records. Without them, slopes may be held too low by far (30 times the error on one of seven tables).
_FIRST = ((0.04, 0.02), (0.1, 0.07))
# What a size is worth, in n epsilon, at least and at most this share of epsilon. None is believed that is worth less
# than the last of these.
_WORTH, _LEAST, _MOST, _ENOUGH = 533.0, 0.0025, 0.05, 60.0
# A size that is worth so much is held from both sides: so many scales of its noise from the top, and at most at this
# share. For one that is worth less there is a choice with half the noise, that covers this share or hardly less. Normal
# residuals would be as large at any share; of real ones the farthest say what is lost where slopes are held.
_HELD, _MARGIN, _HIGHEST, _COVERED = 400.0, 16.0, 0.97, 0.98
# The middle of a cell, over its end.
_MIDDLE = 2.0**-0.125
# Residuals over the half of the range that targets fill, where these alone are known: the median of seven tables.
_UNEXPLAINED = 0.36
# What noise costs over what the typical problem has it, where something is known of the targets: 0.2 to 0.9 on four
# tables. Where nothing is, what slopes that are held cost is as uncertain, and both were fitted together.
_POWER = 0.7
# What weights are guessed to cost, in squares of a residual and of the share of the records that count less.
_WEIGHTED_RESIDUAL = 1.2e-3
# What bought residuals gain beyond what is predicted for usual ones: measured over predicted on seven tables.
_GAINED_RESIDUALS = 0.7


class Known(NamedTuple):
    """What was bought: radii by their norms, and the half of the range that targets fill, and residuals' deviation."""

    radii: dict[int, float]
    targets: float | None = None
    residuals: float | None = None


@dataclass(frozen=True)
class Held(Sought):
    """A loss whose slopes are held, for residuals of a known size: it bends as for targets of this bound."""

    bound: float = 1.0

    @cached_property
    def bend(self) -> float:
        """How much the loss bends where residuals are of this size."""
        return replace(cast(PseudoHuber, self.problem.loss), bound=self.bound).typical_curvature


@dataclass(frozen=True, eq=False, repr=False)
class RegressionPlan(AdaptivePlan):
    """The adaptive plan of squared loss: radii, the size of the targets, a first model and the size of its residuals.

    Formal guarantee: that of ``AdaptivePlan``. The first model is a tilted minimum of pure noise, certified for
    ``first`` whatever was bought before it, and the residuals are measured at the point that was published.

    Parameters
    ----------
    problem, budget, norms, price, rest
        As for ``AdaptivePlan``.
    sizes : 0, 1 or 2
        How many sizes are bought: none, that of the targets, or that of the residuals too.
    size_price : float
        Epsilon of each size; 0 where none is bought.
    first : float
        Epsilon of the first model; 0 where none is bought.
    """

    reads = (Minimum, Radius, Spread, Cover)

    sizes: int = 0
    size_price: float = 0.0
    first: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sizes == 2:
            self._first_declared  # noqa: B018 - it raises where nothing can be released

    def _require_priced(self) -> None:
        """Raise unless what is bought has a price, and nothing else has one."""
        if self.sizes not in (0, 1, 2) or (self.sizes == 2) is not (self.first > 0):
            raise ValueError(f"a first model is bought with two sizes, got {self.sizes!r} with {self.first!r}.")
        if bool(self.sizes) is not (self.size_price > 0):
            raise ValueError(f"sizes have a price each, got {self.sizes} at {self.size_price!r}.")
        super()._require_priced()

    @cached_property
    def _kind(self) -> type[Spread]:
        """How sizes are chosen, by what they are worth."""
        return Spread if self.problem.n * self.size_price >= _HELD else Cover

    @cached_property
    def _share(self) -> float:
        """The share of the residuals that a size should hold."""
        held = min(1 - _MARGIN / (self.problem.n * self.size_price), _HIGHEST)
        return held if self._kind is Spread else _COVERED

    def _spread(self, x: np.ndarray) -> Spread:
        return self._kind(self.problem, x, self.size_price, self._share)

    @property
    def purchases(self) -> tuple[Quantile, ...]:
        """The quantiles that are bought, the residuals' as at the point 0."""
        return (*self._radii, *(self._spread(np.zeros(self.problem.dimension)) for _ in range(self.sizes)))

    @property
    def prices(self) -> list[float]:
        """What is paid before the minimum is chosen, in epsilon."""
        return [*super().prices, *([self.first] if self.first else [])]

    def chosen(self, radii: Sequence[float], sizes: Sequence[float] = ()) -> Chosen:
        """Return the plan of the minimum with the smallest predicted error, by the radii and sizes that were bought."""
        return best_of(list(self._offers(self._known(radii, sizes), self._left)), self._left) or self._declared

    @cached_property
    def guessed(self) -> Chosen:
        """What is chosen for records of a usual length, and residuals of a usual size, where these are bought."""
        known = self._known(self._usual_radii, ())
        if self.first:
            known = known._replace(targets=self._bound, residuals=TYPICAL_RESIDUAL * self._bound)
        return best_of(list(self._offers(known, self._left)), self._left) or self._declared

    def _known(self, radii: Sequence[float], sizes: Sequence[float]) -> Known:
        """Return what bought numbers say: targets fill a range evenly, and residuals are normal."""
        found = Known(consistent(dict(zip(self.norms, radii, strict=True)), self.problem))
        if len(sizes) > 0:
            found = found._replace(targets=min(_MIDDLE * sizes[0] / self._share, self._bound))
        if len(sizes) > 1:
            measured = (_MIDDLE * sizes[1] / float(ndtri((1 + self._share) / 2))) ** 2
            error = 2 * self._first(radii, sizes[:1]).expected  # what the first model's own errors add to the square
            found = found._replace(residuals=math.sqrt(max(measured - error, measured / 2)))
        return found

    @property
    def _bound(self) -> float:
        return self.problem.loss.targets.largest

    @cached_property
    def _declared(self) -> Chosen:
        """The plan for records of which nothing is known but their domain."""
        return only(next(self._offers(Known({}), self._left)), self._left)

    @cached_property
    def _first_declared(self) -> Chosen:
        return only(next(self._offers(Known({}), self._left_first)), self._left_first)

    @cached_property
    def _left_first(self) -> Budget:
        """What the first model may cost: pure noise, whatever the budget."""
        return Pure(self.first)

    def _first(self, radii: Sequence[float], sizes: Sequence[float]) -> Chosen:
        """Return the plan of the first model, by what was bought before it."""
        bought = (*radii, *sizes)
        found = self._firsts.get(bought)
        if found is None:
            offers = list(self._offers(self._known(radii, sizes), self._left_first))
            found = best_of(offers, self._left_first) or self._first_declared
            self._firsts.clear()
            self._firsts[bought] = found
        return found

    @cached_property
    def _firsts(self) -> dict[tuple[float, ...], Chosen]:
        """The last plan of a first model, by what was bought: a run asks for it twice, and chooses by it."""
        return {}

    def _offers(self, known: Known, budget: Budget) -> Iterator[Choice]:
        """Yield all choices: of noise with its weights, and of the slope that pseudo-Huber loss is held at."""
        bound, gain = _effective(known, self._bound)
        typical = Seen(restated(self.problem, loss=Squared(gain)), length_by(known.radii, self.problem))
        noises = self._noises(known.radii, budget)
        lightened = 1 - quantile(self.problem.n, self.price) if self.norms else 0.0
        weighted = _WEIGHTED_RESIDUAL * (lightened * TYPICAL_RESIDUAL * bound) ** 2
        costlier = 1.0 if known.targets is None else _POWER
        powers = POWERS if known.residuals is not None else POWERS[:1]  # where c is far too low, none should be sharp
        for power, share in product(powers, HELD_SHARES):
            stated = restated(self.problem, loss=PseudoHuber(self._bound, share * bound, power))
            lost = held_bias(bound, share * bound, power)
            for noise, weighting in noises:
                sought = Held(stated, typical, lost, weighting=weighting, power=costlier, bound=bound)
                yield Choice(noise, sought, weighted if weighting else 0.0)

    def conversation(self) -> Conversation:
        """Buy radii and sizes, choose, and publish the minimum, and what was bought besides."""
        radii, sizes, extras = [], [], {}
        for request in self._radii:
            radii += (yield request).tolist()
        if self.sizes:
            sizes += (yield self._spread(np.zeros(self.problem.dimension))).tolist()
        if self.first:
            x = yield self._first(radii, sizes).plan.minima[0]
            sizes += (yield self._spread(x)).tolist()
            extras["first"] = x
        bought = {"radii": np.array(radii), "sizes": np.array(sizes)}
        x = yield self._certified(self.chosen(radii, sizes).plan)
        return Published(np.array([x]), {name: each for name, each in bought.items() if len(each)} | extras)

    @property
    def charges(self) -> list[Charge]:
        """What is released, in order; the noise of minima is that for records of a usual length."""
        *bought, minimum = super().charges
        if self.first:
            plan = self._first_usual
            noise = f"tilt: {plan.mechanism}, or what is chosen; output: l2"
            bought.insert(-1, Charge("first model", Epsilon(self.first), plan.scales[0], noise))
            bought[-1] = replace(bought[-1], what="size of its residuals")
        return [*bought, minimum]

    @cached_property
    def _first_usual(self) -> WeightedPlan:
        """The plan of the first model for records of a usual length."""
        return self._first(self._usual_radii, ()).plan

    def examples(self) -> list[Example]:
        """Return the requests of a run on records of a usual length."""
        *bought, minimum = super().examples()
        first = [Example(each, each.costs[0]) for each in (self._first_usual.minima if self.first else ())]
        return [*bought, *first, minimum]

    @property
    def before_the_minimum(self) -> tuple[WeightedPlan, ...]:
        """The plan of the first model for records of a usual length, for audits."""
        return (self._first_usual,) if self.first else ()

    @property
    def besides(self) -> dict[str, tuple[int, ...]]:
        """The shapes of what is bought, and of the first model."""
        sizes = {"sizes": (self.sizes,)} if self.sizes else {}
        first = {"first": (self.problem.dimension,)} if self.first else {}
        return super().besides | sizes | first

    @property
    def bought(self) -> str:
        """What is bought, in words."""
        sizes = ("", "the size of the targets", "the size of the targets, a first model and the size of its residuals")
        radii = [super().bought] if self.norms else []
        return ", ".join([*radii, sizes[self.sizes]] if self.sizes else radii)

    @property
    def gained(self) -> float:
        """What is expected over what is predicted for usual records."""
        return _GAINED_RESIDUALS if self.first else super().gained

    def _chosen_by(self, extras: Mapping[str, np.ndarray]) -> Chosen:
        return self.chosen(*(extras.get(name, np.zeros(0)).tolist() for name in ("radii", "sizes")))

    def _bought(self, extras: Mapping[str, np.ndarray]) -> list[str]:
        """Return what was bought in a run that published this, in words."""
        sizes = zip(("targets", "residuals of a first model")[: self.sizes], extras.get("sizes", ()), strict=True)
        said = [f"a size that {self._share:.0%} of the {whose} lie within: {size:.3g}" for whose, size in sizes]
        return [*super()._bought(extras), *said]


def _effective(known: Known, bound: float) -> tuple[float, float]:
    """Return the bounds of targets that predictions are made for: for the residuals, and for what there is to gain."""
    if known.targets is None:
        return bound, bound
    if known.residuals is None:
        return min(_UNEXPLAINED / TYPICAL_RESIDUAL * known.targets, bound), known.targets
    # Targets whose tails reach far have more to gain than their size says: no less than what residuals are worth.
    return known.residuals / TYPICAL_RESIDUAL, max(known.targets, math.sqrt(3) * known.residuals)


def plan_regression(problem: Problem, budget: Budget) -> RegressionPlan:
    """Plan a final model of least squares whose slopes, noise and ridge are chosen by bought sizes of the records.

    What is bought, and for how much, follows from n, epsilon and what a first model at its price is expected to be.

    >>> import epsteps as es
    >>> problem = es.Problem(es.Squared(1.0), es.Box(0, 1), ridge=0.002, n=50_000, d=20)
    >>> plan = plan_regression(problem, es.Pure(2.0))
    >>> plan.norms, plan.sizes, plan.size_price, plan.first, round(plan.rest, 4)
    ((1, 2), 2, 0.01066, 0.2, 1.7587)
    """
    limits.require_solvable(problem)
    capacity = budget.amount if budget.delta else budget.capacity(Epsilon)
    norms, each = affordable(problem.n, capacity, ((1, 2), (1,)))
    sizes, size, first = _sizes(problem, capacity)
    rest = down(capacity - up(each * len(norms) + size * sizes + first), 1e-9)
    return RegressionPlan(problem, budget, norms, each, rest, sizes, size, first)


def _sizes(problem: Problem, epsilon: float) -> tuple[int, float, float]:
    """Return how many sizes are bought, the price of each, and that of the first model."""
    size = min(max(_WORTH / problem.n, _LEAST * epsilon), _MOST * epsilon)
    if problem.n * size < _ENOUGH:
        return 0, 0.0, 0.0
    trivial = Typical(problem).trivial
    for share, good in _FIRST:
        if is_expected(problem, Pure(share * epsilon), good * trivial):
            return 2, size, share * epsilon
    return 1, size, 0.0
