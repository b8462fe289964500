"""How an audit tells outputs on two datasets apart, by the law of the noise, and how far apart its errors show them.

Each law is a test of outputs, one in each column, in scales of the noise (and in its units if it has a shape) less the
first centre; the second centre is ``away``. ``kind`` is what the noise costs; ``distance`` how far the centres should
be apart, ``confused`` counts the outputs on each dataset that are taken for the other's, and ``nearest`` bounds from
below how far apart the centres are, wrong with chance ``level`` at most. ``independent`` says whether the coordinates
of the noise have independent signs.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import gammaln, ndtri

from epsteps.budgets import Cost, Epsilon, Rho
from epsteps.budgets.mechanisms import Mechanism
from epsteps.noise import Source
from epsteps.problem.problem import Problem
from epsteps.problem.shapes import Shape

# Distances of two centres, in scales of the noise, for which a lower bound is nearest to the truth.
_LAPLACE_DISTANCE, _GAUSSIAN_DISTANCE = 2.0, 3.0
# Noise of other norms is told apart with this error, at a distance that is found by drawing ideal noise.
_ERROR = 0.15
_DRAWS, _SEED = 2**16, 20_240_101
# Chance that the drawn ideal noise misleads about its own errors.
_LEVEL = 1e-7
# Ratios within this share of the largest one are no evidence: they are rounding.
_DOUBT = 1e-4
# The error of the test of a Wishart trace.
_TRACE_ERROR = 0.1
# How far the largest of scores with noise is followed, in scales of the noise, and in how many steps at most.
_TAIL, _VALUES = 40.0, 2**14
# Chances of all places at all values that are computed at once.
_ENTRIES = 2**20


@dataclass(frozen=True, eq=False)
class Attack:
    """Noise of a mechanism on a vector, at one of two centres, which differ in the direction of ``change``.

    The test is the likelihood ratio. ``shape`` is that of the noise; ``units`` are the real size of each coordinate.
    """

    mechanism: Mechanism
    shape: Shape
    units: np.ndarray
    change: np.ndarray

    @classmethod
    def on(cls, mechanism: Mechanism, problem: Problem, change: np.ndarray) -> "Attack":
        """Return the test of the noise of a problem's gradients, for a change in real units."""
        return cls(mechanism, mechanism.shape(problem), mechanism.units(problem), change)

    @property
    def kind(self) -> type[Cost]:
        """Pure noise costs epsilon, Gaussian noise rho."""
        return self.mechanism.kind

    @property
    def independent(self) -> bool:
        """Noise of a usual norm has independent signs, that of a body has not."""
        return self.shape.stretches

    @cached_property
    def distance(self) -> float:
        """How far the centres should be apart, in the noise's norm."""
        if self.shape.independent:
            return self.kind.either(_LAPLACE_DISTANCE, _GAUSSIAN_DISTANCE)
        return _GAUSSIAN_DISTANCE if self.shape.gaussian else self._distance_with_error(_ERROR)

    def scores(self, outputs: np.ndarray, away: np.ndarray) -> np.ndarray:
        """Return the logarithms of the likelihood ratios (first over second) of outputs, the second centre is away."""
        if self.shape.gaussian:
            direction = self._precision @ away
            return away @ direction / 2 - direction @ outputs
        return self.shape.gauge(outputs - away[:, None]) - self.shape.gauge(outputs)

    def doubt(self, away: np.ndarray) -> float:
        """Return how large a score must be to count; several steps have one row each."""
        return 0.0 if self.shape.gaussian else _DOUBT * float(np.max(self.shape.gauge(away.T)))

    def confused(self, first: np.ndarray, second: np.ndarray, away: np.ndarray) -> tuple[int, int]:
        """Count by the sign of the score; ratios that may be rounding are errors."""
        least = self.doubt(away[None, :])
        ours, theirs = (self.scores(sample, away) for sample in (first, second))
        return int(np.sum(ours <= least)), int(np.sum(theirs >= -least))

    def nearest(self, errors: tuple[int, int], trials: int, level: float) -> float:
        """Gaussian errors bound mu; others are compared with those of ideal noise."""
        if self.shape.gaussian:
            return gaussian_mu(errors, trials, level)
        return self._distance_with_error(upper(sum(errors), 2 * trials, level))

    def _distance_with_error(self, error: float) -> float:
        """Return the smallest distance at which ideal noise has at most this error, or less."""
        low, high = 0.0, 1.0
        while self._least_error(high) > error and high < 1e3:
            low, high = high, 2 * high
        for _ in range(14):
            middle = (low + high) / 2
            low, high = (middle, high) if self._least_error(middle) > error else (low, middle)
        return low

    def _least_error(self, distance: float) -> float:
        """Bound from below how often ideal noise at this distance is taken for the other's."""
        away = distance * self._direction
        count = int(np.sum(self.scores(self._ideal, away) < self.doubt(away[None, :])))
        return lower(count, _DRAWS, _LEVEL)

    @cached_property
    def _direction(self) -> np.ndarray:
        change = self.change / self.units
        return change / self.shape.gauge(change)

    @cached_property
    def _ideal(self) -> np.ndarray:
        """Float noise of scale 1, the same in every audit: it is compared with, and protects nothing."""
        return Source(_SEED).draw(self.mechanism, 1.0, (self.shape.d, _DRAWS), self.shape)

    @cached_property
    def _precision(self) -> np.ndarray:
        """The inverse of the covariance of noise of scale 1."""
        return np.linalg.inv(self.shape.covariance.matrix)


