"""The sums that intervals ask for, at the published model: sizes, curvature and dispersion; and the frame of these.

In the frame records are vectors a, chosen by released sizes and public numbers alone. Each coordinate of a is an affine
function of ONE column, times the root of the loss's second derivative s'; there is a constant where an intercept, a
category or a domain that does not lie around 0 asks for one. The indicators of a category add up to 1, so that one of
them is no coordinate: it follows from the others and the constant. That holds for complete records alone, of which each
category has exactly one indicator; others count as 0. A number and the indicator that it is missing are a coordinate
each: no record is incomplete for lack of either.

A record enters through its margin at that model. Margins are exact sums of integers (``Grid.points``), and what follows
from one of them is computed element by element in a fixed order: the same bits on every engine, in blocks of any size.
Whatever finite model was published and whatever a record holds, nothing is raised or warned of.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np

from epsteps.budgets import Cost, mechanisms
from epsteps.methods.curvature import MATRIX_STEPS, Statistic
from epsteps.plans.plan import Charge
from epsteps.plans.requests import Draw, Records, Sum
from epsteps.problem import levels
from epsteps.problem.box import Box
from epsteps.problem.domain import Columns, Domain
from epsteps.problem.grid import ROWS_PER_DOUBLE, STEPS, Grid, Points, Release, added
from epsteps.problem.losses import Logistic
from epsteps.problem.problem import Problem
from epsteps.problem.rounding import down, up
from epsteps.problem.shapes import Frobenius, Nuclear, Shape

if TYPE_CHECKING:
    from epsteps.noise import Source

# The mean of s'/s'max is not believed to be below this, and no column to vary less than this, in squares of its half.
_LEAST_BEND, _LEAST_VARIANCE = 0.01, 1e-3
# Weights are integers up to this for the longest record, which no rounding of them makes shorter by much.
_WEIGHT_STEPS = 2**30


@dataclass(frozen=True, eq=False)
class Frame:
    """A record u as a = √s' (weights (u - centre) on these columns, constant), shortened to |a|² <= ``length``.

    Parameters
    ----------
    columns : array of int
        The columns of a record that are coordinates, in order.
    centre, weights : arrays
        One number for each of them.
    constant : float
        The last coordinate of every record, before √s'; 0 where there is none.
    length : float
        Largest squared length of a.
    T : array
        u, with the intercept's 1, is T a/√s' for complete records that were not shortened.
    guess : array
        The diagonal of the mean of a a', as the sizes suggest it.
    """

    columns: np.ndarray
    centre: np.ndarray
    weights: np.ndarray
    constant: float
    length: float
    T: np.ndarray
    guess: np.ndarray

    @property
    def k(self) -> int:
        """Number of coordinates."""
        return len(self.guess)


class Sizes(NamedTuple):
    """Released means of q z, of q and of q z², q = s'/s'max and z the columns in [-1, 1], and their deviations.

    Without a constant there are squares alone, and without numeric columns there are none.
    """

    means: np.ndarray
    one: float
    squares: np.ndarray
    means_noise: np.ndarray
    one_noise: float
    squares_noise: np.ndarray


@dataclass(frozen=True)
class Layout:
    """What is public of a problem's frame: its coordinates, and the statistics that its sizes are released as."""

    problem: Problem

    @cached_property
    def columns(self) -> Columns:
        """What the domain says of the columns; raises for a domain that does not say it."""
        return self.problem.domain.columns(self.problem.d)

    @property
    def categories(self) -> tuple[tuple[int, int], ...]:
        """Ranges of columns of which one is left out: the levels of a category."""
        return self.problem.domain.categories

    @cached_property
    def numeric(self) -> np.ndarray:
        """The columns that are numbers, in order: those that may be missing, too."""
        return np.sort(np.append(self.columns.numeric, np.array(self.problem.domain.numbers, dtype=int)))

    @property
    def has_constant(self) -> bool:
        """Whether 1 is a coordinate: of an intercept, of blocks, or as ranges do not lie around 0."""
        return self.problem.intercept or bool(self.problem.domain.one_hot) or bool(np.any(self.columns.centre))

    @property
    def k(self) -> int:
        """Number of coordinates: the columns but one of each category, and the constant."""
        return self.problem.d - len(self.categories) + self.has_constant

    def statistics(self, kind: type[Cost], cost: float) -> tuple[Statistic, ...]:
        """Return the releases of the sizes for this cost together: of (q z, q), and of q z² - 1/2 of numeric columns.

        The first lie in the body of records (z, 1) with slopes within [-1, 1]. The others lie in [-1/2, 1/2], each by
        itself: always a cube, as what holds z² may not hold their differences. Shares are in proportion to the entries.
        """
        parts: list[tuple[Domain, int, bool]] = []
        if self.has_constant:
            parts.append((self.columns.domain, self.problem.d, True))
        if len(self.numeric):
            parts.append((Box(-0.5, 0.5), len(self.numeric), False))
        total = sum(d + constant for _, d, constant in parts)
        return tuple(
            statistic(domain, self.problem.n, d, constant, kind, cost * (d + constant) / total)
            for domain, d, constant in parts
        )

    def sizes(self, released: np.ndarray, statistics: tuple[Statistic, ...]) -> Sizes:
        """Return released numbers by name, from one array of all of them."""
        d, noise = self.problem.d, np.concatenate([each.deviations for each in statistics])
        first = d + 1 if self.has_constant else 0
        empty = np.zeros(0)
        if not first:
            return Sizes(empty, 1.0, released + 0.5, empty, 0.0, noise)
        one, one_noise = float(released[d]), float(noise[d])
        return Sizes(released[:d], one, released[first:] + 0.5, noise[:d], one_noise, noise[first:])

    def even(self) -> Sizes:
        """Return the sizes of records that fill their domain evenly and whose s' is as large as possible: no noise."""
        columns = self.columns
        mean, variance = self.problem.domain.even_moments(self.problem.d)
        z = (mean - columns.centre) / columns.half
        squares = (variance / columns.half**2 + z**2)[self.numeric]
        return Sizes(z, 1.0, squares, np.zeros_like(z), 0.0, np.zeros_like(squares))

    def frame(self, sizes: Sizes) -> Frame:
        """Return the frame: finite, and with positive weights, length and guess, whatever finite sizes were released.

        The noise relative to a column's own second moment is length/(w² v): the sum is least for w² = 1/√(v M), M the
        largest (u - centre)². Records are shortened to about their mean square and three deviations of it, if Gaussian.
        """
        columns, largest = self.columns, self.problem.loss.curvature
        bend, mean, second = self._believed(sizes)
        kept = self._kept(sizes)
        centre = columns.centre + columns.half * mean
        # Where nothing is taken off, records are weighed by their squares about 0.
        reach = np.abs(mean) + 1
        for start, stop in columns.categories:
            reach[start:stop] = np.maximum(mean[start:stop], 1 - mean[start:stop])
        weights = (second * reach**2) ** -0.25 / columns.half
        longest = self._longest(weights, centre, kept)
        chosen = np.flatnonzero(kept)
        guess = (weights * columns.half) ** 2 * second
        # The noise relative to all coordinates is least where the constant is as large as they are on average.
        constant = math.sqrt(float(guess[chosen].mean()) if len(chosen) else 1.0) if self.has_constant else 0.0
        guess = largest * bend * np.append(guess[chosen], np.full(int(self.has_constant), constant**2))
        k = len(guess)
        length = min(largest * (longest + constant**2), (1 + 3 * math.sqrt(2 / k)) * float(guess.sum()))
        T = self._rows(chosen, centre[chosen], weights[chosen], constant)
        return Frame(chosen, centre[chosen], weights[chosen], constant, length, T, guess)

    def _believed(self, sizes: Sizes) -> tuple[float, np.ndarray, np.ndarray]:
        """Return the mean of q, and mean and square about it of each column in its half, all within what is possible.

        The mean is 0 where the domain lies around 0, from which nothing is taken off.
        """
        columns = self.columns
        bend = float(np.clip(sizes.one, np.clip(sizes.one_noise, _LEAST_BEND, 1.0), 1.0))
        mean, second = np.zeros(columns.d), np.full(columns.d, _LEAST_VARIANCE)
        if self.has_constant and not self.problem.domain.is_centred:
            mean = np.clip(sizes.means / bend, -1.0, 1.0)
            for start, stop in columns.categories:
                p = mean[start:stop] = np.clip(mean[start:stop], 0.0, 1.0)
                second[start:stop] = np.clip(p * (1 - p), np.clip(sizes.means_noise[start:stop] / bend / 2, 1e-3, 1), 1)
        numeric = self.numeric
        least = np.clip(sizes.squares_noise / bend / 2, _LEAST_VARIANCE, 1.0)
        second[numeric] = np.clip(sizes.squares / bend - mean[numeric] ** 2, least, 1.0)
        return bend, mean, second

    def _kept(self, sizes: Sizes) -> np.ndarray:
        """Mark the columns that are coordinates: of each category all but the one of the largest released size."""
        kept = np.ones(self.columns.d, dtype=bool)
        for start, stop in self.categories:
            kept[start + int(np.argmax(sizes.means[start:stop]))] = False
        return kept

    def _longest(self, weights: np.ndarray, centre: np.ndarray, kept: np.ndarray) -> float:
        """Return about the largest sum of (weight (u - centre))² over the domain and these columns: positive."""
        units = self.problem.units[: self.problem.d]
        scaled = np.where(kept, weights * units, 0.0)
        most = float(scaled.max())
        if most == 0.0:  # the only columns are those that are left out
            return 1.0
        integers = [int(weight) for weight in np.ceil(scaled / most * _WEIGHT_STEPS)]
        middle = [int(place) for place in np.rint(centre / units * STEPS)]
        square = self.problem.domain.largest_square(middle, integers, STEPS)
        return max(float(square) * (most / (STEPS * _WEIGHT_STEPS)) ** 2, 1e-6)

    def _rows(self, chosen: np.ndarray, centre: np.ndarray, weights: np.ndarray, constant: float) -> np.ndarray:
        """Return T: u_j = centre_j + a_j/weight_j, and of a category the one left out is 1 less the others."""
        d, k = self.problem.d, len(chosen) + self.has_constant
        one, T = np.zeros(k), np.zeros((d, k))
        if self.has_constant:
            one[-1] = 1 / constant
        T[chosen, np.arange(len(chosen))] = 1 / weights
        T[chosen] += np.outer(centre, one)
        kept = np.isin(np.arange(d), chosen)
        for start, stop in self.categories:
            left_out = start + int(np.argmin(kept[start:stop]))
            T[left_out] = one - T[start:stop].sum(axis=0)
        return np.vstack([T, one]) if self.problem.intercept else T


