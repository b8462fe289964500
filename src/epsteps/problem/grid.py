"""The integers that a private gradient is summed in: grids for records, points and slopes, from public numbers.

A record's features are rounded to integers u within 2^20, inside the declared domain; a step's point to integers such
that every margin is an exact sum; a slope to an integer c within 2^20 (``problem.levels``). The sum of c u is then the
same whatever engine, threads, blocks or order, and one record moves it by what it moves the real sum, in every norm.
(Float sums do not have this: neighbours exist whose float32 sums differ by hundreds of sensitivities.)
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from epsteps.problem import levels
from epsteps.problem.problem import Problem, held_point
from epsteps.problem.rounding import down, up
from epsteps.problem.shapes import Shape

# A feature at the domain's largest value is this many steps.
STEPS = 2**20
_BITS = 20
# Doubles hold integers exactly up to 2^53: a sum of this many products c u fits.
ROWS_PER_DOUBLE = 2**13
# And a sum of this many fits 62 bits.
ROWS_PER_INT64 = 2**22
_ROWS_BITS = 22
# Noise of about so many bits is drawn quickly, and is still spread over billions of integers.
_NOISE_BITS = 36
# Squared length of points that are used as they are, far below where they are held.
_SHORT = 1e150


@dataclass(frozen=True, eq=False)
class Points:
    """Points (one per column) on the grid: ``margin = step x (coefficients'u)``, slopes in steps of ``bound/2^20``."""

    coefficients: np.ndarray
    step: np.ndarray
    bound: np.ndarray

    def column(self, index: int) -> "Points":
        """Return one of the points."""
        part = slice(index, index + 1)
        return Points(self.coefficients[:, part], self.step[part], self.bound[part])


@dataclass(frozen=True)
class Grid:
    """The grids of a problem."""

    problem: Problem

    @property
    def units(self) -> np.ndarray:
        """Real size of 2^20 steps of each coordinate: the domain's largest value; 1 for the intercept."""
        return self.problem.units

    def points(self, x: np.ndarray, bound: np.ndarray | float) -> Points:
        """Return the points nearest to the columns of x whose margins are exact: sums below 2^53 in any order.

        ``bound`` is the largest slope at each point, which a step of ``levels`` is a fraction of. Whatever floats x is,
        as a run that diverged does, points and margins are finite.
        """
        # A point this short has nothing to hold; the comparison is False for NaN as well.
        scaled = (x if np.vdot(x, x) < _SHORT else held_point(x)) * self._column
        if x.shape[1] == 1:
            exponent = math.frexp(np.abs(scaled).max())[1]
            steps, bounds = np.array([math.ldexp(1.0, exponent - self._bits - _BITS)]), np.array([bound], dtype=float)
            return Points(np.rint(np.ldexp(scaled, self._bits - exponent)), steps, bounds.reshape(1))
        _, exponent = np.frexp(np.abs(scaled).max(axis=0))
        coefficients = np.rint(np.ldexp(scaled, self._bits - exponent))
        steps = np.ldexp(1.0, exponent - self._bits - _BITS)
        return Points(coefficients, steps, np.full(x.shape[1:], bound, dtype=float))

    @cached_property
    def _bits(self) -> int:
        """Bits of a coefficient, so that sums over all coordinates are exact."""
        return 53 - _BITS - math.ceil(math.log2(self.problem.dimension))

    @cached_property
    def _column(self) -> np.ndarray:
        return self.units[:, None]

    def gradient_step(self, bound: np.ndarray | float) -> np.ndarray:
        """Return the real size of one integer of a gradient sum, for each coordinate, where slopes have this bound."""
        return self._column * bound / (STEPS * levels.STEPS)

    def release(self, scale: np.ndarray | float, bound: np.ndarray | float, shape: Shape) -> "Release":
        """Return the integers in which a gradient sum with noise of this shape and real scale is released.

        Where the noise of a coordinate would be many bits long, its sum is first rounded to multiples of 2^shift. In
        those units one record moves the coordinate by at most one more than before, and the scale grows by that: on a
        cube by a share of at most d/(2^35 epsilon), for a step of this epsilon. Each coordinate has a shift of its
        own, so that units of very different sizes do not matter; noise of a body has one scale for all of them, in
        integers of the body's units, and one shift.

        Formal guarantee: the rounded sum fits into 62 bits whatever the n records are. The noise is known modulo 2^64,
        and is added to it modulo 2^64: a function of the sum with the whole noise.
        """
        cells = self._steady_cells(scale, bound, shape) or self._cells(scale, bound, shape)
        # Samplers draw no finer noise: there is then a little more of it than was paid for.
        grown = np.maximum(up(scale / cells.unit * (1 + cells.growth)), shape.finest)
        release = Release(cells.shift, cells.step, grown if shape.stretches else grown[0])
        vars(release)["_half"] = cells.half
        return release

    def _cells(self, scale: np.ndarray | float, bound: np.ndarray | float, shape: Shape) -> "Cells":
        step = self.gradient_step(bound)
        unit = step if shape.stretches else step / self._column
        bits = np.frexp(np.broadcast_to(scale / unit, step.shape))[1].astype(np.int64)
        shift = np.maximum(bits - _NOISE_BITS, max(0, math.ceil(math.log2(self.problem.n)) - _ROWS_BITS))
        if not shape.stretches:
            shift = np.broadcast_to(shift.max(axis=0), shift.shape)
        coarse, growth = np.ldexp(unit, shift), 0.0
        if shift.any():
            moved = _reach(shape, np.where(shift > 0, coarse, 0.0)) if shape.stretches else shape.cube * coarse[0]
            growth = moved / (2 * self.problem.gradient_size(bound, shape.norm))
        cells = Cells(shift, np.ldexp(step, shift), coarse, growth, _half(shift))
        if isinstance(scale, float) and isinstance(bound, float):
            # Any scale between these has the same bits in every coordinate, whatever its quotient's rounding.
            between = up(float(np.max(np.ldexp(unit, bits - 1)))), down(float(np.min(np.ldexp(unit, bits))))
            vars(self)["_latest"] = bound, shape, between, cells
        return cells

    def _steady_cells(self, scale: np.ndarray | float, bound: np.ndarray | float, shape: Shape) -> "Cells | None":
        """Return the latest cells if they are these: one step of a plan has nearly the scale of the step before."""
        known, body, (low, high), cells = self._latest
        same = body is shape and isinstance(scale, float) and isinstance(bound, float) and bound == known
        return cells if same and low <= scale < high else None

    @cached_property
    def _latest(self) -> tuple[float, Shape | None, tuple[float, float], "Cells | None"]:
        return 0.0, None, (0.0, 0.0), None


class Cells(NamedTuple):
    """Integers of 2^shift: the real size of those of a sum and of the noise, and what rounding adds to its scale."""

    shift: np.ndarray
    step: np.ndarray
    unit: np.ndarray
    growth: np.ndarray | float
    half: np.ndarray | None


def _half(shift: np.ndarray) -> np.ndarray | None:
    """Return what is added before sums are shifted, or None where int64 does not hold it with them."""
    return None if shift.max() >= _ROWS_BITS + 40 else 1 << shift >> 1


@dataclass(frozen=True, eq=False)
class Release:
    """Released integers: multiples of 2^shift of the sum's, each of real size ``step``, with noise of this scale.

    There is one shift for each coordinate and column. So it is with the scale, or one for each column where the noise
    is a body's.
    """

    shift: np.ndarray
    step: np.ndarray
    scale: np.ndarray

    def rounded(self, sums: np.ndarray) -> np.ndarray:
        """Return sums in released integers, int64: floor(sum/2^shift + 1/2), in integer arithmetic."""
        if sums.dtype == object or self._half is None:
            shift = self.shift.astype(object)
            return ((sums.astype(object) + (1 << shift >> 1)) >> shift).astype(np.int64)
        return (sums + self._half) >> self.shift

    @cached_property
    def _half(self) -> np.ndarray | None:
        return _half(self.shift)

    def noisy(self, sums: np.ndarray, noise: np.ndarray) -> np.ndarray:
        """Return sums with noise in real units; added modulo 2^64, which is how the noise is known."""
        return (self.rounded(sums) + noise.astype(np.int64, copy=False)) * self.step


def _reach(shape: Shape, sizes: np.ndarray) -> np.ndarray:
    """Return what columns of entries of such sizes may gauge, whatever these are: squares do not vanish or overflow."""
    largest = np.maximum(np.max(sizes, axis=0), np.finfo(float).tiny)
    return largest * shape.reach(sizes / largest)


def wrapped(integer: int) -> int:
    """Return an integer modulo 2^64, in the range of int64: no noise is too large to be drawn."""
    return (integer + 2**63) % 2**64 - 2**63


def added(integers: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Return integers with noise as int64, added modulo 2^64: for noise that is known modulo 2^64, as most is.

    It is a function of the sum with the whole noise, so that it is as private as that, exactly. A sum of Python's
    integers with reduced noise would not be.
    """
    if integers.dtype != object and noise.dtype != object:
        return integers.astype(np.int64) + noise.astype(np.int64)
    total = integers.astype(object) + noise.astype(object)
    return np.array([wrapped(int(entry)) for entry in total.ravel()], dtype=np.int64).reshape(total.shape)


def total(parts: Iterable[np.ndarray], count: int, most: int = ROWS_PER_INT64) -> np.ndarray:
    """Add int64 sums of at most ``most`` of ``count`` records: in int64 if they all fit, else in two halves.

    Above, the result consists of Python's integers.
    """
    parts = list(parts)
    if count <= most:
        return np.sum(parts, axis=0)
    high = np.sum([part >> 32 for part in parts], axis=0)
    low = np.sum([part & 0xFFFFFFFF for part in parts], axis=0)
    return (high.astype(object) << 32) + low.astype(object)
