"""Exact passes over the records for a solver: gradients in fixed point, and a rough matrix of second derivatives.

Everything is a sum of integers, so that a solver's path is the same, to the last bit, whatever engine, threads, workers
or blocks add them up. What is rounded is each record's own margin and slope alone: there is no error of summation.
"""

from dataclasses import dataclass
from functools import cached_property
from operator import methodcaller
from typing import NamedTuple

import numpy as np

from epsteps.data.chunks import LIMB_BITS, LIMBS, Chunk
from epsteps.data.rows import Rows
from epsteps.methods.minimum import Minimised, rounding
from epsteps.problem.grid import STEPS, Grid
from epsteps.problem.losses import Loss
from epsteps.problem.rounding import up

# Bits of a point's coordinates, for each kind of float that slopes are computed in.
_POINT_BITS = {np.dtype(np.float64): 56, np.dtype(np.longdouble): 63}
# Rounding errors of a slope in units of its size: 20 of its formula, and those of fixed point and of the last sums.
_ROUNDINGS = 24
# Second derivatives are rough: integers of so many bits, for records and for weights.
_RECORD_BITS, _WEIGHT_BITS = 12, 10


@dataclass(frozen=True, eq=False)
class Digits:
    """A point in fixed point: ``margin = sum over limbs of weight x (limb's product with the record's integers)``.

    Limbs have the sign of what they are part of, so that their sizes add up to its size.
    """

    limbs: np.ndarray
    weights: np.ndarray

    @classmethod
    def of(cls, x: np.ndarray, units: np.ndarray, outputs: int, kind: np.dtype) -> "Digits":
        """Return the point nearest to x: each limb's products with a record's integers add up to less than 2^53."""
        scaled = x.astype(np.longdouble) * units
        width = len(x) // outputs
        bits = 53 - STEPS.bit_length() + 1 - max(width - 1, 1).bit_length()
        most = min(_POINT_BITS[kind], np.finfo(np.longdouble).nmant)
        exponent = int(np.frexp(np.max(np.abs(scaled)))[1]) - most
        integers, limbs = np.rint(np.ldexp(scaled, -exponent)), []
        count = -(-most // bits)
        for place in reversed(range(count)):
            limbs.append(np.trunc(np.ldexp(integers, -bits * place)))
            integers = integers - np.ldexp(limbs[-1], bits * place)
        weights = np.ldexp(kind.type(1), np.array([exponent + bits * place for place in reversed(range(count))]))
        by_output = np.stack(limbs).astype(float).reshape(count, outputs, width)
        return cls(by_output.transpose(2, 1, 0).reshape(width, -1), weights / STEPS)

    def margins(self, chunk: Chunk) -> np.ndarray:
        """Return the chunk's margins, one column for each output."""
        return chunk.margins(self.limbs, self.weights)


@dataclass(frozen=True, eq=False)
class Slopes:
    """The term of a gradient: each record's slopes at a point, in fixed point, times its integers."""

    loss: Loss
    point: Digits

    @cached_property
    def largest(self) -> float:
        """The power of two that slopes are in units of."""
        return float(2.0 ** np.ceil(np.log2(self.loss.slope)))

    @np.errstate(all="ignore")  # a warning would tell something about a record
    def __call__(self, chunk: Chunk) -> np.ndarray:
        """Return the sums of limb x record: the limbs of every output's slope below each other's columns."""
        return chunk.gather_fixed(chunk.each(self._shares, self.point.margins(chunk)))

    def _shares(self, margins: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Return slopes, one column for each output, in units of the largest."""
        if self.loss.outputs == 1:
            slopes = self.loss.derivative(margins[:, 0], targets)[:, None]
        else:
            slopes = self.loss.derivative(margins, targets[:, None])
        return slopes / slopes.dtype.type(self.largest)

    def gradient(self, sums: np.ndarray, units: np.ndarray) -> np.ndarray:
        """Return the sum's gradient in real units from the sums of the limbs, in long doubles."""
        limbs = sums.reshape(len(sums), self.loss.outputs, LIMBS).astype(np.longdouble)
        total = limbs[:, :, 0]
        for limb in range(1, LIMBS):
            total = total * 2**LIMB_BITS + limbs[:, :, limb]
        return total.T.ravel() * (units * (self.largest * 2.0 ** -(LIMBS * LIMB_BITS) / STEPS))


@dataclass(frozen=True, eq=False)
class Bends:
    """The term of a rough Hessian: records and second derivatives of few bits, each output by itself.

    ``whole`` asks for matrices, one for each output; otherwise there are their diagonals. What it gives decides how
    fast a solver is, and nothing else: records that are much longer than most in a column are clipped.
    """

    loss: Loss
    point: Digits
    factors: np.ndarray
    whole: bool

    @np.errstate(all="ignore")
    def __call__(self, chunk: Chunk) -> np.ndarray:
        """Return the sums of weight x product of scaled records."""
        weights = chunk.each(self._weights, self.point.margins(chunk))
        scaled = chunk.scaled(self.factors, 2**_RECORD_BITS - 1)
        if not self.whole:
            return chunk.weighted_squares(scaled, weights)
        return np.stack([chunk.weighted_products(scaled, column) for column in weights.T])

    def _weights(self, margins: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Return second derivatives as integers, one column for each output."""
        if self.loss.outputs == 1:
            bends = self.loss.bends(margins[:, 0], targets)[:, None]
        else:
            bends = self.loss.bends(margins, targets[:, None])
        return np.clip(np.rint(bends * (2**_WEIGHT_BITS / self.loss.curvature)), 0, 2**_WEIGHT_BITS)


class Certified(NamedTuple):
    """A gradient, and a bound on the L2 norm of its error."""

    gradient: np.ndarray
    error: float

    @property
    def least(self) -> float:
        """A lower bound on the norm of the exact gradient."""
        return float(np.linalg.norm(self.gradient)) * (1 - self._norm_error) - self.error

    @property
    def most(self) -> float:
        """An upper bound on the norm of the exact gradient."""
        return float(np.linalg.norm(self.gradient)) * (1 + self._norm_error) + up(self.error)

    @property
    def _norm_error(self) -> float:
        """What the norm's own roundings amount to: d squares, their sum, a root, and the last sum."""
        return (len(self.gradient) + 8) * float(np.finfo(float).eps)


def certified_gradient(
    data: Rows, objective: Minimised, x: np.ndarray, tilt: np.ndarray, kind: type, rows: np.ndarray | None = None
) -> Certified:
    """Return the UNPROTECTED gradient of ``n F(x) + tilt'x``, its slopes computed in this kind of float.

    With ``rows``, of n times the mean over these. The bound is for the coarsest kind that slopes were computed in.

    Formal guarantee: of a record the margin and the slopes are rounded, as ``rounding`` counts, and nothing else: sums
    are exact, and their last conversions count as two roundings of a slope each.
    """
    problem, loss = objective.stated, objective.loss
    units = Grid(problem).units
    term = Slopes(loss, Digits.of(x, units, loss.outputs, np.dtype(kind)))
    share = 1 if rows is None else problem.n / len(rows)
    total = term.gradient(data.total(term, rows), units) * np.longdouble(share)
    total = total + np.longdouble(problem.n) * np.longdouble(problem.ridge) * x + tilt
    coarsest = loss.derivative(
        np.ones((1, loss.outputs), kind)[:, 0] if loss.outputs == 1 else np.ones((1, loss.outputs), kind),
        np.ones((1, 1)) if loss.outputs > 1 else np.ones(1),
    ).dtype
    unit = max(float(np.finfo(each).eps) for each in (kind, coarsest))
    error = rounding(objective, float(np.linalg.norm(x)), float(np.linalg.norm(tilt)), unit, _ROUNDINGS)
    return Certified(total, error)


def column_sizes(data: Rows, rows: np.ndarray | None) -> np.ndarray:
    """Return the UNPROTECTED root mean square of each column's integers."""
    count = data.problem.n if rows is None else len(rows)
    return np.sqrt(data.total(methodcaller("squares"), rows).astype(float) / count)


def rough_hessian(
    data: Rows, objective: Minimised, x: np.ndarray, sizes: np.ndarray, rows: np.ndarray | None, *, whole: bool
) -> np.ndarray:
    """Return the UNPROTECTED second derivatives of F, roughly, over these rows: a matrix, or a diagonal, per output."""
    problem, loss = objective.stated, objective.loss
    units, count = Grid(problem).units, problem.n if rows is None else len(rows)
    factors = 2.0 ** np.rint(np.log2(2.0 ** (_RECORD_BITS - 4) / np.where(sizes > 0, sizes, 1.0)))
    term = Bends(loss, Digits.of(x, units, loss.outputs, np.dtype(float)), factors, whole)
    sums = data.total(term, rows).astype(float) * (loss.curvature / 2**_WEIGHT_BITS / count)
    real = units[: problem.width] / STEPS / factors
    if whole:
        return sums * np.outer(real, real) + problem.ridge * np.eye(problem.width)
    return sums.T * real**2 + problem.ridge
