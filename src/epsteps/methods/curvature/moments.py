"""Means and second moments of the columns: what is released of them, and what the released numbers say."""

from dataclasses import dataclass

import numpy as np

from epsteps.budgets import Cost, mechanisms
from epsteps.budgets.mechanisms import Mechanism
from epsteps.problem.domain import Columns, Domain
from epsteps.problem.losses import Logistic
from epsteps.problem.problem import Problem
from epsteps.problem.rounding import up
from epsteps.problem.sampling import FULL


@dataclass(frozen=True)
class Statistic:
    """A mean over records of vectors in ``domain``, released with noise: what noise, what it costs, how large it is.

    The vectors are those of a problem whose records they are, with slopes of at most 1: sensitivities, bodies and
    mechanisms are that problem's.
    """

    problem: Problem
    mechanism: Mechanism
    cost: float

    @property
    def scale(self) -> float:
        """The scale of the noise on the sum."""
        sensitivity = self.problem.sensitivity(self.mechanism.norm)
        return up(float(self.mechanism.scales(sensitivity, np.array(self.cost), FULL)))

    @property
    def deviations(self) -> np.ndarray:
        """Standard deviation of the noise on each entry of the mean."""
        covariance, units = self.mechanism.covariance(self.problem)
        return np.sqrt(covariance.variances) * units * self.scale / self.problem.n


def statistics_of(columns: Columns, n: int, kind: type[Cost], cost: float) -> tuple[Statistic, ...]:
    """Return the releases of the means, and of the squares where columns are numeric, for this cost together.

    Noise of a norm grows with the number of entries, and shares in proportion to it leave all of them equally exact.
    """
    numeric = len(columns.numeric)
    parts = [(columns.domain, columns.d), (columns.squares, numeric)][: 1 + bool(numeric)]
    total = columns.d + numeric
    return tuple(_statistic(domain, n, d, kind, cost * d / total) for domain, d in parts)


def _statistic(domain: Domain, n: int, d: int, kind: type[Cost], cost: float) -> Statistic:
    problem = Problem(Logistic(), domain, ridge=0.0, n=n, d=d)
    return Statistic(problem, mechanisms.smallest(problem, kind), cost)


@dataclass(frozen=True, eq=False)
class Moments:
    """Means and variances of the columns in their own units, and the standard deviations of the noise in them."""

    mean: np.ndarray
    variance: np.ndarray
    mean_noise: np.ndarray
    variance_noise: np.ndarray


def decode_moments(columns: Columns, released: tuple[np.ndarray, ...], noise: tuple[np.ndarray, ...]) -> Moments:
    """Return what released means (and squares) say, held in their ranges.

    A column of a category has the variance p (1 - p). None is believed to vary less than half of the noise in it.
    """
    mean, mean_noise = np.clip(released[0], -1.0, 1.0), noise[0]
    for start, stop in columns.categories:
        mean[start:stop] = np.clip(mean[start:stop], 0.0, 1.0)
    variance, variance_noise = mean * (1 - mean), np.array(mean_noise)
    numeric = columns.numeric
    if len(numeric):
        square, square_noise = (released[1] + columns.offset) / columns.factor, noise[1] / columns.factor
        variance[numeric] = np.clip(square - mean[numeric] ** 2, 0.0, 1.0)
        variance_noise[numeric] = np.hypot(square_noise, 2 * np.abs(mean[numeric]) * mean_noise[numeric])
    variance = np.maximum(variance, variance_noise / 2)
    half = columns.half
    return Moments(columns.centre + half * mean, half**2 * variance, half * mean_noise, half**2 * variance_noise)
