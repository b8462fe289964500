"""What clipped descent goes by: clips, sizes of steps, and a blend of points, from public and published numbers alone.

All constants were set on the tables that constants may be set on (docs/accuracy.md).
"""

import math
from collections.abc import Generator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from epsteps.bounds.quadratics import impulse_response
from epsteps.budgets import mechanisms
from epsteps.methods.clipped.requests import Histogram, Longest, Reaches, Sizes, axis_near
from epsteps.plans.utility import Typical
from epsteps.problem.problem import Problem, extent_of
from epsteps.problem.rounding import lowest_between
from epsteps.problem.shapes import LONGEST_AXIS

# The middle of a cell of sizes, over its end.
_MIDDLE = 2.0**-0.125
# The momentum of steps.
MOMENTUM = 0.9
# So many deviations of its noise the first look's quantile is from the top, within these shares.
_MARGIN, _TOP, _BOTTOM = 3.0, 0.08, 0.4
# No step gets less than this share of what steps get in the mean.
_LEAST_SHARE = 0.05
# The mean of the records is believed to be no longer than this share of the longest record.
_LEAST_SPREAD = 1e-6
# From so many directions for noise to go on, points are blended: what its own noise costs, in the few that it has, is
# then little of what that of the steps does.
_MANY = 150
# From such a share of what the model 0 costs on, steps of a blend are longer, and from the next one on twice as long.
_LOST, _HOPELESS = 0.5, 0.8
# The share of clipped gradients that is left is not taken for less.
_LEFT = 0.05
# L follows the slopes, down to this share of what curvature allows.
_FLATTEST = 0.03
# Sizes of steps down to 2^-20 of the longest are looked at.
_SHORTEST = 20.0
# Besides the mean of the last points a blend is of those after these shares of the steps, in so many steps of its own,
# of so many times 1/L, with this momentum; the mean of the second half is the model.
BLENDED, BLENDS, _BLEND_STEP, _INERTIA = (0.25, 1.0), 25, 4.0, 0.8
# The share of the records that may reach farther than is believed, or so many deviations of the counts' noise; and what
# a pull is clipped to, over the reach.
_FARTHER, _FARTHER_NOISE, _PULL = 0.002, 4.5, 0.5
# How far a blend is expected to go, over the length of what it starts from, and the curvature in squares of the reach:
# noise pulls it back to there by as much as it would take it away, but never more than so many times as strongly as L.
_MOVED, _BEND, _MOST_BACK = 0.4, 0.05, 1e6


class Manner(NamedTuple):
    """What goes by the kind of targets.

    whole
        The clip that should turn no gradient, or is a good first one, over the size of long records' gradients at 0.
    first, within, turned
        The first clip over a whole one; the share of gradients that later clips leave alone; what a turned gradient
        costs, in squares of its size, over what noise does.
    lowest
        No clip is below this share of a whole one.
    top
        Where the cells of later looks begin, over the size of long records' gradients at 0 times the largest slope,
        which for numbers is that at 0.
    caution
        How much shorter steps are than is best on a typical problem, as of real tables more lies in directions of much
        curvature.
    step
        Steps are at most so many times 1/L.
    averaged
        The share of the steps, the last ones, the mean of whose points is the model.
    """

    whole: float
    first: float
    within: float
    turned: float
    lowest: float
    top: float
    caution: float
    step: float
    averaged: float

    @property
    def blended(self) -> "Manner":
        """The same where points are blended, which makes up for much."""
        return self._replace(first=0.5, within=0.4, turned=0.03, caution=0.6)


_TWO = Manner(whole=1.15, first=1.0, within=0.6, turned=0.1, lowest=0.2, top=1.0, caution=0.7, step=1.5, averaged=0.5)
_SEVERAL = _TWO._replace(whole=0.9, averaged=0.3)
# Residuals shrink as steps go on, and few of them are large: their clips are lower, from the first one on.
_NUMBERS = _TWO._replace(whole=0.5, turned=0.002, lowest=0.02, top=2.0, caution=1.0)


