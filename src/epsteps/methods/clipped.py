"""Clipped descent: gradient steps with momentum under Gaussian noise, whose clip follows the gradients that are met.

A record's gradient is clipped to a norm C (Abadi et al. 2016), and noise pays for C alone. How large gradients are,
nobody knows beforehand, and they become smaller as the model gets better. So now and then a little of the budget buys
a histogram of their sizes, with noise, and the clip is what loses least by it: too small a clip turns the gradient, too
large a one lets in noise. Every release has its rho from the beginning, whatever clip is chosen, so that the choice is
free: noise is scaled to the clip.

Where the noise is large, few steps of gradient descent are a better filter than the minimum of a tilted objective,
which a ridge has to keep near 0: with many columns or several classes, that is. All points are published.

How far the model should go, no public number says: where classes are nearly separable, much farther than elsewhere.
With many directions for noise to go, a few of the published points span a space in which there is hardly any. So a
little of the budget *blends* them at last: the model is where the loss is least in that space, by descent on the few
pulls that records have there.
"""

import math
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from epsteps.bounds.quadratics import impulse_response
from epsteps.budgets import Budget, Rho, mechanisms
from epsteps.methods.clipping import CELLS, ClippedGradient, Histogram, Pulls, Reaches, Sizes
from epsteps.plans import notation
from epsteps.plans.plan import Charge, Conversation, Example, Plan, Published
from epsteps.plans.requests import Gradient, Request
from epsteps.plans.utility import Typical, Utility
from epsteps.problem import limits, validate
from epsteps.problem.problem import Problem, extent_of, restated
from epsteps.problem.rounding import down, lowest_between

# The middle of a cell of sizes, over its end.
_MIDDLE = 2.0**-0.125

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
# The first clip over the size of long records' gradients at 0, where no gradient should be turned; no later clip is
# below this share of it, and none below the size that a share of the gradients is within.
_WHOLE_CLIP, _LOWEST_CLIP = (1.15, 0.9), 0.2
# What a blend makes up for: the first clip over a whole one, the share that later clips leave alone, what a turned
# gradient costs, in squares of its size, over what noise does, and how much shorter steps are than is best on a typical
# problem, as of real tables more lies in directions of much curvature: without a blend, and with one.
_FIRST_CLIP, _WITHIN, _TURNED, CAUTION = (1.0, 0.5), (0.6, 0.4), (0.1, 0.03), (0.7, 0.6)
# The share of clipped gradients that is left is not taken for less.
_LEFT = 0.05
# Steps are at most so many times 1/L; L follows the slopes, down to this share of what curvature allows.
_STEP, _FLATTEST = 1.5, 0.03
# Sizes of steps down to 2^-20 of the longest are looked at.
_SHORTEST = 20.0
# There are more steps, up to so many times as many, while twice as many are expected to leave this share or less.
_MOST_STEPS, _BETTER = 4, 0.9
# What was measured over what is predicted: the geometric mean over twenty tables. Of two classes without a blend more
# is left of the model 0's error, this share of its root: along some directions of real tables so few steps hardly move.
_GAINED, _UNMOVED = 0.85, 0.15
# A blend takes this share of rho, where there are so many directions for noise to go: what its own noise costs, in the
# few that it has, is then little of what that of the steps does.
_BLEND, _MANY = 0.06, 150
# Besides the mean of the last points it blends those after these shares of the steps, in so many steps of its own, with
# this momentum; the mean of the second half is the model.
_BLENDED, _BLENDS, _INERTIA = (0.25, 1.0), 25, 0.8
# What a look at how far records reach takes of it, and the share of them that may reach farther than is believed, in
# deviations of the counts' noise at most; a pull is clipped to this share of the reach.
_BLEND_LOOK, _FARTHER, _FARTHER_NOISE, _PULL = 0.1, 0.002, 4.5, 0.5
# How far a blend is expected to go, over the length of what it starts from, and the curvature in squares of the reach:
# noise pulls it back to there by as much as it would take it away.
_MOVED, _BEND = 0.4, 0.05
# Steps of a blend are so many times 1/L; and what pulls it back is never more than so many times as strong as L.
_BLEND_STEP, _MOST_BACK = 4.0, 1e6


def _either(kind: tuple[Any, Any], problem: Problem) -> Any:
    """Return the constant for one output, or that for several."""
    return kind[problem.loss.outputs > 1]


