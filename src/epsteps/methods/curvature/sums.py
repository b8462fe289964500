"""The sums that curvature first asks for: moments of the columns, and the second moment of whitened records."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np

from epsteps.budgets import Cost, mechanisms
from epsteps.methods.curvature import MATRIX_STEPS, Statistic, Whitening
from epsteps.plans.requests import Draw, Sum
from epsteps.problem.ball import Ball
from epsteps.problem.domain import Columns
from epsteps.problem.grid import STEPS
from epsteps.problem.problem import Problem
from epsteps.problem.rounding import up
from epsteps.problem.shapes import Frobenius, Nuclear

if TYPE_CHECKING:
    from epsteps.noise import Source


@dataclass(frozen=True, eq=False)
class ColumnMeans(Sum):
    """The mean of a statistic, to be released with integer noise; ``encode`` returns each record's in integers.

    Formal guarantee: every record is an integer vector inside 2^20 times the statistic's domain, whatever it holds, so
    that the sum moves by 2^20 times that problem's sensitivity at most, for which the noise is scaled.
    """

    problem: Problem
    statistic: Statistic
    encode: Callable[[np.ndarray], np.ndarray]

    @cached_property
    def costs(self) -> tuple[Cost, ...]:
        """The cost of noise of this scale, for the sensitivity of vectors in the statistic's domain."""
        statistic = self.statistic
        ratio = statistic.problem.sensitivity(statistic.mechanism.norm) / statistic.scale
        return (statistic.mechanism.kind(float(statistic.mechanism.kind.amount_of(ratio))),)

    def draw(self, source: "Source") -> Draw:
        """Draw what is added, in integers. Sees no records."""
        mechanism, problem = self.statistic.mechanism, self.statistic.problem
        scale = up(self.statistic.scale * STEPS)
        return {"noise": source.integers(mechanism, scale, (problem.d,), mechanism.shape(problem))}

    def block(self, features: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Return the sum over a block, UNPROTECTED, in integers."""
        return self.encode(features * real_units(self.problem)).sum(axis=0)

    def publish(self, reading: np.ndarray, draw: Draw) -> np.ndarray:
        """Return the released mean."""
        return (reading + draw["noise"]).astype(float) / (STEPS * self.statistic.problem.n)


def real_units(problem: Problem) -> np.ndarray:
    """Return the real size of one integer of each feature."""
    return problem.units[: problem.width] / STEPS


def column_means(problem: Problem, columns: Columns, statistics: tuple[Statistic, ...]) -> list[ColumnMeans]:
    """Return the requests for the means and, where columns are numeric, for the squares."""
    encoders = (partial(_encode_means, columns), partial(_encode_squares, columns))
    return [ColumnMeans(problem, *pair) for pair in zip(statistics, encoders, strict=False)]


@np.errstate(all="ignore")  # a warning would tell something about a record
def _encode_means(columns: Columns, features: np.ndarray) -> np.ndarray:
    """Return the columns z of each record, in units of their half-widths."""
    z = (features[:, : columns.d] - columns.centre) / columns.half
    return columns.domain.integers(z, STEPS).astype(np.int64)


def _encode_squares(columns: Columns, features: np.ndarray) -> np.ndarray:
    """Return z² of a ball's columns and 2z² - 1 of a box's; rounded down, which keeps a ball's within their sum."""
    z = _encode_means(columns, features)[:, columns.numeric]
    squares = z * z // STEPS
    return columns.factor * squares - columns.offset * STEPS


@dataclass(frozen=True, eq=False)
class SecondMoment(Sum):
    """The mean of a a' over whitened records a with their constant coordinate, to be released with integer noise.

    Formal guarantee: every a is an integer vector of norm at most 2^16, so that replacing one moves the sum by at most
    2^33 in the nuclear norm and √2 2^32 in Frobenius'. The noise is exact: a difference of two Wishart matrices, whose
    density changes by at most the nuclear norm over 2c (``Nuclear``), costs epsilon with
    c = 2^32/epsilon; a Gaussian matrix costs rho with a standard deviation of 2^32/√rho on the diagonal and √2 times
    less off it, which is Frobenius' geometry.
    """

    problem: Problem
    whitening: Whitening
    kind: type[Cost]
    cost: float

    @cached_property
    def costs(self) -> tuple[Cost, ...]:
        """The cost, which the noise is scaled for."""
        return (self.kind(self.cost),)

    @property
    def k(self) -> int:
        """Number of rows of the matrix."""
        return len(self.whitening.columns) + 1

    def draw(self, source: "Source") -> Draw:
        """Draw what is added, in integers. Sees no records."""
        shape = self.kind.either(Nuclear(self.k), Frobenius(self.k, lower=True))
        scale = up(MATRIX_STEPS**2 / self.kind.either(self.cost, np.sqrt(self.cost)))
        return {"noise": source.integers(mechanisms.of_matrices(self.kind), scale, shape.array, shape)}

    def block(self, features: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Return the sum over a few records, UNPROTECTED, in integers."""
        a = self.encode(features * real_units(self.problem))
        return (a.T @ a).astype(np.int64)

    @np.errstate(all="ignore")  # a warning would tell something about a record
    def encode(self, features: np.ndarray) -> np.ndarray:
        """Return each whitened record in integers, which are floats, of norm at most 2^16, exactly."""
        whitening = self.whitening
        a = np.full((len(features), self.k), whitening.constant)
        a[:, :-1] = (features[:, whitening.columns] - whitening.mean) * whitening.weights
        a[:, :-1] *= np.minimum(1.0, np.sqrt(whitening.length / np.sum(a[:, :-1] ** 2, axis=1)))[:, None]
        return Ball(np.sqrt(whitening.whole)).integers(a, MATRIX_STEPS)

    def publish(self, reading: np.ndarray, draw: Draw) -> np.ndarray:
        """Return the released mean in real units."""
        return (reading + draw["noise"]).astype(float) * (self.whitening.whole / (MATRIX_STEPS**2 * self.problem.n))
