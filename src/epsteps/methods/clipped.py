"""Clipped descent: gradient steps with momentum under Gaussian noise, whose clip follows the gradients that are met.

A record's gradient is clipped to a norm C (Abadi et al. 2016), and noise pays for C alone. How large gradients are,
nobody knows beforehand, and they become smaller as the model gets better. So now and then a little of the budget buys
a histogram of their sizes, with noise, and the clip is what loses least by it: too small a clip turns the gradient, too
large a one lets in noise. Every release has its rho from the beginning, whatever clip is chosen, so that the choice is
free: noise is scaled to the clip.

Where the noise is large, few steps of gradient descent are a better filter than the minimum of a tilted objective,
which a ridge has to keep near 0: with many columns or several classes, that is. All points are published.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from epsteps.bounds.quadratics import impulse_response
from epsteps.budgets import Budget, Cost, Rho, mechanisms
from epsteps.plans import notation
from epsteps.plans.plan import Charge, Conversation, Example, Plan, Published
from epsteps.plans.requests import Draw, Gradient, Records, Sum
from epsteps.plans.utility import Typical, Utility
from epsteps.problem import levels, limits, validate
from epsteps.problem.grid import STEPS, Grid, Points, added
from epsteps.problem.problem import Problem, extent_of, restated
from epsteps.problem.rounding import down, lowest_between, up
from epsteps.problem.shapes import L1

if TYPE_CHECKING:
    from epsteps.noise import Source

# Sizes end at the largest over 2^(j/4), for so many j; the middle of a cell, over its end.
CELLS, _PER_HALF, _MIDDLE = 28, 4, 2.0**-0.125
# Bits of a record's entry in the unit of its length, at most; and of the sum of their squares, which a double holds.
_BITS, _SUM_BITS = 20, 52

# What follows was set on the tables that constants may be set on (docs/accuracy.md), for one output and for several
# classes. Steps and their momentum, and the share of them, the last ones, whose mean is the model.
_FEWEST, _MOMENTUM, _AVERAGED = 300, 0.9, (0.5, 0.3)
# Of the budget's rho, a look at the sizes takes so much. The first one takes what makes its noise that share of the
# records, within limits, and none is bought where it would be more than that.
_LOOK, _WORTH, _LEAST, _MOST, _ENOUGH = 0.005, 60.0, 0.005, 0.03, 20.0
# Later looks take place after these shares of the steps, where n mu of each is at least so much.
_PLACES, _ENOUGH_LATER = (0.05, 0.25, 0.55), 60.0
# So many deviations of its noise the first look's quantile is from the top, within these shares.
_MARGIN, _TOP, _BOTTOM = 3.0, 0.08, 0.4
# The first clip over the size of long records' gradients at 0; no later clip is below this share of it, and none below
# the size that this share of the gradients is within.
_FIRST_CLIP, _LOWEST_CLIP, _WITHIN = (1.15, 0.9), 0.2, 0.6
# What a turned gradient costs, in squares of its size, over what noise does.
_TURNED = 0.1
# The share of clipped gradients that is left is not taken for less.
_LEFT = 0.05
# Steps are at most so many times 1/L; L follows the slopes, down to this share of what curvature allows.
_STEP, _FLATTEST = 1.5, 0.03
# Steps are so much shorter than is best on a typical problem: of real tables more lies in directions of much curvature.
_CAUTION = 0.7
# Sizes of steps down to 2^-20 of the longest are looked at.
_SHORTEST = 20.0
# There are more steps, up to so many times as many, while twice as many are expected to leave this share or less.
_MOST_STEPS, _BETTER = 4, 0.9
# What was measured over what is predicted: the geometric mean over twenty tables.
_GAINED = 0.85


def _either(kind: tuple[Any, Any], problem: Problem) -> Any:
    """Return the constant for one output, or that for several."""
    return kind[problem.loss.outputs > 1]


@dataclass(frozen=True)
class Lengths:
    """L2 norms of records, rounded up: from exact sums of squares, so that every engine finds the same."""

    problem: Problem

    def of(self, chunk: Any) -> np.ndarray:
        """Return the length of each record of a chunk, UNPROTECTED: above its norm, by less than 2^-16 of the longest.

        Entries are rounded to integers of one unit, which moves each by half of it at most, and so the norm by half of
        √width of them.
        """
        return chunk.kept("lengths", lambda: self._of(chunk))

    def _of(self, chunk: Any) -> np.ndarray:
        squares = chunk.row_sums(self._factors, self._most, 2)
        return up((np.sqrt(squares) + math.sqrt(self.problem.width) / 2) * (self._units.max() / self._most))

    @cached_property
    def _most(self) -> int:
        """The largest entry in the norm's unit: sums of as many squares as a record has entries stay exact."""
        return 2 ** min(_BITS, (_SUM_BITS - self.problem.width.bit_length()) // 2)

    @property
    def _units(self) -> np.ndarray:
        return self.problem.units[: self.problem.width]

    @cached_property
    def _factors(self) -> np.ndarray:
        return self._units / self._units.max() * (self._most / STEPS)


def encode_products(points: Points, outputs: int, chunk: Any) -> np.ndarray:
    """Return the margins of a chunk's records at one public point, UNPROTECTED: one column for each output."""
    return chunk.products(points.coefficients.reshape(outputs, -1).T) * points.step


@dataclass(frozen=True, eq=False)
class ClippedGradient(Gradient):
    """The gradient of F at a public point, from gradients of records that are clipped to ``problem.clip``.

    Formal guarantee: that of ``Gradient``, with a sensitivity of twice the clip. Slopes of a record are integers, in
    steps of bound/2^20, whose L2 norm is at most clip/|u|, rounded down (``levels.of_records``), with a length |u| that
    is rounded up: so the record's gradient is no longer than the clip, exactly. Each slope follows from its own record.
    """

    has_slopes: ClassVar[bool] = False

    def read(self, records: Records, draw: Draw) -> np.ndarray:
        """Return the sum of clipped gradients in integers, UNPROTECTED."""
        return records.tally(self.encode)

    @np.errstate(all="ignore")  # a warning would tell something about a record
    def encode(self, chunk: Any) -> np.ndarray:
        """Return the sum over a chunk of records, UNPROTECTED."""
        loss, points = self.problem.loss, self._points
        steepest = down(self.problem.clip / Lengths(self.problem).of(chunk))  # pyright: ignore[reportOptionalOperand]
        margins = encode_products(points, loss.outputs, chunk)
        slopes = levels.of_records(loss, margins, chunk.targets, float(points.bound[0]), steepest)
        return chunk.gather(slopes).T.reshape(-1, 1)

    @cached_property
    def _points(self) -> Points:
        return self._grid.points(self._columns, self.bound)


@dataclass(frozen=True, eq=False)
class Sizes(Sum):
    """How many gradients of records have which size, at a public point: counts with Gaussian noise.

    A record's size is that of its slopes times its length. Sizes end at largest/2^(j/4), j = 0, ..., 27; the last cell
    reaches down to 0, and the first holds whatever is larger.

    Formal guarantee: every record is in one cell, whatever it holds, so that a replaced one moves two counts by at most
    1 each, √2 in the L2 norm: Gaussian noise of this scale, rounded to integers, costs rho = 1/scale².

    Parameters
    ----------
    problem : Problem
        How the records are read, and the loss.
    x : array
        A point that is public, or was published.
    largest : float
        Where the first cell ends.
    scale : float
        Standard deviation of the noise on each count.
    """

    problem: Problem
    x: np.ndarray
    largest: float
    scale: float

    @classmethod
    def at(cls, problem: Problem, x: np.ndarray, largest: float, cost: float) -> "Sizes":
        """Ask for the sizes at a public point, for this rho."""
        return cls(problem, x, largest, up(1 / math.sqrt(cost)))

    @property
    def ends(self) -> np.ndarray:
        """The upper ends of the cells, the largest first: public numbers."""
        return self.largest * 2.0 ** (-np.arange(CELLS) / _PER_HALF)

    @cached_property
    def costs(self) -> tuple[Cost, ...]:
        """The cost of noise of this scale on counts, of which a record moves two."""
        return (Rho(up(1 / self.scale**2)),)

    def require_drawable(self) -> None:
        """Raise unless the noise can be drawn."""
        if self.scale > L1(1).coarsest:
            raise ValueError(
                f"noise of scale {self.scale:.3g} does not fit the integers of counts. Use a larger budget."
            )

    def draw(self, source: "Source") -> Draw:
        """Draw what is added to the counts. Sees no records."""
        return {"noise": source.integers(mechanisms.named("gaussian"), self.scale, (CELLS,))}

    def read(self, records: Records, draw: Draw) -> np.ndarray:
        """Return the counts, UNPROTECTED."""
        return records.tally(self.encode)

    def encode(self, chunk: Any) -> np.ndarray:
        """Return how many records of a chunk are in each cell, UNPROTECTED."""
        return np.bincount(self.encode_cells(chunk), minlength=CELLS).astype(np.int64)

    @np.errstate(all="ignore")  # a warning would tell something about a record
    def encode_cells(self, chunk: Any) -> np.ndarray:
        """Return each record's cell, UNPROTECTED: a function of that record alone."""
        loss, points = self.problem.loss, self._points
        margins, bound = encode_products(points, loss.outputs, chunk), float(points.bound[0])
        slopes = levels.of_records(loss, margins, chunk.targets, bound)
        size = np.sqrt(np.sum(slopes * slopes, axis=1)) * (bound / levels.STEPS) * Lengths(self.problem).of(chunk)
        return CELLS - 1 - np.searchsorted(self.ends[:0:-1], size, side="left")

    def publish(self, reading: np.ndarray, draw: Draw) -> np.ndarray:
        """Return the noisy counts."""
        return added(reading, draw["noise"]).astype(float)

    @cached_property
    def _points(self) -> Points:
        x = np.asarray(self.x, dtype=float)[:, None]
        return Grid(self.problem).points(x, float(np.max(self.problem.slope_at(x))))


class Known(NamedTuple):
    """What steps go by: the length of long records, the clip, and the mean size of gradients that are not clipped."""

    radius: float
    clip: float
    mean: float


@dataclass(frozen=True)
class Rule:
    """How clips and steps follow from public and published numbers alone.

    ``mu`` is that of all steps together: their noise, added up, is that of one sum of this mu.
    """

    problem: Problem
    mu: float

    @cached_property
    def slope(self) -> float:
        """The size of a record's slopes at the model 0."""
        outputs, slope = self.problem.loss.outputs, float(self.problem.loss.slope_at(np.array(0.0)))
        return slope * math.sqrt(outputs / (outputs - 1)) if outputs > 1 else slope

    @property
    def directions(self) -> int:
        """How many directions noise has: not those in which all classes' coefficients move together."""
        problem = self.problem
        return problem.dimension - (problem.width if problem.loss.is_balanced else 0)

    @property
    def unseen(self) -> Known:
        """What is known where nothing was bought: records that fill their domain."""
        mean, variance = extent_of(self.problem).moments
        usual = math.sqrt(float(mean @ mean + np.sum(variance)) + self.problem.intercept)
        return self.first(min(usual, self.problem.record_size(2)) * self.slope)

    def first(self, size: float) -> Known:
        """Return what goes with a size that most gradients at 0 are within."""
        return Known(size / self.slope, _either(_FIRST_CLIP, self.problem) * size, size)

    def largest(self, known: Known | None) -> float:
        """Return where the cells of a look begin: at the longest gradient, at 0 or of long records."""
        if known is None:
            return self.problem.record_size(2) * self.slope
        return known.radius * self.problem.loss.slope * self.problem.loss.joint_slope(2)

    def seen(self, look: Sizes, counts: np.ndarray) -> Known:
        """Return what the first look says, at 0: the size of long records' gradients."""
        above = np.append(0.0, np.cumsum(counts)[:-1]) / self.problem.n
        top = min(max(_MARGIN * look.scale / self.problem.n, _TOP), _BOTTOM)
        beyond = np.flatnonzero(above > top)
        return self.first(float(look.ends[beyond[0] - 1 if len(beyond) else CELLS - 1]))

    def adapted(self, known: Known, look: Sizes, counts: np.ndarray) -> Known:
        """Return what a later look says: the clip that loses least, for gradients of these sizes."""
        ends, shares = look.ends, counts / self.problem.n
        middles = ends * _MIDDLE
        least = _LOWEST_CLIP * self.first(known.radius * self.slope).clip
        within = np.cumsum(shares[::-1])[::-1]
        allowed = int(np.argmin(np.append((within >= _WITHIN) & (ends >= least), False)))
        losses = [self._lost(float(end), middles, shares) for end in ends[:allowed]]
        if losses:
            clip = float(ends[int(np.argmin(losses))])
        else:
            enough = np.flatnonzero(within >= _WITHIN)
            clip = max(least, float(middles[enough[-1] if len(enough) else 0]))
        return known._replace(clip=clip, mean=float(shares @ np.where(middles <= clip, middles, 0.0)))

    def _lost(self, clip: float, middles: np.ndarray, shares: np.ndarray) -> float:
        """Return what a clip costs: gradients that it turns, and noise, once both are as long as without it."""
        left = np.minimum(1.0, clip / middles)
        mean = max(float(shares @ middles), float(middles[-1]))
        share = float(np.clip(shares @ (left * middles) / mean, _LEFT, 1.0))
        turned = max(float(shares @ (np.abs(left / share - 1) * middles)), 0.0)
        return _TURNED * turned**2 + self.directions * (self.noise(clip) / share) ** 2

    def noise(self, clip: float) -> float:
        """Return the deviation of all steps' noise together, of a mean gradient's entry."""
        return 2 * clip / (self.problem.n * self.mu)

    def longest_step(self, known: Known) -> float:
        """Return the size of steps that curvature allows, for slopes of this size."""
        loss, full = self.problem.loss, self.problem.loss.curvature * known.radius**2
        bent = 4 * loss.curvature * known.radius * known.mean / (1 if loss.outputs == 1 else 2)
        return _STEP / (min(max(bent, _FLATTEST * full), full) + self.problem.ridge)

    def centred(self, gradient: np.ndarray) -> np.ndarray:
        """Return a published gradient without the noise in directions that no gradient of the loss has."""
        if not self.problem.loss.is_balanced:
            return gradient
        blocks = gradient.reshape(self.problem.loss.outputs, -1)
        return (blocks - blocks.mean(axis=0)).ravel()


@dataclass(frozen=True)
class Pace:
    """E F(x) - F* of the mean of the last points on a typical problem, exactly, by the size of steps.

    Clips are taken to turn no gradient, and to be as for records that fill their domain.
    """

    rule: Rule
    iterations: int

    @np.errstate(all="ignore")  # budgets may be tiny or huge
    def error(self, size: float) -> float:
        """Return what is left of the start, and what all steps' noise costs, for steps of this size."""
        lam, gains, powers = self._entries
        response = impulse_response(1 + _MOMENTUM - size * lam, 0.0 * lam - _MOMENTUM, self.iterations + 1)
        points = response[1:] - _MOMENTUM * response[:-1]
        sums = np.cumsum(np.vstack([np.zeros_like(response[:1]), response[:-1]]), axis=0)[::-1]
        # The mean of what noise of each step moves the last points by: none of those before the step.
        last = self.last
        moved = (sums[:-1] - np.vstack([sums[last:-1], np.zeros((last, len(lam)))])) / last
        per_step = self.rule.noise(self.rule.unseen.clip) ** 2 * self.iterations
        noise = per_step * size**2 / 2 * np.sum(moved**2, axis=0) @ (lam * powers)
        return float(points[-last:].mean(axis=0) ** 2 @ gains + noise)

    @property
    def last(self) -> int:
        """How many points the mean is of."""
        return max(round(_either(_AVERAGED, self.rule.problem) * self.iterations), 1)

    @cached_property
    def _entries(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Eigenvalues that are followed, with their gains and the power of noise of deviation 1."""
        noise, typical = mechanisms.named("gaussian"), Typical(self.rule.problem)
        means, gains, shares = typical.followed(noise)
        return means + self.rule.problem.ridge, gains, shares * float(np.sum(typical.gradient_power(noise)))

    @cached_property
    def best(self) -> float:
        """The size of steps: a little less than what is best on the typical problem, and no more than L allows."""
        longest = self.rule.longest_step(self.rule.unseen) / _CAUTION
        power = lowest_between(lambda power: self.error(longest * 2.0**power), -_SHORTEST, 0.0, 0.05)
        return _CAUTION * longest * 2.0**power


@dataclass(frozen=True, eq=False, repr=False)
class ClippedPlan(Plan):
    """Clipped descent, decided but for the clips: looks at the sizes of gradients, and steps that go by them.

    Formal guarantee: every look and every step is Gaussian noise whose rho is fixed beforehand. Given what was
    published before, its scale, and for a step its clip, are public numbers, and a replaced record moves what it
    protects by what that rho is for. So all together are √(2 rho)-Gaussian-DP for the sum of the rhos, however clips
    and points depend on what was published (Dong, Roth, Su 2022).

    Parameters
    ----------
    problem, budget
        The public facts, and what may be spent.
    iterations : int
        Number of steps.
    looks : tuple of int
        The steps before which sizes are looked at, increasing; the first is 0 if there are any.
    prices : tuple of float
        The rho of each look.
    step : float
        The rho of each step.
    pace : float
        The size of steps times their clip, where curvature allows as much.
    """

    reads = (ClippedGradient, Sizes)
    method = "clipped descent"

    problem: Problem
    budget: Budget
    iterations: int
    looks: tuple[int, ...]
    prices: tuple[float, ...]
    step: float
    pace: float

    def __post_init__(self) -> None:
        validate.integer("iterations", self.iterations)
        validate.positive("step", self.step)
        validate.positive("pace", self.pace)
        require_clippable(self.problem)
        limits.require_path(self.problem, self.points)
        if len(self.prices) != len(self.looks):
            raise ValueError(f"looks have a price each, got {self.looks} at {self.prices}.")
        if self.looks and (self.looks[0] != 0 or list(self.looks) != sorted(set(self.looks))):
            raise ValueError(f"the first look is before step 0, and others follow it, got {self.looks}.")
        if self.looks and validate.integer("looks", self.looks[-1], low=0) >= self.iterations:
            raise ValueError(f"looks are before one of {self.iterations} steps, got {self.looks}.")
        for price in self.prices:
            validate.positive("prices", price)
        require_gaussian(self.budget)
        for example in self.examples():
            example.request.require_drawable()  # pyright: ignore[reportAttributeAccessIssue]
        super().__post_init__()

    @cached_property
    def rule(self) -> Rule:
        """What clips and steps follow from."""
        return Rule(self.problem, math.sqrt(2 * self.step * self.iterations))

    def _gradient(self, problem: Problem, x: np.ndarray) -> Gradient:
        return ClippedGradient.at(problem, mechanisms.named("gaussian"), x, self.step)

    def conversation(self) -> Conversation:
        """Publish x_0, ..., x_T, and the mean of the last of them, which is the model; and the sizes besides."""
        rule, known, counts = self.rule, self.rule.unseen, []
        problem = restated(self.problem, clip=known.clip)
        x = np.zeros(self.problem.dimension)
        path, velocity = [x], np.zeros_like(x)
        for t in range(self.iterations):
            if t in self.looks:
                look = Sizes.at(self.problem, x, rule.largest(known if counts else None), self.prices[len(counts)])
                counts.append((yield look))
                known = rule.adapted(known, look, counts[-1]) if t else rule.seen(look, counts[-1])
                problem = restated(self.problem, clip=known.clip)
            gradient = yield self._gradient(problem, x)
            size = min(self.pace / known.clip, rule.longest_step(known))
            velocity = _MOMENTUM * velocity - size * rule.centred(gradient)
            x = x + velocity
            path.append(x)
        extras = {"sizes": np.array(counts)} if counts else {}
        return Published(np.array([*path, np.mean(path[-self._predicted.last :], axis=0)]), extras)

    @cached_property
    def _predicted(self) -> Pace:
        return Pace(self.rule, self.iterations)

    @property
    def charges(self) -> list[Charge]:
        """What is released, in order; the noise of steps is that of the clip for records that fill their domain."""
        gradient = self._gradient(restated(self.problem, clip=self.rule.unseen.clip), np.zeros(self.problem.dimension))
        charges, prices = [], dict(zip(self.looks, self.prices, strict=True))
        for t in range(self.iterations):
            if t in prices:
                scale = up(1 / math.sqrt(prices[t]))
                charges.append(Charge(f"sizes of gradients before step {t + 1}", Rho(prices[t]), scale, "gaussian"))
            scale = float(gradient.scale) / self.problem.n
            charges.append(Charge(f"clipped step {t + 1}", Rho(self.step), scale, "gaussian"))
        return charges

    @property
    def points(self) -> int:
        """Every step publishes a point, and the last one is their mean."""
        return self.iterations + 1

    @property
    def besides(self) -> dict[str, tuple[int, ...]]:
        """The shape of the noisy counts."""
        return {"sizes": (len(self.looks), CELLS)} if self.looks else {}

    @property
    def extent(self) -> str:
        """How much is released, in words."""
        return f"{self.iterations} steps and {len(self.looks)} look(s) at sizes"

    @property
    def title(self) -> str:
        """The first line of the plan's page."""
        return f"{self.method}, {self.iterations} steps"

    @property
    def facts(self) -> dict[str, str]:
        """Lines of the plan's page."""
        looks = f"{len(self.looks)} time(s), for {math.fsum(self.prices) / self.rho:.2%} of rho"
        return {
            "Problem": notation.problem_fact(self.problem, self.problem.ridge),
            "Steps": f"{self.iterations}, with a momentum of {_MOMENTUM:g}; the model is the mean of the last ones",
            "Sizes": f"of gradients are looked at {looks}; the clip is the one that loses least by what they show"
            if self.looks
            else "of gradients are not looked at: noise would drown them at this n and budget",
            "Published": "every point, the sizes, and the model",
        }

    @property
    def rho(self) -> float:
        """The rho of all releases."""
        return math.fsum([*self.prices, self.step * self.iterations])

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
            known = rule.adapted(known, look, counts) if number else rule.seen(look, counts)
            yield t, known

    def table(self) -> tuple[list[str], list[list[str]]]:
        """List the looks, and the steps together; the noise of these is that of the first clip."""
        rows = []
        for t, price in zip(self.looks, self.prices, strict=True):
            scale = up(1 / math.sqrt(price))
            rows.append([f"sizes before step {t + 1}", f"{price:.6g}", f"{price / self.rho:.2%}", f"{scale:.6g}"])
        share, scale = self.step * self.iterations / self.rho, self.charges[-1].scale
        rows.append(
            [f"{self.iterations} clipped steps, each", f"{self.step:.6g}", f"{share:.2%} in all", f"{scale:.6g}"]
        )
        return ["release", "rho", "share", "noise scale"], rows

    def examples(self) -> Sequence[Example]:
        """Return a step, and a first and a later look, as for records that fill their domain."""
        x, known = np.zeros(self.problem.dimension), self.rule.unseen
        found = [Example(self._gradient(restated(self.problem, clip=known.clip), x), Rho(self.step))]
        for number, price in enumerate(self.prices[:2]):
            look = Sizes.at(self.problem, x, self.rule.largest(known if number else None), price)
            found.append(Example(look, Rho(price)))
        return found

    def worth(self) -> Utility:
        """Return what the model is expected to be worth: by the steps' exact error on a typical problem."""
        size = min(self.pace / self.rule.unseen.clip, self.rule.longest_step(self.rule.unseen))
        typical = Typical(self.problem)
        return typical.utility(min(_GAINED * self._predicted.error(size), typical.trivial), None)


def require_clippable(problem: Problem) -> None:
    """Raise unless there are classes, a loss with a largest slope, and no clip yet."""
    if not hasattr(problem.loss.targets, "classes") or not math.isfinite(problem.loss.slope):
        raise ValueError(f"clipped descent is for losses of classes, not for {type(problem.loss).__name__}.")
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
    shares = _shares_of_looks(problem.n * math.sqrt(2 * rho))
    prices = tuple(rho * share for share in shares)
    rule = Rule(problem, math.sqrt(2 * (rho - math.fsum(prices))))
    pace = Pace(rule, _FEWEST)
    for doublings in range(1, _MOST_STEPS.bit_length()):
        more = Pace(rule, _FEWEST * 2**doublings)
        if more.error(more.best) > _BETTER * pace.error(pace.best):
            break
        pace = more
    looks = tuple(int(pace.iterations * place) for place in (0.0, *_PLACES)[: len(shares)])
    step = (rho - math.fsum(prices)) / pace.iterations
    return ClippedPlan(problem, budget, pace.iterations, looks, prices, step, pace.best * rule.unseen.clip)


def _shares_of_looks(reach: float) -> tuple[float, ...]:
    """Return the share of rho of each look, for this n mu: none where noise would drown it."""
    first = min(max((_WORTH / reach) ** 2, _LEAST), _MOST)
    if reach * math.sqrt(first) < _ENOUGH:
        return ()
    return (first, *([_LOOK] * len(_PLACES) if reach * math.sqrt(_LOOK) >= _ENOUGH_LATER else []))


def require_gaussian(budget: Budget) -> None:
    """Raise unless a budget covers Gaussian noise."""
    if Rho not in budget.kinds:
        raise ValueError(
            f"clipped descent has Gaussian noise, which {budget} does not cover. Use Approximate(epsilon, delta) or "
            "Concentrated(rho), or another method."
        )
