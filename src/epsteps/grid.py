"""The integers that a private gradient is summed in: grids for records, points and slopes, from public numbers.

A record's features are rounded to integers u within 2^20, inside the declared domain; a step's point to integers such
that every margin is an exact sum; a slope to an integer c within 2^20 (``epsteps.levels``). The sum of c u is then the
same whatever engine, threads, blocks or order, and one record moves it by what it moves the real sum, in every norm.
(Float sums do not have this: neighbours exist whose float32 sums differ by hundreds of sensitivities.)
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from epsteps import levels
from epsteps.problem import Problem

# A feature at the domain's largest value is this many steps.
STEPS = 2**20
_BITS = 20
# Doubles hold integers exactly up to 2^53: a sum of this many products c u fits.
ROWS_PER_DOUBLE = 2**13
# And a sum of this many fits 62 bits.
ROWS_PER_INT64 = 2**22
_LARGEST_POINT = 1e100  # a run that diverged is held here, so that no margin is infinite


@dataclass(frozen=True, eq=False)
class Points:
    """Points (one per column) on the grid: ``margin = step x (coefficients'u)``, slopes in steps of ``bound/2^20``."""

    coefficients: np.ndarray
    step: np.ndarray
    bound: np.ndarray


@dataclass(frozen=True)
class Grid:
    """The grids of a problem."""

    problem: Problem

    @cached_property
    def units(self) -> np.ndarray:
        """Real size of 2^20 steps of each coordinate: the domain's largest value; 1 for the intercept."""
        units = np.ones(self.problem.dimension)
        units[: self.problem.d] = self.problem.domain.size(math.inf, self.problem.d)
        return units

    def points(self, x: np.ndarray, bound: np.ndarray | float) -> Points:
        """Return the points nearest to the columns of x whose margins are exact: sums below 2^53 in any order.

        ``bound`` is the largest slope at each point, which a step of ``levels`` is a fraction of.
        """
        scaled = np.clip(np.nan_to_num(x), -_LARGEST_POINT, _LARGEST_POINT) * self.units[:, None]
        bits = 53 - _BITS - math.ceil(math.log2(self.problem.dimension))
        _, exponent = np.frexp(np.max(np.abs(scaled), axis=0))
        coefficients = np.rint(np.ldexp(scaled, bits - exponent))
        return Points(
            coefficients, np.ldexp(1.0, exponent - bits - _BITS), np.broadcast_to(bound, x.shape[1:]).astype(float)
        )

    def gradient_step(self, points: Points) -> np.ndarray:
        """Return the real size of one integer of a gradient sum, for each coordinate and point."""
        return self.units[:, None] * points.bound / (STEPS * levels.STEPS)


def total(parts: Iterable[np.ndarray], count: int) -> np.ndarray:
    """Add int64 sums of at most ``ROWS_PER_INT64`` of ``count`` records: in int64 if they all fit, else in two halves.

    Above, the result consists of Python's integers.
    """
    parts = list(parts)
    if count <= ROWS_PER_INT64:
        return np.sum(parts, axis=0)
    high = np.sum([part >> 32 for part in parts], axis=0)
    low = np.sum([part & 0xFFFFFFFF for part in parts], axis=0)
    return (high.astype(object) << 32) + low.astype(object)
