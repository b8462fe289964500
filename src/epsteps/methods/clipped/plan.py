"""The plan of clipped descent: looks and steps, and what blends the points that they published."""

import math
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from epsteps.budgets import Budget, Rho, mechanisms
from epsteps.methods.clipped.requests import CELLS, ClippedGradient, Histogram, Longest, Middle, Pulls, Reaches, Sizes
from epsteps.methods.clipped.rules import BLENDED, BLENDS, MOMENTUM, Blend, Known, Pace, Rule
from epsteps.plans import notation
from epsteps.plans.plan import Charge, Conversation, Example, Plan, Published
from epsteps.plans.requests import Request
from epsteps.plans.utility import Typical, Utility
from epsteps.problem import limits, validate
from epsteps.problem.losses import Loss
from epsteps.problem.problem import Problem, restated
from epsteps.problem.rounding import down
from epsteps.problem.sampling import FULL

# There are so many steps, or more, up to so many times as many, while twice as many are expected to leave this share or
# less.
_FEWEST, _MOST_STEPS, _BETTER = 300, 4, 0.9
# Of the budget's rho, a look at the sizes takes so much. The first one takes what makes its noise that share of the
# records, within limits, and none is bought where it would be more than that.
_LOOK, _WORTH, _LEAST, _MOST, _ENOUGH = 0.005, 60.0, 0.005, 0.03, 12.0
# Later looks take place after these shares of the steps, where n mu of each is at least so much: for classes, and for
# numbers, whose residuals shrink.
_PLACES, _ENOUGH_LATER = (0.05, 0.25, 0.55), (60.0, 30.0)
# What the mean of the records takes of rho, which is bought where its noise, over the root of the columns' number, is
# at most one over this of the longest record.
_MIDDLE, _ENOUGH_COLUMNS = 0.02, 0.7
# What a blend takes of rho, and a look at how far records reach of that.
_BLEND, _BLEND_LOOK = 0.06, 0.1
# What was measured over what is predicted, without a blend and with one: geometric means over twenty tables. Without a
# blend more is left of the model 0's error, this share of its root: along some directions of real tables so few steps
# hardly move.
_GAINED, _UNMOVED = (0.75, 0.42), 0.02
# That of numbers, over seven tables, and below how many directions it is more, by the cube: there clips are wider than
# they would have to be.
_GAINED_NUMBERS, _FEW = 0.65, 4


def _look_charge(what: str, price: float) -> Charge:
    return Charge(what, Rho(price), Histogram.noise_for(price), "gaussian")