@dataclass(frozen=True, eq=False)
class Gaussians:
    """Independent Gaussians of variance 1: the test is linear, and sees all of the claim."""

    kind: type[Cost] = Rho
    distance: float = _GAUSSIAN_DISTANCE
    independent: bool = True

    def confused(self, first: np.ndarray, second: np.ndarray, away: np.ndarray) -> tuple[int, int]:
        """Count the outputs that lie beyond the middle of the two centres."""
        middle = away @ away / 2
        return int(np.sum(away @ first >= middle)), int(np.sum(away @ second <= middle))

    def nearest(self, errors: tuple[int, int], trials: int, level: float) -> float:
        """Bound mu by the errors."""
        return gaussian_mu(errors, trials, level)


@dataclass(frozen=True, eq=False)
class Traces:
    """tr(S Z)/(2c) of the difference Z of two Wishart(m, c I) matrices, for S the sign of the change of the matrix.

    S has the eigenvalues 1 and -1 once each, so that this is the difference of two sums of m independent exponentials,
    and a change of nuclear norm N moves it by N/(2c): all of the claim. The density of Z itself has no simple form, but
    from the law of this one number follows how far apart the centres are that are told apart so well.
    """

    m: int
    kind: type[Cost] = Epsilon
    independent: bool = False

    @property
    def distance(self) -> float:
        """Where the test errs once in ten times."""
        return self._distance_with_error(_TRACE_ERROR)

    def confused(self, first: np.ndarray, second: np.ndarray, away: np.ndarray) -> tuple[int, int]:
        """Count the traces that lie beyond the middle of the two centres."""
        return int(np.sum(first >= away / 2)), int(np.sum(second <= away / 2))

    def nearest(self, errors: tuple[int, int], trials: int, level: float) -> float:
        """Return the distance at which ideal noise errs as often as the errors allow, or more."""
        return self._distance_with_error(upper(sum(errors), 2 * trials, level))

    def _distance_with_error(self, error: float) -> float:
        if error >= 0.5:
            return 0.0
        low, high = 0.0, 1.0
        while self.log_tail(high) > math.log(error):
            low, high = high, 2 * high
        for _ in range(50):
            middle = (low + high) / 2
            low, high = (middle, high) if self.log_tail(middle) > math.log(error) else (low, middle)
        return 2 * low

    def log_tail(self, t: float) -> float:
        """Return ln P(G - G' > t) for t >= 0 and independent sums G, G' of m exponentials.

        Given G' it is the sum of e^-(t + G') (t + G')^j/j! over j < m, as of Poisson, where E e^-G' G'^i is
        2^-(m + i) (m + i - 1)!/(m - 1)!.
        """
        j, i = np.tril_indices(self.m)
        powers = np.where(j == i, 0.0, (j - i) * math.log(max(t, 1e-300)))
        moments = gammaln(self.m + i) - gammaln(self.m) - (self.m + i) * math.log(2)
        return float(np.logaddexp.reduce(powers - gammaln(j - i + 1) - gammaln(i + 1) + moments)) - t


@dataclass(frozen=True, eq=False)
class Choices:
    """The place of the largest of scores with one-sided geometric noise of this scale, on each of two datasets.

    The test is whether the place is more likely on the first. From the law of the place follows which scale errs so
    often, and from the scale how far apart the two laws are.
    """

    scores: tuple[np.ndarray, np.ndarray]
    scale: float
    kind: type[Cost] = Epsilon
    independent: bool = False

    def confused(self, first: np.ndarray, second: np.ndarray, away: np.ndarray) -> tuple[int, int]:
        """Count the places that are more likely on the other dataset; those that are as likely are errors of both."""
        return int(np.sum(~self._ours[first.astype(int)])), int(np.sum(self._ours[second.astype(int)]))

    def nearest(self, errors: tuple[int, int], trials: int, level: float) -> float:
        """Return the largest log-ratio of the two laws, at the largest scale that errs no more than the errors allow.

        Errors grow with the scale: chances of what is likely fall, and the others rise.
        """
        error = upper(sum(errors), 2 * trials, level)
        low, high = math.log(self.scale / 2**6), math.log(self.scale * 2**10)
        for _ in range(20):
            middle = (low + high) / 2
            low, high = (low, middle) if self._error(math.exp(middle)) > error else (middle, high)
        return self.log_ratio(math.exp(high))

    def log_ratio(self, scale: float) -> float:
        """Return the largest absolute log-ratio of a place's chances, with noise of this scale."""
        first, second = (np.log(self.chances(scores, scale)) for scores in self.scores)
        return float(np.max(np.abs(first - second)))

    def chances(self, scores: np.ndarray, scale: float) -> np.ndarray:
        """Return the chance of each place, with noise of a scale."""
        return chosen(scores, scale)

    def _error(self, scale: float) -> float:
        first, second = (self.chances(scores, scale) for scores in self.scores)
        return float(first[~self._ours].sum() + second[self._ours].sum()) / 2

    @cached_property
    def _ours(self) -> np.ndarray:
        """The places that are more likely on the first dataset, as the noise is claimed to be."""
        first, second = (self.chances(scores, self.scale) for scores in self.scores)
        return first > second * (1 + _DOUBT)