class Known(NamedTuple):
    """What steps go by: the length of long records, the clip, and the mean size of gradients that are not clipped.

    Of numbers the first is the size of long records' gradients at 0 over the largest slope there, as most targets are
    smaller than declared; and ``bend`` is what the mean loss bends by at most.
    """

    radius: float
    clip: float
    mean: float
    bend: float = 0.0


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
    def has_numbers(self) -> bool:
        """Whether targets are numbers, whose slopes have no bound."""
        return not math.isfinite(self.problem.loss.slope)

    @property
    def is_blended(self) -> bool:
        """Whether there are so many directions that a blend of points is worth its budget."""
        return self.directions >= _MANY and not self.has_numbers

    @cached_property
    def manner(self) -> Manner:
        """What goes by the kind of targets."""
        manner = _NUMBERS if self.has_numbers else _SEVERAL if self.problem.loss.outputs > 1 else _TWO
        return manner.blended if self.is_blended else manner

    @cached_property
    def unseen(self) -> Known:
        """What is known where nothing was bought: records that fill their domain."""
        mean, variance = extent_of(self.problem).moments
        usual = math.sqrt(float(mean @ mean + np.sum(variance)) + self.problem.intercept)
        radius = min(usual, self.problem.record_size(2))
        return self.first(radius * self.slope, self.problem.loss.curvature * radius**2)

    def first(self, size: float, bend: float) -> Known:
        """Return what goes with a size that most gradients at 0 are within, and a largest curvature."""
        return Known(size / self.slope, self.manner.first * self._whole(size), size, bend)

    def _whole(self, size: float) -> float:
        return self.manner.whole * size

    @property
    def whole(self) -> float:
        """The clip that should turn no gradient, where nothing was bought."""
        return self._whole(self.unseen.mean)

    def largest(self, known: Known | None) -> float:
        """Return where the cells of a look begin: at the longest gradient, at 0 or of long records."""
        if known is None:
            return self.problem.record_size(2) * self.slope
        slope = self.slope if self.has_numbers else self.problem.loss.slope * self.problem.loss.joint_slope(2)
        return min(self.manner.top * known.radius, self.problem.record_size(2)) * slope

    def bent(self, look: Longest, counts: np.ndarray) -> float:
        """Return what the mean loss bends by at most, by how many records have which length."""
        squares = (np.minimum(look.ends, look.beyond(counts, self._top(look))) / look.slope) ** 2
        return self.problem.loss.curvature * float(np.clip(look.shares(counts) @ squares, squares[-1], squares[0]))

    def seen(self, look: Sizes, counts: np.ndarray, bend: float) -> Known:
        """Return what the first look says, at 0: the size of long records' gradients."""
        return self.first(look.beyond(counts, self._top(look)), bend)

    def _top(self, look: Histogram) -> float:
        """Return the share of the records that may be beyond what counts as long."""
        return min(max(_MARGIN * look.scale / self.problem.n, _TOP), _BOTTOM)

    def adapted(self, known: Known, look: Sizes, counts: np.ndarray) -> Known:
        """Return what a later look says: the clip that loses least, for gradients of these sizes."""
        ends, shares = look.ends, look.shares(counts)
        middles = ends * _MIDDLE
        least, among = self.manner.lowest * self._whole(known.radius * self.slope), self.manner.within
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
        return self.manner.turned * turned**2 + self.directions * (self.noise(clip) / share) ** 2

    def noise(self, clip: float) -> float:
        """Return the deviation of all steps' noise together, of a mean gradient's entry."""
        return 2 * clip / (self.problem.n * self.mu)

    def longest_step(self, known: Known) -> float:
        """Return the size of steps that curvature allows: of classes, for slopes of this size."""
        loss, bend = self.problem.loss, known.bend
        if not self.has_numbers:
            full = loss.curvature * known.radius**2
            bend = 4 * loss.curvature * known.radius * known.mean / (1 if loss.outputs == 1 else 2)
            bend = min(max(bend, _FLATTEST * full), full)
        return self.manner.step / (bend + self.problem.ridge)

    def axis(self, mean: np.ndarray, deviation: float) -> tuple[float, ...]:
        """Return the axis of the noise for this published mean of the records; () where none is worth it.

        Along the mean every record has much of its length, and there the loss bends most, so that noise does little
        harm. Of records with a mean of the squared length m² and a spread of v², noise of the variance 1 in d - 1
        directions, and 1/t² in that one, costs least where t² is about v/(m √(d - 1)).
        """
        problem, directions = self.problem, max(len(mean) - 1, 1)
        length = float(mean @ mean)
        square = length - len(mean) * deviation**2
        if not 0 < square < math.inf:
            return ()
        shorter = math.sqrt(self._spread(mean) / (square * directions))
        longer = math.sqrt(max(1 / shorter - 1, 0.0))
        if longer < 1 / LONGEST_AXIS:
            return ()
        return axis_near(problem, mean * (min(longer, LONGEST_AXIS / 2) / math.sqrt(length)))

    def _spread(self, mean: np.ndarray) -> float:
        """Return how far records spread around a mean at most: each column by its range."""
        problem = self.problem
        middle, variance = extent_of(problem).moments
        centre, half = np.array(middle), np.sqrt(3 * variance)
        for block in problem.record_body.blocks if problem.record_body else ():
            if len(block) > 1:
                centre[list(block)] = half[list(block)] = 0.5
        spread = np.maximum(half**2 - (mean[: problem.d] - centre) ** 2, 0.0)
        return max(float(np.sum(spread)), _LEAST_SPREAD * problem.record_size(2) ** 2)

    @staticmethod
    def levelled(gradient: np.ndarray, axis: tuple[float, ...]) -> np.ndarray:
        """Return the step for a published gradient: as much shorter along an axis as its noise is longer there."""
        if not axis:
            return gradient
        along = np.array(axis)
        blocks = gradient.reshape(-1, len(along))
        return (blocks - np.outer(blocks @ along / (1 + along @ along), along)).ravel()

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
        _, gains, _ = self._entries
        left, influences = self._followed(size)
        noise = self.rule.noise(self.rule.whole) ** 2 * size**2 / 2 * np.sum(influences**2 / _shared(influences))
        return float(left**2 @ gains + noise)

    def shares(self, size: float) -> np.ndarray:
        """Return the share of the budget of each step: what its noise moves the model by, which costs least."""
        return _shared(self._followed(size)[1])

    @np.errstate(all="ignore")  # budgets may be tiny or huge
    def _followed(self, size: float) -> tuple[np.ndarray, np.ndarray]:
        """Return the shares of the start that are left, and the root of what noise of each step costs the model."""
        lam, _, powers = self._entries
        response = impulse_response(1 + MOMENTUM - size * lam, 0.0 * lam - MOMENTUM, self.iterations + 1)
        points = response[1:] - MOMENTUM * response[:-1]
        sums = np.cumsum(np.vstack([np.zeros_like(response[:1]), response[:-1]]), axis=0)[::-1]
        # The mean of what noise of each step moves the last points by: none of those before the step.
        last = self.last
        moved = (sums[:-1] - np.vstack([sums[last:-1], np.zeros((last, len(lam)))])) / last
        return points[-last:].mean(axis=0), np.sqrt(moved[: self.iterations] ** 2 @ (lam * powers))

    @property
    def last(self) -> int:
        """How many points the mean is of."""
        return max(round(self.rule.manner.averaged * self.iterations), 1)

    @cached_property
    def _entries(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Eigenvalues that are followed, with their gains and the power of noise of deviation 1."""
        noise, typical = mechanisms.named("gaussian"), Typical(self.rule.problem)
        means, gains, shares = typical.followed(noise)
        return means + self.rule.problem.ridge, gains, shares * float(np.sum(typical.gradient_power(noise)))

    @cached_property
    def best(self) -> float:
        """The size of steps: a little less than what is best on the typical problem, and no more than L allows.

        With a blend, which finds how far to go, there is little to be careful of where most of the model is expected to
        be lost: steps are up to twice as long.
        """
        size = self.rule.manner.caution * self.typical
        if not self.rule.is_blended:
            return size
        lost = self.error(size) / Typical(self.rule.problem).trivial
        longer = 1 + float(np.clip((lost - _LOST) / (_HOPELESS - _LOST), 0.0, 1.0))
        return min(longer * size, self.rule.longest_step(self.rule.unseen))

    @cached_property
    def typical(self) -> float:
        """The size of steps that leaves least on the typical problem, up to a little more than L allows."""
        longest = self.rule.longest_step(self.rule.unseen) / self.rule.manner.caution
        power = lowest_between(lambda power: self.error(longest * 2.0**power), -_SHORTEST, 0.0, 0.05)
        return longest * 2.0**power


def _shared(influences: np.ndarray) -> np.ndarray:
    """Return shares in proportion to influences, none of them below what every step gets."""
    mean = float(np.mean(influences))
    if not 0 < mean < math.inf:
        return np.full(len(influences), 1 / len(influences))
    held = np.maximum(influences / mean, _LEAST_SHARE)
    return held / np.sum(held)


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
        for _ in range(BLENDS):
            pull = (yield place) + back * (place - start)
            velocity = _INERTIA * velocity - size * pull
            place = place + velocity
            places.append(place)
        return self.directions @ np.mean(places[BLENDS // 2 :], axis=0)
