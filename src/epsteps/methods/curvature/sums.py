"""The sums that curvature first asks for: moments of the columns, and the second moment of whitened records."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from epsteps.budgets import Cost, mechanisms
from epsteps.methods.curvature import CONSTANT, MATRIX_STEPS, Statistic, Whitening
from epsteps.plans.requests import Draw, Sum
from epsteps.problem.domain import Columns
from epsteps.problem.grid import STEPS
from epsteps.problem.problem import Problem
from epsteps.problem.rounding import down, up
from epsteps.problem.shapes import Frobenius, Nuclear

if TYPE_CHECKING:
    from epsteps.noise import Source


@dataclass(frozen=True, eq=False)
class ColumnMeans(Sum):
    """The mean of the columns, or of their squares, to be released with integer noise.

    Formal guarantee: every record is an integer vector inside 2^20 times the statistic's domain, whatever it holds, so
    that the sum moves by 2^20 times that problem's sensitivity at most, for which the noise is scaled.
    """

    problem: Problem
    statistic: Statistic
    columns: Columns
    squared: bool

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
        """Return the sum over a few records, UNPROTECTED, in integers."""
        encoded = self.encode(features)
        return (np.ones(len(encoded)) @ encoded).astype(np.int64)  # a double adds 2^13 integers within 2^20 exactly

    @np.errstate(all="ignore")  # a warning would tell something about a record
    def encode(self, features: np.ndarray) -> np.ndarray:
        """Return what each record adds, from its integers on the problem's grid: integers, which are floats.

        That is z of all columns, or of the numeric ones z² in a ball and 2z² - 1 in a box. Squares are rounded down,
        which keeps a ball's within their sum.
        """
        columns = self.columns
        z = columns.integers(features[:, : columns.d], self.problem.units[: columns.d], STEPS)
        if not self.squared:
            return z
        z = z if len(columns.numeric) == columns.d else z[:, columns.numeric]
        squares = z * z
        squares *= 1 / STEPS
        np.floor(squares, out=squares)
        if columns.factor != 1:
            squares *= columns.factor
        if columns.offset:
            squares -= columns.offset * STEPS
        return squares

    def publish(self, reading: np.ndarray, draw: Draw) -> np.ndarray:
        """Return the released mean."""
        return (reading + draw["noise"]).astype(float) / (STEPS * self.statistic.problem.n)


def column_means(problem: Problem, columns: Columns, statistics: tuple[Statistic, ...]) -> list[ColumnMeans]:
    """Return the requests for the means and, where columns are numeric, for the squares."""
    return [
        ColumnMeans(problem, each, columns, squared) for each, squared in zip(statistics, (False, True), strict=False)
    ]


# The constant coordinate of a whitened record in integers, and the largest squared norm of the others.
CONSTANT_STEPS = math.floor(MATRIX_STEPS * math.sqrt(CONSTANT / (1 + CONSTANT)))
_LENGTH = MATRIX_STEPS**2 - CONSTANT_STEPS**2


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
        """Return the sum over a few records, UNPROTECTED, in integers: doubles hold those of 2^20 records."""
        a, sums = self.encode(features), np.empty((self.k, self.k))
        sums[:-1, :-1] = a.T @ a
        sums[-1, :-1] = sums[:-1, -1] = CONSTANT_STEPS * (np.ones(len(a)) @ a)
        sums[-1, -1] = CONSTANT_STEPS**2 * len(a)
        return sums.astype(np.int64)

    @np.errstate(all="ignore")  # a warning would tell something about a record
    def encode(self, features: np.ndarray) -> np.ndarray:
        """Return each whitened record but its constant, from its integers on the problem's grid: integers, as floats.

        With the constant their norm is at most 2^16, exactly. They are rounded to the nearest; where a record is then
        too long, it is shortened and rounded toward 0. Squares add up to less than 2^53, in whatever order.
        """
        columns, scale, shift = self._affine
        a = features[:, columns] * scale
        a -= shift
        np.rint(a, out=a)
        most = 2.0 ** ((52 - self.k.bit_length()) // 2)
        if not np.max(np.abs(scale) * STEPS + np.abs(shift)) < most:
            np.clip(a, -most, most, out=a)
        square = np.einsum("ij,ij->i", a, a)
        if len(too_long := np.flatnonzero(~(square <= _LENGTH))):
            shortened = np.trunc(a[too_long] * down(np.sqrt(_LENGTH / square[too_long]))[:, None])
            outside = ~(np.einsum("ij,ij->i", shortened, shortened) <= _LENGTH)
            shortened[outside] = 0.0  # cannot happen, and would not harm
            a[too_long] = shortened
        return a

    @cached_property
    def _affine(self) -> tuple[np.ndarray | slice, np.ndarray, np.ndarray]:
        """Which columns are taken, and scale and shift: scale x (integer of the grid) - shift is the whitened one."""
        whitening, steps = self.whitening, MATRIX_STEPS / np.sqrt(self.whitening.whole)
        scale, every = whitening.weights * steps, np.array_equal(whitening.columns, np.arange(self.problem.d))
        grid = scale * self.problem.units[whitening.columns] / STEPS
        return slice(self.problem.d) if every else whitening.columns, grid, scale * whitening.mean

    def publish(self, reading: np.ndarray, draw: Draw) -> np.ndarray:
        """Return the released mean in real units."""
        return (reading + draw["noise"]).astype(float) * (self.whitening.whole / (MATRIX_STEPS**2 * self.problem.n))
