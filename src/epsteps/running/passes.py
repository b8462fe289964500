"""Exact passes over the records for a solver: gradients in fixed point, and a rough matrix of second derivatives.

Everything is a sum of integers, so that a solver's path is the same, to the last bit, whatever engine, threads, workers
or blocks add them up. What is rounded is each record's own margin and slope alone: there is no error of summation.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from operator import methodcaller
from typing import NamedTuple

import numpy as np

from epsteps.data.chunks import Chunk, Elementwise
from epsteps.data.rows import Rows
from epsteps.methods.minimum import Minimised, rounding
from epsteps.problem.grid import STEPS
from epsteps.problem.losses import Loss
from epsteps.problem.problem import Problem
from epsteps.problem.rounding import up
from epsteps.problem.weighting import Measure, Shares

# Bits of a rough Hessian's records and weights, and of a fine one's weights: products are added exactly.
_RECORD_BITS, _ROUGH_BITS, _FINE_BITS = 12, 10, 20
_LIMB_BITS = 20


# Bits of the longest floats that points come in, or of this machine's.
_LONG_BITS = min(63, np.finfo(np.longdouble).nmant)


class Precision(NamedTuple):
    """How finely a gradient is computed: in which kind of float, slopes in how many limbs, points in how many bits.

    The bits of a point are the fewest: what its limbs hold beyond them costs nothing.
    """

    kind: type
    limbs: int
    bits: int

    def point_limbs(self, width: int) -> int:
        """Return how many limbs a point has: products of each with a record's integers add up to less than 2^53."""
        return -(-self.bits // _room(width))

    def point_bits(self, width: int) -> int:
        """Return how many bits a point has: as many as its limbs hold."""
        return max(self.bits, min(self.point_limbs(width) * _room(width), _LONG_BITS))

    def error(self, objective: Minimised, point_size: float, tilt_size: float, reach: float = math.inf) -> float:
        """Bound the L2 norm of the error of ``n ∇F(x) + b``, for |x|, |b| and the largest of all |x_j| unit_j.

        Formal guarantee: sums are exact, so that a record's own margin and slopes are all that is rounded, besides the
        last conversions, four units of a slope. 20 cover the slope's formula. A margin is a sum of exact products, one
        for each limb, whose sizes add up to |u| |x| at most, of a point that was rounded once: half a unit for each.
        In fixed point a slope is off by half of its last limb's unit, and a coordinate times its unit by 2^-bits of the
        largest, at most |u| |x|, which makes ``width`` times as much for a margin. (docs/proofs.md, section 9.) Records
        with weights have 1/mean of these errors at most, and what ``rounding`` adds for them.
        """
        problem, loss = objective.stated, objective.steepest
        size = problem.record_size(2)
        slopes = power_of_two_above(loss.slope) * 2.0 ** -(_LIMB_BITS * self.limbs + 1)
        rounded = min(reach, size * point_size) * 2.0 ** -self.point_bits(problem.width)
        margins = loss.curvature * problem.width * rounded
        fixed = 1.01 * problem.n * (size / objective.mean) * (slopes + margins) * math.sqrt(loss.outputs)
        unit = float(np.finfo(self.kind).eps)
        return fixed + rounding(objective, point_size, tilt_size, unit, 24, self.point_limbs(problem.width) / 2)


ROUGH, MIDDLE, FINE = Precision(np.float64, 1, 26), Precision(np.float64, 2, 46), Precision(np.float64, 3, 56)
# As fine as long doubles are; on machines where they are doubles, as those.
LONG = Precision(np.longdouble, 3, _LONG_BITS)


def _room(width: int) -> int:
    """Return the bits of a point's limb: so many products with integers within 2^20 add up to less than 2^53."""
    return 53 - _LIMB_BITS - max(width - 1, 1).bit_length()


def power_of_two_above(size: float) -> float:
    """Return the smallest power of two that is not below a number."""
    mantissa, exponent = math.frexp(size)
    return math.ldexp(1.0, exponent - (mantissa == 0.5))


@dataclass(frozen=True, eq=False)
class Digits:
    """A point in fixed point: ``margin = sum over limbs of weight x (limb's product with the record's integers)``.

    Limbs have the sign of what they are part of, so that their sizes add up to its size.
    """

    limbs: np.ndarray
    weights: np.ndarray

    @classmethod
    def of(cls, x: np.ndarray, problem: Problem, precision: Precision) -> "Digits":
        """Return the point nearest to x: each limb's products with a record's integers add up to less than 2^53."""
        scaled = x.astype(np.longdouble) * problem.units
        room, count = _room(problem.width), precision.point_limbs(problem.width)
        exponent = int(np.frexp(np.max(np.abs(scaled)))[1]) - precision.point_bits(problem.width)
        integers, limbs = np.rint(np.ldexp(scaled, -exponent)), []
        for place in reversed(range(count)):
            limbs.append(np.trunc(np.ldexp(integers, -room * place)))
            integers = integers - np.ldexp(limbs[-1], room * place)
        places = exponent + room * np.arange(count)[::-1]
        by_output = np.stack(limbs, axis=1).astype(float).reshape(-1, problem.width, count)
        return cls(
            np.moveaxis(by_output, 0, 1).reshape(problem.width, -1),
            np.ldexp(precision.kind(1), places) / precision.kind(STEPS),
        )

    def margins(self, chunk: Chunk) -> np.ndarray:
        """Return the chunk's margins, one column for each output."""
        return chunk.margins(self.limbs, self.weights)


def _asked(function: Callable, outputs: int, columns: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Return what a loss's function says of margins and targets, one column for each output.

    The margins are the first columns; one more holds the records' own caps, where they have any.
    """
    margins, caps = columns[:, :outputs], columns[:, outputs:]
    if outputs == 1:
        return function(margins[:, 0], targets, *([caps[:, 0]] if caps.size else []))[:, None]
    return function(margins, targets[:, None], *([caps] if caps.size else []))


def _shortened(margins: np.ndarray, counted: Shares) -> np.ndarray:
    """Return the margins of shortened records, and their caps in a last column, if they have any."""
    shortened = margins * counted.shortening[:, None]
    return shortened if counted.caps is None else np.column_stack([shortened, counted.caps])


def _counted(chunk: Chunk, measure: Measure) -> Shares:
    """Return what each of a chunk's records counts, once for all passes where the engine keeps it."""
    return chunk.kept(measure, lambda: measure.shares(chunk.row_sums(measure.factors, measure.most, measure.norm)))


def _steepest(loss: Loss, measure: Measure | None) -> Loss:
    """Return the loss whose slope and curvature bound those of every record, as ``Minimised.steepest`` says."""
    return loss.uncapped or loss if measure is not None and measure.cap is not None else loss


@dataclass(frozen=True, eq=False)
class Slopes:
    """The term of a gradient: each record's slopes at a point, in fixed point, times its integers.

    With a ``measure``, slopes are those of shortened records, and count what these do: times ``mean``, that is.
    """

    loss: Loss
    point: Digits
    limbs: int
    measure: Measure | None = None

    @np.errstate(all="ignore")  # a warning would tell something about a record
    def __call__(self, chunk: Chunk) -> np.ndarray:
        """Return the sums of limb x record, for the limbs of every output's slope."""
        margins = self.point.margins(chunk)
        if self.measure is None:
            return chunk.gather_fixed(chunk.each(self._shares, margins), self.limbs)
        counted = _counted(chunk, self.measure)
        shares = chunk.each(self._shares, _shortened(margins, counted))
        return chunk.gather_fixed(shares * counted.pulls[:, None], self.limbs)

    def _shares(self, margins: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Return slopes in units of a power of two above the largest."""
        slopes = _asked(self.loss.derivative, self.loss.outputs, margins, targets)
        return slopes * slopes.dtype.type(1 / power_of_two_above(_steepest(self.loss, self.measure).slope))

    def gradient(self, sums: np.ndarray, units: np.ndarray) -> np.ndarray:
        """Return the sum's gradient in real units from the sums of the limbs, in long doubles."""
        limbs = sums.reshape(len(sums), self.loss.outputs, self.limbs).astype(np.longdouble)
        total = limbs[:, :, 0]
        for limb in range(1, self.limbs):
            total = total * 2**_LIMB_BITS + limbs[:, :, limb]
        largest = _steepest(self.loss, self.measure).slope
        size = power_of_two_above(largest) * 2.0 ** -(self.limbs * _LIMB_BITS) / STEPS
        return total.T.ravel() * (units * size)


@dataclass(frozen=True, eq=False)
class Bends:
    """The term of a rough Hessian: records and second derivatives of few bits, each output by itself.

    With ``factors``, which records are multiplied by before they are rounded, it has a matrix for each output; without,
    only the sum of the second derivatives. What it gives decides how fast a solver is, and nothing else: records that
    are much longer than most in a column are clipped.
    """

    loss: Loss
    point: Digits
    factors: np.ndarray | None
    measure: Measure | None = None

    @np.errstate(all="ignore")
    def __call__(self, chunk: Chunk) -> np.ndarray:
        """Return the sums of weight x product of scaled records, or of the weights."""
        weights = _bent(chunk, self._bends, self.point, self.measure)
        if self.factors is None:
            return weights.sum(axis=0).astype(np.int64)
        scaled = chunk.scaled(self.factors, 2**_RECORD_BITS - 1)
        return np.stack([chunk.weighted_products(scaled, column, scaled) for column in weights.T])

    def _bends(self, margins: np.ndarray, targets: np.ndarray) -> np.ndarray:
        bends = _asked(self.loss.bends, self.loss.outputs, margins, targets)
        return _weights(bends, _steepest(self.loss, self.measure), _ROUGH_BITS)


@dataclass(frozen=True, eq=False)
class Curvature:
    """The term of a Hessian: the records as they are, and second derivatives of 20 bits, between outputs as well.

    For every pair of outputs, the second not above the first, it has the products of the records' halves: those of the
    first, of the first with the second, and of the second.
    """

    loss: Loss
    point: Digits
    measure: Measure | None = None

    @np.errstate(all="ignore")
    def __call__(self, chunk: Chunk) -> np.ndarray:
        """Return the sums of weight x product of halves."""
        weights, (high, low) = _bent(chunk, self._seconds, self.point, self.measure), chunk.halves
        halves = ((high, high), (high, low), (low, low))
        return np.stack([[chunk.weighted_products(x, pair, y) for x, y in halves] for pair in weights.T])

    def _seconds(self, margins: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Return second derivatives as integers, one column for each pair of outputs."""
        outputs, (a, b) = self.loss.outputs, np.tril_indices(self.loss.outputs)
        second = _asked(self.loss.second, outputs, margins, targets).reshape(len(margins), outputs, outputs)
        return _weights(second[:, a, b], _steepest(self.loss, self.measure), _FINE_BITS)


def _bent(chunk: Chunk, function: Elementwise, point: Digits, measure: Measure | None) -> np.ndarray:
    """Return second derivatives of the chunk's records, integers of a few bits, times what these count."""
    margins = point.margins(chunk)
    if measure is None:
        return chunk.each(function, margins)
    counted = _counted(chunk, measure)
    return np.rint(chunk.each(function, _shortened(margins, counted)) * counted.bends[:, None])


def _weights(second: np.ndarray, loss: Loss, bits: int) -> np.ndarray:
    """Return second derivatives as integers of so many bits."""
    return np.clip(np.rint(second * (2**bits / loss.curvature)), -(2**bits), 2**bits)


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
    data: Rows,
    objective: Minimised,
    x: np.ndarray,
    tilt: np.ndarray,
    precision: Precision,
    rows: np.ndarray | None = None,
) -> Certified:
    """Return the UNPROTECTED gradient of ``n F(x) + tilt'x``, with a bound on its error.

    With ``rows``, of n times the mean over these records, for which the bound does not hold.
    """
    problem = objective.stated
    term = Slopes(objective.loss, Digits.of(x, problem, precision), precision.limbs, objective.measure)
    total = term.gradient(data.total(term, rows), problem.units) / np.longdouble(objective.mean)
    if rows is not None:
        total = total * (np.longdouble(problem.n) / len(rows))
    total = total + np.longdouble(problem.n) * np.longdouble(problem.ridge) * x + tilt
    return Certified(total, precision.error(objective, *sizes_of(x, tilt, problem.units)))


def sizes_of(x: np.ndarray, tilt: np.ndarray, units: np.ndarray) -> tuple[float, float, float]:
    """Return what bounds the errors of a gradient: |x|, |b|, and the largest coordinate of x in its unit."""
    return float(np.linalg.norm(x)), float(np.linalg.norm(tilt)), float(np.max(np.abs(x) * units))


def column_sizes(data: Rows, rows: np.ndarray | None) -> np.ndarray:
    """Return the UNPROTECTED root mean square of each column's integers."""
    count = data.problem.n if rows is None else len(rows)
    return np.sqrt(data.total(methodcaller("squares"), rows).astype(float) / count)


def rough_hessian(
    data: Rows, objective: Minimised, x: np.ndarray, sizes: np.ndarray, rows: np.ndarray | None, *, whole: bool
) -> np.ndarray:
    """Return the UNPROTECTED second derivatives of F over these rows, roughly: a matrix, or a diagonal, per output.

    A diagonal is that of records of these sizes whose second derivatives do not depend on the record.
    """
    problem, loss, largest = objective.stated, objective.loss, objective.steepest.curvature
    real, factors = problem.units[: problem.width] / STEPS, None
    if whole:
        factors = 2.0 ** np.rint(np.log2(2.0 ** (_RECORD_BITS - 4) / np.where(sizes > 0, sizes, 1.0)))
    sums = data.total(Bends(loss, Digits.of(x, problem, ROUGH), factors, objective.measure), rows)
    means = sums * (largest / 2**_ROUGH_BITS / (problem.n if rows is None else len(rows)) / objective.mean)
    if factors is None:
        return np.outer(means, (sizes * real) ** 2) + problem.ridge
    return means * np.outer(real / factors, real / factors) + problem.ridge * np.eye(problem.width)


def hessian(data: Rows, objective: Minimised, x: np.ndarray, rows: np.ndarray | None) -> np.ndarray:
    """Return the UNPROTECTED second derivatives of F over these rows."""
    problem, loss, largest = objective.stated, objective.loss, objective.steepest.curvature
    count, outputs, width = problem.n if rows is None else len(rows), loss.outputs, problem.width
    sums = data.total(Curvature(loss, Digits.of(x, problem, MIDDLE), objective.measure), rows).astype(float)
    high, middle, low = np.moveaxis(sums, 1, 0) * (largest / 2**_FINE_BITS / count / objective.mean)
    pairs = high * 2.0**20 + (middle + middle.transpose(0, 2, 1)) * 2.0**10 + low
    matrix = np.empty((outputs, width, outputs, width))
    for pair, a, b in zip(pairs, *np.tril_indices(outputs), strict=True):
        matrix[a, :, b, :], matrix[b, :, a, :] = pair, pair
    real = problem.units / STEPS
    return matrix.reshape(len(x), len(x)) * np.outer(real, real) + problem.ridge * np.eye(len(x))
