"""Means and squares of the columns, released with noise: sums of integers that stay in a declared set, exactly."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from epsteps.data.rows import Rows
from epsteps.methods.designs import Columns, Statistic
from epsteps.noise import Source
from epsteps.problem.domain import Ball
from epsteps.problem.grid import STEPS

# A scale in integers is rounded up by this much, far above its rounding error.
_OUTWARD = 1 + 1e-12


@dataclass(frozen=True, eq=False)
class StatisticRelease:
    """The mean of a statistic, to be released with integer noise; ``encode`` returns each record's in integers.

    Formal guarantee: every record is an integer vector inside 2^20 times the statistic's domain, whatever it holds, so
    that the sum moves by 2^20 times that problem's sensitivity at most, for which the noise is scaled.
    """

    statistic: Statistic
    encode: Callable[[np.ndarray], np.ndarray]

    def noise(self, source: Source) -> np.ndarray:
        """Draw what is added, in integers. Sees no records."""
        mechanism, problem = self.statistic.mechanism, self.statistic.problem
        scale = self.statistic.scale * STEPS * _OUTWARD
        return source.integers(mechanism, scale, (problem.d,), mechanism.shape(problem))

    def sums(self, data: Rows) -> np.ndarray:
        """Return the sum over the records, UNPROTECTED, in integers: the one place that reads them."""
        total = np.zeros(self.statistic.problem.d, dtype=np.int64)
        for features, _ in data.blocks():
            total += self.encode(features).sum(axis=0)
        return total

    def published(self, sums: np.ndarray, noise: np.ndarray) -> np.ndarray:
        """Return the released mean."""
        return (sums + noise).astype(float) / (STEPS * self.statistic.problem.n)


def moment_releases(columns: Columns, statistics: tuple[Statistic, ...]) -> tuple[StatisticRelease, ...]:
    """Return the releases of the means and, where columns are numeric, of the squares."""
    encoders = (partial(_centred, columns), partial(_squares, columns))
    return tuple(StatisticRelease(*pair) for pair in zip(statistics, encoders, strict=False))


@np.errstate(all="ignore")  # a warning would tell something about a record
def _centred(columns: Columns, features: np.ndarray) -> np.ndarray:
    """Return the columns z of each record, in units of their half-widths."""
    z = (features[:, : columns.d] - columns.centre) / columns.half
    return columns.domain.integers(z, STEPS).astype(np.int64)


def _squares(columns: Columns, features: np.ndarray) -> np.ndarray:
    """Return z² of a ball's columns and 2z² - 1 of a box's; rounded down, which keeps a ball's within their sum."""
    z = _centred(columns, features)[:, columns.numeric]
    squares = z * z // STEPS
    return squares if isinstance(columns.squares, Ball) else 2 * squares - STEPS