class Known(NamedTuple):
    """What steps go by: the length of long records, the clip, and the mean size of gradients that are not clipped."""

    radius: float
    clip: float
    mean: float


def _look_charge(what: str, price: float) -> Charge:
    return Charge(what, Rho(price), Histogram.noise_for(price), "gaussian")


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
    def is_blended(self) -> bool:
        """Whether there are so many directions that a blend of points is worth its budget."""
        return self.directions >= _MANY

    @property
    def unseen(self) -> Known:
        """What is known where nothing was bought: records that fill their domain."""
        mean, variance = extent_of(self.problem).moments
        usual = math.sqrt(float(mean @ mean + np.sum(variance)) + self.problem.intercept)
        return self.first(min(usual, self.problem.record_size(2)) * self.slope)

    def first(self, size: float) -> Known:
        """Return what goes with a size that most gradients at 0 are within."""
        return Known(size / self.slope, _FIRST_CLIP[self.is_blended] * self._whole(size), size)

    def _whole(self, size: float) -> float:
        return _either(_WHOLE_CLIP, self.problem) * size

    @property
    def whole(self) -> float:
        """The clip that should turn no gradient, where nothing was bought."""
        return self._whole(self.unseen.mean)

    def largest(self, known: Known | None) -> float:
        """Return where the cells of a look begin: at the longest gradient, at 0 or of long records."""
        if known is None:
            return self.problem.record_size(2) * self.slope
        return known.radius * self.problem.loss.slope * self.problem.loss.joint_slope(2)

    def seen(self, look: Sizes, counts: np.ndarray) -> Known:
        """Return what the first look says, at 0: the size of long records' gradients."""
        top = min(max(_MARGIN * look.scale / self.problem.n, _TOP), _BOTTOM)
        return self.first(look.beyond(counts, top))

    def adapted(self, known: Known, look: Sizes, counts: np.ndarray) -> Known:
        """Return what a later look says: the clip that loses least, for gradients of these sizes."""
        ends, shares = look.ends, counts / self.problem.n
        middles = ends * _MIDDLE
        least, among = _LOWEST_CLIP * self._whole(known.radius * self.slope), _WITHIN[self.is_blended]
        within = np.cumsum(shares[::-1])[::-1]
        allowed = int(np.argmin(np.append((within >= among) & (ends >= least), False)))
        losses = [self._lost(float(end), middles, shares) for end in ends[:allowed]]
        if losses:
            clip = float(ends[int(np.argmin(losses))])
        else:
            enough = np.flatnonzero(within >= among)
            clip = max(least, float(middles[enough[-1] if len(enough) else 0]))
        return known._replace(clip=clip, mean=float(shares @ np.where(middles <= clip, middles, 0.0)))

    def _lost(self, clip: float, middles: np.ndarray, shares: np.ndarray) -> float:
        """Return what a clip costs: gradients that it turns, and noise, once both are as long as without it."""
        left = np.minimum(1.0, clip / middles)
        mean = max(float(shares @ middles), float(middles[-1]))
        share = float(np.clip(shares @ (left * middles) / mean, _LEFT, 1.0))
        turned = max(float(shares @ (np.abs(left / share - 1) * middles)), 0.0)
        return _TURNED[self.is_blended] * turned**2 + self.directions * (self.noise(clip) / share) ** 2

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
        per_step = self.rule.noise(self.rule.whole) ** 2 * self.iterations
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
        caution = CAUTION[self.rule.is_blended]
        longest = self.rule.longest_step(self.rule.unseen) / caution
        power = lowest_between(lambda power: self.error(longest * 2.0**power), -_SHORTEST, 0.0, 0.05)
        return caution * longest * 2.0**power