def statistic(domain: Domain, n: int, d: int, constant: bool, kind: type[Cost], cost: float) -> Statistic:
    """Return the release of a mean of vectors in a domain, with a constant or without: of the noise that fits best."""
    problem = Problem(Logistic(), domain, ridge=0.0, n=n, d=d, intercept=constant)
    return Statistic(problem, mechanisms.smallest(problem, kind), cost)


# Wishart matrices of this scale fit 63 bits together with the sum that they are added to.
_LARGEST_SCALE = 2.0**52
# A number of [0, 1] in the integers of a product of two: a slope or a weight of 2^20 steps, and a record's.
_WHOLE = STEPS * levels.STEPS


class AtModel(Sum):
    """A sum over the records at the published model ``x``: what a record's margin there says of it."""

    problem: Problem
    x: np.ndarray

    @cached_property
    def _points(self) -> Points:
        return Grid(self.problem).points(self.x[:, None], 1.0)

    def _encode_margins(self, features: np.ndarray) -> np.ndarray:
        """Return u'x of each record: an exact sum of integers, rounded once."""
        return features @ self._points.coefficients[:, 0] * self._points.step[0]

    def _encode_bends(self, features: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Return s'(u'x)/s'max of each record, within [0, 1]; 0 where a category has not exactly one indicator."""
        shares = levels.share(self.problem.loss.bend_shares(self._encode_margins(features), targets))
        return np.where(self._encode_complete(features), shares, 0.0)

    def _encode_complete(self, features: np.ndarray) -> np.ndarray:
        """Mark the records of which each category has one indicator that is 1, and no other."""
        complete = np.ones(len(features), dtype=bool)
        for start, stop in self.problem.domain.categories:
            indicators = features[:, start:stop]
            complete &= (indicators.max(axis=1) == STEPS) & (np.sum(indicators != 0, axis=1) == 1)
        return complete