class Exponentials(Choices):
    """The place that an exponential mechanism chooses, with chances ~ exp(score/scale)."""

    def chances(self, scores: np.ndarray, scale: float) -> np.ndarray:
        """Return the chance of each place."""
        weights = np.exp((scores - scores.max()) / scale)
        return np.maximum(weights / weights.sum(), np.finfo(float).tiny)


def chosen(scores: np.ndarray, scale: float) -> np.ndarray:
    """Return the chance of each place to have the largest of integer scores with noise k >= 0, P(k) ~ exp(-k/scale).

    Of equal ones the first is largest. The sum is over the values that the largest may have: all but a share of e^-40,
    one by one up to 2^14 of them, or fewer where there are more than 128 places, and else in steps of that many.
    """
    step = max(1.0, _TAIL * scale / min(_VALUES, _ENTRIES // len(scores)))
    t, below_largest = scale / step, np.rint((scores.max() - scores) / step)
    noise = np.arange(math.ceil(_TAIL * t) + 1)[:, None] + below_largest  # what takes each place to the value
    less, most = -np.expm1(-noise / t), -np.expm1(-(noise + 1) / t)
    ones = np.ones((len(noise), 1))
    before = np.cumprod(np.hstack([ones, less[:, :-1]]), axis=1)
    after = np.cumprod(np.hstack([ones, most[:, :0:-1]]), axis=1)[:, ::-1]
    chances = np.sum(before * after * np.exp(-noise / t), axis=0) * -math.expm1(-1 / t)
    return np.maximum(chances, np.finfo(float).tiny) / chances.sum()


# Laws of noise that is added to what is published, and of what is chosen.
Additive = Attack | Gaussians | Traces
Law = Additive | Choices


def upper(count: int, trials: int, level: float) -> float:
    """Return Clopper and Pearson's upper bound (1934): above the probability except with chance ``level``."""
    from scipy.stats import beta

    return 1.0 if count == trials else float(beta.isf(level, count + 1, trials - count))


def lower(count: int, trials: int, level: float) -> float:
    """Return Clopper and Pearson's lower bound: below the probability except with chance ``level``."""
    from scipy.stats import beta

    return 0.0 if count == 0 else float(beta.ppf(level, count, trials - count + 1))


def log_ratio(hits: int, misses: int, trials: int, level: float) -> float:
    """Bound ln(p/q) from below, where hits have probability p and misses q; wrong with chance ``level`` at most.

    If outputs on two datasets are such that an event has probability p on one and q on the other, no epsilon below
    ln(p/q) holds between them (Jagielski, Ullman, Oprea 2020).
    """
    p, q = lower(hits, trials, level / 2), upper(misses, trials, level / 2)
    return max(0.0, math.log(p / q)) if p > 0 else 0.0


def gaussian_mu(errors: tuple[int, int], trials: int, level: float) -> float:
    """Bound the mu of Gaussian differential privacy from below; wrong with chance ``level`` at most.

    A test that errs with probabilities a on one dataset and b on the other refutes every mu below -Φ⁻¹(a) - Φ⁻¹(b)
    (Dong, Roth, Su 2022; used for audits by Nasr et al. 2023).
    """
    first, second = (upper(count, trials, level / 2) for count in errors)
    return max(0.0, -float(ndtri(first) + ndtri(second)))


def independence(samples: np.ndarray) -> float:
    """Return a p-value for the rows of a matrix being independent: an exact test of the signs of every two rows.

    Assumes medians of 0. Two-sided, and corrected for the number of pairs (Bonferroni).
    """
    from scipy.stats import binom

    rows, count = samples.shape
    if rows < 2:
        return 1.0
    signs = np.where(samples > 0, 1.0, -1.0)
    agreements = (count + (signs @ signs.T)[np.triu_indices(rows, k=1)]) / 2
    extreme = np.minimum(agreements, count - agreements)
    return float(min(1.0, len(extreme) * 2 * binom.cdf(np.rint(extreme).min(), count, 0.5)))