@dataclass(frozen=True)
class Blend:
    """Where the loss is least among the blends of a few published points, by steps on noisy pulls.

    It starts at the first of the points, and is pulled back there where noise would carry it away. ``mu`` is that of
    all its steps together. Everything but the pulls is public, or was published.
    """

    problem: Problem
    mu: float
    points: np.ndarray

    @cached_property
    def directions(self) -> np.ndarray:
        """Directions of length 1, at right angles: the first is that of the first point."""
        return np.linalg.qr(self.points)[0]

    @cached_property
    def start(self) -> np.ndarray:
        """The first point, along the directions."""
        return self.directions.T @ self.points[:, 0]

    def reach(self, look: Reaches, counts: np.ndarray) -> float:
        """Return how far nearly all records reach."""
        noise = _FARTHER_NOISE * look.scale / self.problem.n
        return look.beyond(counts, min(max(noise, _FARTHER), _BOTTOM))

    def clip(self, reach: float) -> float:
        """Return what pulls are clipped to."""
        return _PULL * reach

    def back(self, reach: float) -> float:
        """Return how strongly the blend is pulled back to where it starts."""
        noise = 2 * self.clip(reach) / (self.problem.n * self.mu)
        most = _MOST_BACK * self._bend(reach)
        with np.errstate(all="ignore"):  # the start may be 0, and budgets tiny
            far = np.float64(_BEND) * (_MOVED * reach) ** 2 * (self.start @ self.start)
            return float(np.nan_to_num(np.minimum(np.float64(noise) * noise / far, most), nan=most))

    def _bend(self, reach: float) -> float:
        """Return how much the loss bends at most, along the directions."""
        loss = self.problem.loss
        return loss.curvature * reach**2 * (1 if loss.outputs == 1 else 2) + self.problem.ridge

    def moves(self, reach: float) -> Generator[np.ndarray, np.ndarray, np.ndarray]:
        """Yield points, along the directions, see the pulls there, and return the model."""
        start, back = self.start, self.back(reach)
        size = (1 - _INERTIA) * _BLEND_STEP / (self._bend(reach) + back)
        place, velocity, places = start, np.zeros_like(start), []
        for _ in range(_BLENDS):
            pull = (yield place) + back * (place - start)
            velocity = _INERTIA * velocity - size * pull
            place = place + velocity
            places.append(place)
        return self.directions @ np.mean(places[_BLENDS // 2 :], axis=0)


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
    blend : tuple of float
        The rho of the look at how far records reach, and of each pull of the blend; empty without one.
    """

    reads = (ClippedGradient, Sizes, Reaches, Pulls)
    method = "clipped descent"

    problem: Problem
    budget: Budget
    iterations: int
    looks: tuple[int, ...]
    prices: tuple[float, ...]
    step: float
    pace: float
    blend: tuple[float, ...] = ()

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
        if len(self.blend) not in (0, 2):
            raise ValueError(f"a blend has a rho for its look and one for each pull, got {self.blend}.")
        for name, prices in {"prices": self.prices, "blend": self.blend}.items():
            for price in prices:
                validate.positive(name, price)
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
        model = np.mean(path[-self._predicted.last :], axis=0)
        if self.blend:
            model, extras["reaches"], extras["blended"] = yield from self._blended(model, path)
        return Published(np.array([*path, model]), extras)

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
        others = [path[round(share * self.iterations)] for share in _BLENDED]
        return Blend(self.problem, math.sqrt(2 * _BLENDS * self.blend[1]), np.column_stack([model, *others]))

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
                charges.append(_look_charge(f"sizes of gradients before step {t + 1}", prices[t]))
            scale = float(gradient.scale) / self.problem.n
            charges.append(Charge(f"clipped step {t + 1}", Rho(self.step), scale, "gaussian"))
        if self.blend:
            charges.append(_look_charge("how far records reach", self.blend[0]))
            scale = self._pull.scale
            charges += [
                Charge(f"pull {t + 1} of the blend", Rho(self.blend[1]), scale, "gaussian") for t in range(_BLENDS)
            ]
        return charges

    @property
    def _pull(self) -> Pulls:
        """A pull of the blend, in the clip's steps."""
        x, directions = np.zeros(self.problem.dimension), np.eye(self.problem.dimension, 1 + len(_BLENDED))
        return Pulls.at(self.problem, x, directions, Blend(self.problem, 1.0, directions).clip(1.0), self.blend[1])

    @property
    def points(self) -> int:
        """Every step publishes a point, and the last one is their mean."""
        return self.iterations + 1

    @property
    def besides(self) -> dict[str, tuple[int, ...]]:
        """The shape of the noisy counts."""
        sizes = {"sizes": (len(self.looks), CELLS)} if self.looks else {}
        return sizes | ({"reaches": (CELLS,), "blended": (_BLENDS, self.problem.dimension)} if self.blend else {})

    @property
    def extent(self) -> str:
        """How much is released, in words."""
        blend = f" and {_BLENDS} of a blend" if self.blend else ""
        return f"{self.iterations} steps{blend} and {len(self.looks) + bool(self.blend)} look(s) at sizes"

    @property
    def title(self) -> str:
        """The first line of the plan's page."""
        return f"{self.method}, {self.iterations} steps"

    @property
    def facts(self) -> dict[str, str]:
        """Lines of the plan's page."""
        looks = f"{len(self.looks)} time(s), for {math.fsum(self.prices) / self.rho:.2%} of rho"
        last, share = "the mean of the last ones", math.fsum(self.blend[:1] + self.blend[1:] * _BLENDS) / self.rho
        blend = (
            f"{last} and {len(_BLENDED)} points of the path, {_BLENDS} steps for {share:.2%} of rho: it is the model"
        )
        return {
            "Problem": notation.problem_fact(self.problem, self.problem.ridge),
            "Steps": f"{self.iterations}, with a momentum of {_MOMENTUM:g}"
            + ("" if self.blend else f"; the model is {last}"),
            **({"Blend": f"of {blend}"} if self.blend else {}),
            "Sizes": f"of gradients are looked at {looks}; the clip is the one that loses least by what they show"
            if self.looks
            else "of gradients are not looked at: noise would drown them at this n and budget",
            "Published": "every point, the sizes, and the model",
        }

    @property
    def rho(self) -> float:
        """The rho of all releases."""
        return math.fsum([*self.prices, self.step * self.iterations, *self.blend[:1], *self.blend[1:] * _BLENDS])

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
            rows.append(self._row(f"sizes before step {t + 1}", [price], Histogram.noise_for(price)))
        steps = [self.step] * self.iterations
        scale = next(charge.scale for charge in self.charges if charge.cost.amount == self.step)
        rows.append(self._row(f"{self.iterations} clipped steps, each", steps, scale))
        if self.blend:
            look, pull = self.blend
            rows.append(self._row("how far records reach", [look], Histogram.noise_for(look)))
            rows.append(self._row(f"{_BLENDS} pulls of the blend, each", [pull] * _BLENDS, self._pull.scale))
        return ["release", "rho", "share", "noise scale"], rows

    def _row(self, what: str, prices: Sequence[float], scale: float) -> list[str]:
        share = f"{math.fsum(prices) / self.rho:.2%}{' in all' if len(prices) > 1 else ''}"
        return [what, f"{prices[0]:.6g}", share, f"{scale:.6g}"]

    def examples(self) -> Sequence[Example]:
        """Return a step, and a first and a later look, as for records that fill their domain."""
        x, known = np.zeros(self.problem.dimension), self.rule.unseen
        found = [Example(self._gradient(restated(self.problem, clip=known.clip), x), Rho(self.step))]
        for number, price in enumerate(self.prices[:2]):
            look = Sizes.at(self.problem, x, self.rule.largest(known if number else None), price)
            found.append(Example(look, Rho(price)))
        if self.blend:
            reach = Reaches.of(self.problem, self._pull.directions, self.blend[0])
            found += [Example(reach, Rho(self.blend[0])), Example(self._pull, Rho(self.blend[1]))]
        return found

    def worth(self) -> Utility:
        """Return what the model is expected to be worth: by the steps' exact error on a typical problem."""
        size = min(self.pace / self.rule.whole, self.rule.longest_step(self.rule.unseen))
        typical, expected = Typical(self.problem), _GAINED * self._predicted.error(size)
        if self.problem.loss.outputs == 1 and not self.blend:
            expected += _UNMOVED * math.sqrt(expected * typical.trivial)
        return typical.utility(min(expected, typical.trivial), None)


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
    pulls = _BLEND * (1 - _BLEND_LOOK) / _BLENDS
    blend = (_BLEND * _BLEND_LOOK * rho, pulls * rho) if Rule(problem, 1.0).is_blended else ()
    left = rho - math.fsum([*prices, *blend[:1], *blend[1:] * _BLENDS])
    rule = Rule(problem, math.sqrt(2 * left))
    pace = Pace(rule, _FEWEST)
    for doublings in range(1, _MOST_STEPS.bit_length()):
        more = Pace(rule, _FEWEST * 2**doublings)
        if more.error(more.best) > _BETTER * pace.error(pace.best):
            break
        pace = more
    looks = tuple(int(pace.iterations * place) for place in (0.0, *_PLACES)[: len(shares)])
    step = left / pace.iterations
    return ClippedPlan(problem, budget, pace.iterations, looks, prices, step, pace.best * rule.whole, blend)


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