@dataclass(frozen=True, eq=False)
class Mean(AtModel):
    """A mean over the records of vectors in the statistic's domain, to be released with integer noise.

    Formal guarantee: every record is an integer vector inside 2^40 times the statistic's domain with its constant, each
    times a number within [-1, 1]: whatever it holds. So the sum moves by 2^40 times that problem's sensitivity at most,
    for which the noise is scaled; rounding sums of many records to coarser integers is counted (``Grid.release``).
    """

    # What it is, on a plan's page.
    what: ClassVar[str]

    problem: Problem
    x: np.ndarray
    statistic: Statistic

    @property
    def charge(self) -> Charge:
        """What is paid for it, and with which noise."""
        statistic = self.statistic
        return Charge(self.what, statistic.mechanism.kind(statistic.cost), statistic.scale, statistic.mechanism.name)

    @cached_property
    def costs(self) -> tuple[Cost, ...]:
        """The cost of noise of this scale, for the sensitivity of vectors in the statistic's domain."""
        noise = self.statistic.mechanism
        ratio = self.statistic.problem.sensitivity(noise.norm) / self.statistic.scale
        return (noise.kind(float(noise.kind.amount_of(ratio))),)

    @cached_property
    def _shape(self) -> Shape:
        return self.statistic.mechanism.shape(self.statistic.problem)

    @cached_property
    def _release(self) -> Release:
        return Grid(self.statistic.problem).release(self.statistic.scale, 1.0, self._shape)

    def require_drawable(self) -> None:
        """Raise unless the noise fits 64-bit integers."""
        if np.max(self._release.scale) > self._shape.coarsest:
            cost = self.costs[0]
            said = f"noise of {cost.unit} = {cost.amount:.3g} does not fit the integers of sizes"
            raise ValueError(f"{said}. Use a larger budget, or leave intervals out.")

    def draw(self, source: "Source") -> Draw:
        """Draw what is added, in integers. Sees no records."""
        size, scale = (self.statistic.problem.dimension,), np.reshape(self._release.scale, -1)
        return {"noise": source.integers(self.statistic.mechanism, scale, size, self._shape)}

    def read(self, records: Records, draw: Draw) -> np.ndarray:
        """Return the sum over all records in released integers."""
        return self._release.rounded(records.total(self.block)[:, None])[:, 0]

    def publish(self, reading: np.ndarray, draw: Draw) -> np.ndarray:
        """Return the released mean: sum and noise are added modulo 2^64, as the noise is known."""
        noisy = (reading + draw["noise"].astype(np.int64, copy=False)) * self._release.step[:, 0]
        return noisy / self.statistic.problem.n


