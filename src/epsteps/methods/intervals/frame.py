"""The frame in which curvature is released: records as vectors a, chosen by released sizes and public numbers alone.

Each coordinate of a is an affine function of ONE column, times the root of the loss's second derivative s'; there is a
constant where an intercept, a category or a domain that does not lie around 0 asks for one. The indicators of a
category add up to 1, so that one of them is no coordinate: it follows from the others and the constant. That holds for
complete records alone, of which each category has exactly one indicator; others count as 0.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from epsteps.budgets import Cost, mechanisms
from epsteps.methods.curvature import Statistic
from epsteps.problem.box import Box
from epsteps.problem.domain import Columns, Domain
from epsteps.problem.grid import STEPS
from epsteps.problem.losses import Logistic
from epsteps.problem.problem import Problem

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
    def has_constant(self) -> bool:
        """Whether 1 is a coordinate: of an intercept, of categories, or as ranges do not lie around 0."""
        return self.problem.intercept or bool(self.columns.categories) or bool(np.any(self.columns.centre))

    @property
    def k(self) -> int:
        """Number of coordinates: the columns but one of each category, and the constant."""
        return self.problem.d - len(self.columns.categories) + self.has_constant

    def statistics(self, kind: type[Cost], cost: float) -> tuple[Statistic, ...]:
        """Return the releases of the sizes for this cost together: of (q z, q), and of q z² - 1/2 of numeric columns.

        The first lie in the body of records (z, 1) with slopes within [-1, 1]. The others lie in [-1/2, 1/2], each by
        itself: always a cube, as what holds z² may not hold their differences. Shares are in proportion to the entries.
        """
        parts: list[tuple[Domain, int, bool]] = []
        if self.has_constant:
            parts.append((self.columns.domain, self.problem.d, True))
        if len(self.columns.numeric):
            parts.append((Box(-0.5, 0.5), len(self.columns.numeric), False))
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
        squares = (variance / columns.half**2 + z**2)[columns.numeric]
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
        numeric = columns.numeric
        least = np.clip(sizes.squares_noise / bend / 2, _LEAST_VARIANCE, 1.0)
        second[numeric] = np.clip(sizes.squares / bend - mean[numeric] ** 2, least, 1.0)
        return bend, mean, second

    def _kept(self, sizes: Sizes) -> np.ndarray:
        """Mark the columns that are coordinates: of each category all but the one of the largest released size."""
        kept = np.ones(self.columns.d, dtype=bool)
        for start, stop in self.columns.categories:
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
        for start, stop in self.columns.categories:
            left_out = start + int(np.argmin(kept[start:stop]))
            T[left_out] = one - T[start:stop].sum(axis=0)
        return np.vstack([T, one]) if self.problem.intercept else T


def statistic(domain: Domain, n: int, d: int, constant: bool, kind: type[Cost], cost: float) -> Statistic:
    """Return the release of a mean of vectors in a domain, with a constant or without: of the noise that fits best."""
    problem = Problem(Logistic(), domain, ridge=0.0, n=n, d=d, intercept=constant)
    return Statistic(problem, mechanisms.smallest(problem, kind), cost)