@dataclass(frozen=True, eq=False, repr=False)
class ClippedPlan(Plan):
    """Clipped descent, decided but for the clips: looks at the sizes of gradients, and steps that go by them.

    First of all the mean of the records may be bought: along it noise is longer, and records are measured shorter. Of
    numbers, a look at the records' lengths then says how long steps may be.

    Formal guarantee: every look and every step is Gaussian noise whose rho is fixed beforehand. Given what was
    published before, its scale, and for a step its clip, are public numbers, and a replaced record moves what it
    protects by what that rho is for. So all together are √(2 rho)-Gaussian-DP for the sum of the rhos, however clips
    and points depend on what was published (Dong, Roth, Su 2022).

    Parameters
    ----------
    problem, budget
        The public facts, and what may be spent.
    steps : tuple of float
        The rho of each step.
    looks : tuple of int
        The steps before which sizes are looked at, increasing; the first is 0 if there are any.
    prices : tuple of float
        The rho of each look.
    pace : float
        The size of steps times their clip, where curvature allows as much.
    blend : tuple of float
        The rho of the look at how far records reach, and of each pull of the blend; empty without one.
    middle : float
        The rho of the mean of the records; 0 where it is not bought.
    lengths : float
        The rho of the look at the records' lengths; 0 where they are not looked at.
    """

    reads = (Middle, ClippedGradient, Longest, Sizes, Reaches, Pulls)
    method = "clipped descent"

    problem: Problem
    budget: Budget
    steps: tuple[float, ...]
    looks: tuple[int, ...]
    prices: tuple[float, ...]
    pace: float
    blend: tuple[float, ...] = ()
    middle: float = 0.0
    lengths: float = 0.0

    def __post_init__(self) -> None:
        validate.integer("the number of steps", self.iterations)
        validate.positive("pace", self.pace)
        for name, price in {"middle": self.middle, "lengths": self.lengths}.items():
            if price:
                validate.positive(name, price)
        require_clippable(self.problem)
        limits.require_path(self.problem, self.points)
        if len(self.prices) != len(self.looks):
            raise ValueError(f"looks have a price each, got {self.looks} at {self.prices}.")
        if self.looks and (self.looks[0] != 0 or list(self.looks) != sorted(set(self.looks))):
            raise ValueError(f"the first look is before step 0, and others follow it, got {self.looks}.")
        if self.looks and validate.integer("looks", self.looks[-1], low=0) >= self.iterations:
            raise ValueError(f"looks are before one of {self.iterations} steps, got {self.looks}.")
        if len(self.blend) not in (0, 2):
            raise ValueError(f"a blend has a rho for its look and one for each pull, got {self.blend}.")
        for name, prices in {"steps": self.steps, "prices": self.prices, "blend": self.blend}.items():
            for price in prices:
                validate.positive(name, price)
        require_gaussian(self.budget)
        for example in self.examples():
            example.request.require_drawable()  # pyright: ignore[reportAttributeAccessIssue]
        super().__post_init__()

    @property
    def iterations(self) -> int:
        """Number of steps."""
        return len(self.steps)

    @cached_property
    def rule(self) -> Rule:
        """What clips and steps follow from."""
        return Rule(self.problem, math.sqrt(2 * math.fsum(self.steps)))

    def conversation(self) -> Conversation:
        """Publish x_0, ..., x_T, and the mean of the last of them, which is the model; and the sizes besides."""
        rule, known, counts, extras = self.rule, self.rule.unseen, [], {}
        axis, bend = yield from self._measured(extras)
        problem = restated(self.problem, clip=known.clip)
        x = np.zeros(self.problem.dimension)
        path, velocity = [x], np.zeros_like(x)
        for t, cost in enumerate(self.steps):
            if t in self.looks:
                largest = rule.largest(known if counts else None)
                look = Sizes.at(self.problem, x, largest, self.prices[len(counts)], axis)
                counts.append((yield look))
                known = rule.adapted(known, look, counts[-1]) if t else rule.seen(look, counts[-1], bend)
                problem = restated(self.problem, clip=known.clip)
            gradient = yield ClippedGradient.near(problem, x, cost, axis)
            size = min(self.pace / known.clip, rule.longest_step(known))
            velocity = MOMENTUM * velocity - size * rule.levelled(rule.centred(gradient), axis)
            x = x + velocity
            path.append(x)
        if counts:
            extras["sizes"] = np.array(counts)
        model = np.mean(path[-self._predicted.last :], axis=0)
        if self.blend:
            model, extras["reaches"], extras["blended"] = yield from self._blended(model, path)
        return Published(np.array([*path, model]), extras)

    def _measured(
        self, extras: dict[str, np.ndarray]
    ) -> Generator[Request, np.ndarray, tuple[tuple[float, ...], float]]:
        """Ask for the mean and the lengths of the records, and return the axis, and what the loss bends by at most."""
        axis: tuple[float, ...] = ()
        if self.middle:
            asked = Middle.of(self.problem, self.middle)
            extras["middle"] = yield asked
            axis = self.rule.axis(extras["middle"], asked.deviation)
        if not self.lengths:
            return axis, self.rule.unseen.bend
        look = self._look_at_lengths(axis)
        extras["lengths"] = yield look
        return axis, self.rule.bent(look, extras["lengths"])

    def _look_at_lengths(self, axis: tuple[float, ...] = ()) -> Longest:
        origin = np.zeros(self.problem.dimension)
        return Longest(self.problem, origin, self.rule.largest(None), Histogram.noise_for(self.lengths), axis)

    def _blended(
        self, model: np.ndarray, path: list[np.ndarray]
    ) -> Generator[Request, np.ndarray, tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Ask for pulls, and return the blend, how far records reach, and the points at which was asked."""
        blend = self._blend_of(model, path)
        look = Reaches.of(self.problem, blend.directions, self.blend[0])
        counts = yield look
        reach, points = blend.reach(look, counts), []
        moves = blend.moves(reach)
        place = next(moves)
        while True:
            points.append(blend.directions @ place)
            pull = yield Pulls.at(self.problem, points[-1], blend.directions, blend.clip(reach), self.blend[1])
            try:
                place = moves.send(pull)
            except StopIteration as end:
                return end.value, counts, np.array(points)

    def _blend_of(self, model: np.ndarray, path: Sequence[np.ndarray]) -> Blend:
        """Return the blend of a model and points of its path."""
        others = [path[round(share * self.iterations)] for share in BLENDED]
        return Blend(self.problem, math.sqrt(2 * BLENDS * self.blend[1]), np.column_stack([model, *others]))

    @cached_property
    def _predicted(self) -> Pace:
        return Pace(self.rule, self.iterations)

    @property
    def charges(self) -> list[Charge]:
        """What is released, in order; the noise of steps is that of the clip for records that fill their domain."""
        problem, origin = restated(self.problem, clip=self.rule.unseen.clip), np.zeros((self.problem.dimension, 1))
        sensitivity = float(problem.sensitivity_at(origin, 2)[0])
        scales = mechanisms.named("gaussian").scales(sensitivity / self.problem.n, np.array(self.steps), FULL).tolist()
        charges, prices = [], dict(zip(self.looks, self.prices, strict=True))
        if self.middle:
            deviation = Middle.of(self.problem, self.middle).deviation
            charges.append(Charge("the mean of the records", Rho(self.middle), deviation, "gaussian"))
        if self.lengths:
            charges.append(_look_charge("lengths of the records", self.lengths))
        for t, (cost, scale) in enumerate(zip(self.steps, scales, strict=True)):
            if t in prices:
                charges.append(_look_charge(f"sizes of gradients before step {t + 1}", prices[t]))
            charges.append(Charge(f"clipped step {t + 1}", Rho(cost), scale, "gaussian"))
        if self.blend:
            charges.append(_look_charge("how far records reach", self.blend[0]))
            scale = self._pull.scale
            charges += [
                Charge(f"pull {t + 1} of the blend", Rho(self.blend[1]), scale, "gaussian") for t in range(BLENDS)
            ]
        return charges

    @property
    def _pull(self) -> Pulls:
        """A pull of the blend, in the clip's steps."""
        x, directions = np.zeros(self.problem.dimension), np.eye(self.problem.dimension, 1 + len(BLENDED))
        return Pulls.at(self.problem, x, directions, Blend(self.problem, 1.0, directions).clip(1.0), self.blend[1])

    @property
    def points(self) -> int:
        """Every step publishes a point, and the last one is their mean."""
        return self.iterations + 1

    @property
    def besides(self) -> dict[str, tuple[int, ...]]:
        """The shape of the noisy counts."""
        sizes = {"sizes": (len(self.looks), CELLS)} if self.looks else {}
        sizes |= {"middle": (self.problem.width,)} if self.middle else {}
        sizes |= {"lengths": (CELLS,)} if self.lengths else {}
        return sizes | ({"reaches": (CELLS,), "blended": (BLENDS, self.problem.dimension)} if self.blend else {})

    @property
    def extent(self) -> str:
        """How much is released, in words."""
        blend = f" and {BLENDS} of a blend" if self.blend else ""
        middle = ", the mean of the records" if self.middle else ""
        looks = len(self.looks) + bool(self.blend) + bool(self.lengths)
        return f"{self.iterations} steps{blend}{middle} and {looks} look(s) at sizes"

    @property
    def title(self) -> str:
        """The first line of the plan's page."""
        return f"{self.method}, {self.iterations} steps"

    @property
    def facts(self) -> dict[str, str]:
        """Lines of the plan's page."""
        share = f"{self.middle / self.rho:.2%} of rho"
        mean = {"Mean": f"of the records, for {share}: along it noise is longer"} if self.middle else {}
        lengths = f"of the records are looked at once, for {self.lengths / self.rho:.2%} of rho: steps go by them"
        lengths = {"Lengths": lengths} if self.lengths else {}
        said = ["the mean of the records"] * bool(mean) + ["noisy counts of their lengths"] * bool(lengths)
        looks = f"{len(self.looks)} time(s), for {math.fsum(self.prices) / self.rho:.2%} of rho"
        last, share = "the mean of the last ones", math.fsum(self.blend[:1] + self.blend[1:] * BLENDS) / self.rho
        blend = f"{last} and {len(BLENDED)} points of the path, {BLENDS} steps for {share:.2%} of rho: it is the model"
        return {
            "Problem": notation.problem_fact(self.problem, self.problem.ridge),
            "Steps": f"{self.iterations}, with a momentum of {MOMENTUM:g}"
            + ("" if self.blend else f"; the model is {last}"),
            **({"Blend": f"of {blend}"} if self.blend else {}),
            "Sizes": f"of gradients are looked at {looks}; the clip is the one that loses least by what they show"
            if self.looks
            else "of gradients are not looked at: noise would drown them at this n and budget",
            **mean,
            **lengths,
            "Published": ", ".join(["every point", "the sizes", *said, "and the model"]),
        }

    @property
    def rho(self) -> float:
        """The rho of all releases."""
        before = [self.middle, self.lengths, *self.prices]
        return math.fsum([*before, *self.steps, *self.blend[:1], *self.blend[1:] * BLENDS])

    def choices(self, extras: Mapping[str, np.ndarray]) -> dict[str, str]:
        """Return the clips of a run that published this, in words."""
        clips = ", ".join(f"{known.clip:.3g} from step {t + 1}" for t, known in self._followed(extras))
        return {"Clips": clips}

    def _followed(self, extras: Mapping[str, np.ndarray]) -> Iterator[tuple[int, Known]]:
        """Yield what steps went by in a run that published this, and from which step on."""
        rule, known = self.rule, self.rule.unseen
        if not self.looks:
            yield 0, known
        for number, (t, counts) in enumerate(zip(self.looks, extras.get("sizes", ()), strict=False)):
            largest = rule.largest(known if number else None)
            look = Sizes.at(self.problem, np.zeros(self.problem.dimension), largest, self.prices[number])
            known = rule.adapted(known, look, counts) if number else rule.seen(look, counts, rule.unseen.bend)
            yield t, known

    def table(self) -> tuple[list[str], list[list[str]]]:
        """List the looks, and the steps together; the noise of these is that of the first clip."""
        rows = []
        if self.middle:
            deviation = Middle.of(self.problem, self.middle).deviation
            rows.append(self._row("the mean of the records", [self.middle], deviation))
        if self.lengths:
            rows.append(self._row("lengths of the records", [self.lengths], Histogram.noise_for(self.lengths)))
        for t, price in zip(self.looks, self.prices, strict=True):
            rows.append(self._row(f"sizes before step {t + 1}", [price], Histogram.noise_for(price)))
        scale = next(charge.scale for charge in self.charges if charge.what == "clipped step 1")
        rows.append(self._row(f"{self.iterations} clipped steps, the first", self.steps, scale))
        if self.blend:
            look, pull = self.blend
            rows.append(self._row("how far records reach", [look], Histogram.noise_for(look)))
            rows.append(self._row(f"{BLENDS} pulls of the blend, each", [pull] * BLENDS, self._pull.scale))
        return ["release", "rho", "share", "noise scale"], rows

    def _row(self, what: str, prices: Sequence[float], scale: float) -> list[str]:
        share = f"{math.fsum(prices) / self.rho:.2%}{' in all' if len(prices) > 1 else ''}"
        return [what, f"{prices[0]:.6g}", share, f"{scale:.6g}"]

    def examples(self) -> Sequence[Example]:
        """Return steps without an axis and with one, the mean, and two looks, as for records that fill their domain."""
        x, known, axis = np.zeros(self.problem.dimension), self.rule.unseen, ()
        problem, found = restated(self.problem, clip=known.clip), []
        found.append(Example(ClippedGradient.near(problem, x, self.steps[0]), Rho(self.steps[0])))
        if self.middle:
            middle = Middle.of(self.problem, self.middle)
            found.append(Example(middle, Rho(self.middle)))
            axis = self.rule.axis(self.problem.units[: self.problem.width] / 2, middle.deviation)
            found.append(Example(ClippedGradient.near(problem, x, self.steps[0], axis), Rho(self.steps[0])))
        if self.lengths:
            found.append(Example(self._look_at_lengths(axis), Rho(self.lengths)))
        for number, price in enumerate(self.prices[:2]):
            look = Sizes.at(self.problem, x, self.rule.largest(known if number else None), price, axis)
            found.append(Example(look, Rho(price)))
        if self.blend:
            reach = Reaches.of(self.problem, self._pull.directions, self.blend[0])
            found += [Example(reach, Rho(self.blend[0])), Example(self._pull, Rho(self.blend[1]))]
        return found

    def worth(self) -> Utility:
        """Return what the model is expected to be worth: by the steps' exact error on a typical problem."""
        size = min(self.pace / self.rule.whole, self.rule.longest_step(self.rule.unseen))
        typical, expected = Typical(self.problem), self._predicted.error(size)
        if self.rule.has_numbers:
            expected *= _GAINED_NUMBERS * (1 + (_FEW / self.rule.directions) ** 3)
        else:
            expected *= _GAINED[bool(self.blend)]
            expected += 0.0 if self.blend else _UNMOVED * math.sqrt(expected * typical.trivial)
        return typical.utility(min(expected, typical.trivial), None)


def is_clippable(loss: Loss) -> bool:
    """Whether clipped descent covers a loss: squared loss, or one of classes that has a largest slope."""
    return loss.has_statistics or (hasattr(loss.targets, "classes") and math.isfinite(loss.slope))


def require_clippable(problem: Problem) -> None:
    """Raise unless clipped descent covers the loss, and there is no clip yet."""
    if not is_clippable(problem.loss):
        name = type(problem.loss).__name__
        raise ValueError(f"clipped descent is for losses of classes and squared loss, not for {name}.")
    if problem.clip is not None:
        raise ValueError(f"clipped descent chooses its clips: leave clip out, got {problem.clip!r}.")


def plan_clipped(problem: Problem, budget: Budget) -> ClippedPlan:
    """Plan descent with Gaussian noise whose clips follow noisy histograms of the gradients' sizes.

    >>> import epsteps as es
    >>> problem = es.Problem(es.Logistic(), es.Box(0, 1), ridge=0.001, n=50_000, d=20)
    >>> plan = plan_clipped(problem, es.Approximate(1.0, 1e-6))
    >>> plan.iterations, plan.looks, plan.utility.verdict
    (300, (0, 15, 75, 165), 'useful')
    """
    require_clippable(problem)
    require_gaussian(budget)
    rho = down(budget.capacity(Rho), 1e-8)
    reach = problem.n * math.sqrt(2 * rho)
    has_numbers = Rule(problem, 1.0).has_numbers
    shares = _shares_of_looks(reach, _ENOUGH_LATER[has_numbers])
    prices = tuple(rho * share for share in shares)
    is_known = bool(shares) and reach * math.sqrt(_MIDDLE) >= _ENOUGH_COLUMNS * math.sqrt(problem.width)
    middle = _MIDDLE * rho if is_known else 0.0
    lengths = prices[0] if has_numbers and prices else 0.0
    pulls = _BLEND * (1 - _BLEND_LOOK) / BLENDS
    blend = (_BLEND * _BLEND_LOOK * rho, pulls * rho) if Rule(problem, 1.0).is_blended else ()
    left = rho - math.fsum([middle, lengths, *prices, *blend[:1], *blend[1:] * BLENDS])
    pace = _pace(Rule(problem, math.sqrt(2 * left)))
    looks = tuple(int(pace.iterations * place) for place in (0.0, *_PLACES)[: len(shares)])
    steps = tuple((left * pace.shares(pace.best)).tolist())
    return ClippedPlan(problem, budget, steps, looks, prices, pace.best * pace.rule.whole, blend, middle, lengths)


def _pace(rule: Rule) -> Pace:
    """Return how many steps are taken, and how long they are: more of them while that is expected to pay."""
    pace = Pace(rule, _FEWEST)
    for doublings in range(1, _MOST_STEPS.bit_length()):
        more = Pace(rule, _FEWEST * 2**doublings)
        if more.error(more.best) > _BETTER * pace.error(pace.best):
            break
        pace = more
    return pace


def _shares_of_looks(reach: float, enough: float) -> tuple[float, ...]:
    """Return the share of rho of each look, for this n mu: none where noise would drown it; later ones if enough."""
    first = min(max((_WORTH / reach) ** 2, _LEAST), _MOST)
    if reach * math.sqrt(first) < _ENOUGH:
        return ()
    return (first, *([_LOOK] * len(_PLACES) if reach * math.sqrt(_LOOK) >= enough else []))


def require_gaussian(budget: Budget) -> None:
    """Raise unless a budget covers Gaussian noise."""
    if Rho not in budget.kinds:
        raise ValueError(
            f"clipped descent has Gaussian noise, which {budget} does not cover. Use a budget that has a delta, or one "
            "of rho, or another method."
        )