@dataclass(frozen=True, eq=False)
class Means(Mean):
    """The mean of (q z, q): q = s'(u'x)/s'max, z the columns in [-1, 1]. A gradient whose slopes are q."""

    what = "weighed means of the columns"

    columns: Columns

    @np.errstate(all="ignore")  # a warning would tell something about a record
    def block(self, features: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Return the sum over a few records, UNPROTECTED: products of integers within 2^20, exactly."""
        z = self.columns.integers(features[:, : self.columns.d], self.problem.units[: self.columns.d], STEPS)
        return _products(_steps(self._encode_bends(features, targets)), np.column_stack([z, np.full(len(z), STEPS)]))


@dataclass(frozen=True, eq=False)
class Squares(Mean):
    """The mean of q z² - 1/2 of the numeric columns: each within [-1/2, 1/2], so that the domain is a cube."""

    what = "weighed squares of the columns"

    columns: Columns

    @cached_property
    def _numeric(self) -> np.ndarray:
        return Layout(self.problem).numeric

    @np.errstate(all="ignore")
    def block(self, features: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Return the sum over a few records, UNPROTECTED, in units of 1/2; squares are rounded down."""
        z = self.columns.integers(features[:, : self.columns.d], self.problem.units[: self.columns.d], STEPS)
        z = z[:, self._numeric]
        sums = _products(_steps(self._encode_bends(features, targets)), np.floor(z * z * (1 / STEPS)))
        return 2 * sums - len(features) * _WHOLE


@dataclass(frozen=True, eq=False)
class Dispersion(Mean):
    """The means of slope² and of s', over their largest, less 1/2: what slopes vary by where the loss is curved.

    ``levers`` are rows that follow from what was published: for each of them there is a mean of both in which a record
    counts (row'u)², and never more than ``cap``, by itself, before it is added. Without levers each record counts 1.
    """

    what = "dispersion of the slopes"

    levers: np.ndarray | None = None
    cap: float = 1.0

    @np.errstate(all="ignore")
    def block(self, features: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Return the sum over a few records, UNPROTECTED, in units of 1/2: integers of [0, 2^40] each, less a half."""
        loss, complete = self.problem.loss, self._encode_complete(features)
        slopes = np.asarray(loss.levels(self._encode_margins(features), targets, loss.slope), dtype=float)
        bends = _steps(self._encode_bends(features, targets)) * STEPS
        both = np.column_stack([np.where(complete, slopes * slopes, 0.0), bends])
        if self.levers is not None:
            counts = self._encode_levers(features, self.levers) / self.cap
            both = np.floor(np.hstack([both[:, :1] * counts, both[:, 1:] * counts]))
        held = np.clip(np.nan_to_num(both, nan=0.0), 0.0, float(_WHOLE))
        return 2 * _products(np.ones(len(features)), held) - len(features) * _WHOLE

    def _encode_levers(self, features: np.ndarray, levers: np.ndarray) -> np.ndarray:
        """Return (row'u)² of each record, for every row: added in the order of the columns."""
        inner = np.zeros((len(features), len(levers)))
        for column, unit, entries in zip(features.T, self.problem.units / STEPS, levers.T, strict=True):
            inner += column[:, None] * (unit * entries)
        return inner * inner


def _steps(shares: np.ndarray) -> np.ndarray:
    """Return shares as integers of 2^20 steps, held within them last: floats."""
    return np.clip(np.floor(shares * levels.STEPS + 0.5), 0.0, float(levels.STEPS))


def _products(weights: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """Return the sum of weight x vector in int64, whose products are integers within 2^40: exactly, run by run."""
    runs = (slice(start, start + ROWS_PER_DOUBLE) for start in range(0, len(weights), ROWS_PER_DOUBLE))
    sums = [(weights[run] @ vectors[run]).astype(np.int64) for run in runs]
    return np.asarray(np.sum(sums, axis=0, dtype=np.int64))


# The largest squared length of a record's integers.
LENGTH = MATRIX_STEPS**2


@dataclass(frozen=True, eq=False)
class Curvature(AtModel):
    """The mean of a a' over records in their frame, to be released with integer noise.

    Formal guarantee: every a, its constant included, is an integer vector of norm at most 2^16, so that replacing one
    moves the sum by at most 2^33 in the nuclear norm and √2 2^32 in Frobenius'. The noise is exact: a difference of two
    Wishart(k + 1, c) matrices, k the rows of the matrix that is released, costs epsilon with c = 2^32/epsilon; a
    Gaussian matrix costs rho with a deviation of 2^32/√rho on the diagonal, and √2 times less off it.
    """

    problem: Problem
    x: np.ndarray
    frame: Frame
    kind: type[Cost]
    cost: float

    @cached_property
    def costs(self) -> tuple[Cost, ...]:
        """The cost of noise of this scale, for vectors of at most that length."""
        return (self.kind(self.kind.either(LENGTH / self.scale, (LENGTH / self.scale) ** 2)),)

    @property
    def charge(self) -> Charge:
        """What is paid for it, and with which noise; its scale is for records of norm 1."""
        noise = mechanisms.of_matrices(self.kind).name
        return Charge("curvature, records of norm 1", self.kind(self.cost), self.scale / LENGTH, noise)

    def require_drawable(self) -> None:
        """Raise unless the noise fits 64-bit integers."""
        if self.scale > _LARGEST_SCALE:
            said = f"noise of {self.kind.unit} = {self.cost:.3g} does not fit the integers of a curvature"
            raise ValueError(f"{said}. Use a larger budget, or leave intervals out.")

    @property
    def scale(self) -> float:
        """Scale of the noise, in integers: c of Wishart matrices, or the deviation of a diagonal entry."""
        return up(LENGTH / self.kind.either(self.cost, math.sqrt(self.cost)))

    @property
    def unit(self) -> float:
        """Real size of an integer of the sum, in the mean."""
        return self.frame.length / (LENGTH * self.problem.n)

    @property
    def deviation(self) -> float:
        """Standard deviation of the noise in the mean along any direction."""
        return self.kind.either(2 * math.sqrt(self.frame.k + 1), 1.0) * self.scale * self.unit

    def draw(self, source: "Source") -> Draw:
        """Draw what is added, in integers. Sees no records."""
        shape = self.kind.either(Nuclear(self.frame.k), Frobenius(self.frame.k, lower=True))
        return {"noise": source.integers(mechanisms.of_matrices(self.kind), self.scale, shape.array, shape)}

    def block(self, features: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Return the sum over a few records, UNPROTECTED, in integers: doubles hold those of 2^20 records."""
        a = self.encode(features, targets)
        return (a.T @ a).astype(np.int64)

    @np.errstate(all="ignore")  # a warning would tell something about a record
    def encode(self, features: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Return each record in its frame: integers, as floats, whose norm is at most 2^16, exactly.

        They are rounded to the nearest; where a record is then too long, it is shortened, its constant with it, and
        rounded toward 0. Squares add up to less than 2^53, in whatever order.
        """
        frame, last = self.frame, len(self.frame.columns)
        steps = MATRIX_STEPS / math.sqrt(frame.length)
        scale = steps * frame.weights
        a = np.empty((len(features), frame.k))
        a[:, :last] = features[:, frame.columns]
        a[:, :last] *= scale * self.problem.units[frame.columns] / STEPS
        a[:, :last] -= scale * frame.centre
        a[:, last:] = steps * frame.constant
        a *= np.sqrt(self.problem.loss.curvature * self._encode_bends(features, targets))[:, None]
        most = 2.0 ** ((52 - frame.k.bit_length()) // 2)
        np.rint(a, out=a)
        np.clip(a, -most, most, out=a)
        square = np.einsum("ij,ij->i", a, a)
        if len(too_long := np.flatnonzero(~(square <= LENGTH))):
            shortened = np.trunc(a[too_long] * down(np.sqrt(LENGTH / square[too_long]))[:, None])
            outside = ~(np.einsum("ij,ij->i", shortened, shortened) <= LENGTH)  # True of what is no number, too
            shortened[outside] = 0.0
            a[too_long] = shortened
        return a

    def publish(self, reading: np.ndarray, draw: Draw) -> np.ndarray:
        """Return the released mean of a a' in real units; Gaussian noise is known modulo 2^64, and added so."""
        noisy = self.kind.either(np.add, added)(reading, draw["noise"])
        return noisy.astype(float) * self.unit
