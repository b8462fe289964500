"""How released noise of one law tells two centres apart, and how far apart its errors show them to be."""

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.special import gammaln

from epsteps.auditing import confidence
from epsteps.auditing.attacks import Attack

# Two Gaussians at this distance are told apart with errors for which a lower bound is nearest to the truth.
_DISTANCE = 3.0
# Others at the distance where the test errs so often.
_ERROR = 0.1


class Law(Protocol):
    """A test of outputs, columns in scales of the noise less the first centre; the second centre is ``away``."""

    @property
    def unit(self) -> str:
        """What distances are: "epsilon" or "mu"."""
        ...

    @property
    def distance(self) -> float:
        """How far the centres should be apart."""
        ...

    def confused(self, first: np.ndarray, second: np.ndarray, away: np.ndarray) -> tuple[int, int]:
        """Count the outputs on each dataset that are taken for the other's."""
        ...

    def nearest(self, errors: tuple[int, int], trials: int, level: float) -> float:
        """Bound from below how far the centres are apart, in the unit; wrong with chance ``level`` at most."""
        ...


@dataclass(frozen=True, eq=False)
class Vectors:
    """Noise of a mechanism on a vector: the test is its likelihood ratio."""

    attack: Attack

    @property
    def unit(self) -> str:
        """Pure noise costs epsilon, Gaussian noise mu."""
        return "mu" if self.attack.mechanism.unit == "rho" else "epsilon"

    @property
    def distance(self) -> float:
        """As the attack has it."""
        return self.attack.distance

    def confused(self, first: np.ndarray, second: np.ndarray, away: np.ndarray) -> tuple[int, int]:
        """Count by the sign of the score; ratios that may be rounding are errors."""
        least = self.attack.doubt(away[None, :])
        scores = (self.attack.scores(sample, away) for sample in (first, second))
        ours, theirs = scores
        return int(np.sum(ours <= least)), int(np.sum(theirs >= -least))

    def nearest(self, errors: tuple[int, int], trials: int, level: float) -> float:
        """Gaussian errors bound mu; others are compared with those of ideal noise."""
        if self.unit == "mu":
            return confidence.gaussian_mu(errors, trials, level)
        return self.attack.nearest(sum(errors), 2 * trials, level)


@dataclass(frozen=True, eq=False)
class Gaussians:
    """Independent Gaussians of variance 1: the test is linear, and sees all of the claim."""

    unit: str = "mu"
    distance: float = _DISTANCE

    def confused(self, first: np.ndarray, second: np.ndarray, away: np.ndarray) -> tuple[int, int]:
        """Count by the side of the middle."""
        middle = away @ away / 2
        return int(np.sum(away @ first >= middle)), int(np.sum(away @ second <= middle))

    def nearest(self, errors: tuple[int, int], trials: int, level: float) -> float:
        """As of any mu."""
        return confidence.gaussian_mu(errors, trials, level)


@dataclass(frozen=True, eq=False)
class Traces:
    """tr(S Z)/(2c) of the difference Z of two Wishart(m, c I) matrices, for S the sign of the change of the matrix.

    S has the eigenvalues 1 and -1 once each, so that this is the difference of two sums of m independent exponentials,
    and a change of nuclear norm N moves it by N/(2c): all of the claim. The density of Z itself has no simple form, but
    from the law of this one number follows how far apart the centres are that are told apart so well.
    """

    m: int
    unit: str = "epsilon"

    @property
    def distance(self) -> float:
        """Where the test errs once in ten times."""
        return self._distance_with_error(_ERROR)

    def confused(self, first: np.ndarray, second: np.ndarray, away: np.ndarray) -> tuple[int, int]:
        """Count by the side of the middle."""
        return int(np.sum(first >= away / 2)), int(np.sum(second <= away / 2))

    def nearest(self, errors: tuple[int, int], trials: int, level: float) -> float:
        """Return the distance at which ideal noise errs as often as the errors allow, or more."""
        return self._distance_with_error(confidence.upper(sum(errors), 2 * trials, level))

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
