"""Requests of clipped descent: gradients and pulls of records that are clipped, and how many records have which size.

Records may be measured in a norm that is shorter along an *axis* than elsewhere, and the noise of gradients is then
longer along it (``shapes.Elongated``). A record's *pull* along public directions is what its loss changes by along each
of them: a few numbers, of which noise hides less than of a whole gradient.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from epsteps.budgets import Cost, Rho, mechanisms
from epsteps.methods.bought import InOneUnit
from epsteps.plans.requests import Draw, Gradient, Records, Sum
from epsteps.problem import levels
from epsteps.problem.grid import STEPS, Grid, Points, added
from epsteps.problem.problem import Problem, restated
from epsteps.problem.rounding import down, up
from epsteps.problem.shapes import L1, Elongated, Shape

if TYPE_CHECKING:
    from epsteps.noise import Source

# Sizes end at the largest over 2^(j/4), for so many j.
CELLS, _PER_HALF = 28, 4
# Noise that is longer along an axis.
ELONGATED = mechanisms.Gaussian("elongated")
# What rounding may add to a record's product with an axis, over both lengths; and to a quotient of lengths.
_ROUNDED = 2.0**-40


@dataclass(frozen=True)
class Lengths(InOneUnit):
    """Norms of records, rounded up: from exact sums of squares, so that every engine finds the same.

    The norm is that of L2, or with an ``axis`` a that of ``Elongated``: its square is |u|² - (a'u)²/(1 + |a|²).
    """

    problem: Problem
    axis: tuple[float, ...] = ()

    def of(self, chunk: Any) -> np.ndarray:
        """Return the length of each record of a chunk, UNPROTECTED: above its norm, by little of the longest.

        Entries are rounded to integers of one unit, which moves each by half of it at most, and so the norm by half of
        √width of them.
        """
        return chunk.kept(("lengths", self.axis), lambda: self._of(chunk))

    def _of(self, chunk: Any) -> np.ndarray:
        squares = chunk.row_sums(self._factors, self._most, 2)
        whole = up((np.sqrt(squares) + math.sqrt(self.problem.width) / 2) * (self._units.max() / self._most))
        return self._less_along(chunk, whole) if self.axis else whole

    def _less_along(self, chunk: Any, whole: np.ndarray) -> np.ndarray:
        """Return lengths in the norm of the axis for L2 norms of records, both rounded up.

        Products with the axis on the grid are exact. That is the axis itself but for the rounding of its entries.
        """
        shape, points = Elongated(self.axis), self._points
        products = np.abs(chunk.products(points.coefficients[: self.problem.width])[:, 0]) * points.step[0]
        least = np.maximum(products - whole * (_ROUNDED * math.sqrt(shape.square)), 0.0)
        squares = whole * whole * (1 + _ROUNDED) - least * least * ((1 - _ROUNDED) / (1 + shape.square))
        return np.sqrt(np.maximum(squares, 0.0)) * (1 + _ROUNDED) + self._units.max() * _ROUNDED

    @cached_property
    def _points(self) -> Points:
        return _on_grid(self.problem, self.axis)


def _on_grid(problem: Problem, axis: Sequence[float] | np.ndarray) -> Points:
    """Return the point of the grid that is nearest to an axis, which stands for the first output's coefficients."""
    x = np.zeros(problem.dimension)
    x[: problem.width] = axis
    return Grid(problem).points(x[:, None], 1.0)


def axis_near(problem: Problem, axis: np.ndarray) -> tuple[float, ...]:
    """Return the axis that products of integers belong to, near one that is public or was published; () for none."""
    points = _on_grid(problem, axis)
    coefficients = points.coefficients[: problem.width, 0]
    return tuple((coefficients * (points.step[0] * STEPS) / problem.units[: problem.width]).tolist())


def encode_products(points: Points, outputs: int, chunk: Any) -> np.ndarray:
    """Return the margins of a chunk's records at public points, UNPROTECTED: outputs, and points, of each record."""
    coefficients = points.coefficients.reshape(outputs, -1, len(points.step)).transpose(1, 0, 2)
    products = chunk.products(coefficients.reshape(len(coefficients), -1))
    return products.reshape(len(products), outputs, -1) * points.step


def _norms(columns: np.ndarray) -> np.ndarray:
    """Return the L2 norms along the last axis, added up in its order: the same wherever records are."""
    squares = columns[..., 0] * columns[..., 0]
    for column in range(1, columns.shape[-1]):
        squares = squares + columns[..., column] * columns[..., column]
    return np.sqrt(squares)


@dataclass(frozen=True, eq=False)
class ClippedGradient(Gradient):
    """The gradient of F at a public point, from gradients of records that are clipped to ``problem.clip``.

    Formal guarantee: that of ``Gradient``, with a sensitivity of twice the clip. Slopes of a record are integers, in
    steps of bound/2^20, whose L2 norm is at most clip/|u|, rounded down (``levels.of_records``), with a length |u| that
    is rounded up: so the record's gradient is no longer than the clip, exactly. Each slope follows from its own record.
    With an ``axis``, public or made of what was published, lengths are those of the norm that the noise is shaped by.
    """

    axis: tuple[float, ...] = ()
    has_slopes: ClassVar[bool] = False

    @classmethod
    def near(cls, problem: Problem, x: np.ndarray, cost: float, axis: tuple[float, ...] = ()) -> "ClippedGradient":
        """Ask for the gradient at a public point for this cost, in the norm of an axis."""
        made = cls.at(problem, mechanisms.named("gaussian"), x, cost)
        return replace(made, mechanism=ELONGATED, axis=axis) if axis else made  # pyright: ignore[reportReturnType, reportCallIssue]

    def read(self, records: Records, draw: Draw) -> np.ndarray:
        """Return the sum of clipped gradients in integers, UNPROTECTED."""
        return records.tally(self.encode)

    @np.errstate(all="ignore")  # a warning would tell something about a record
    def encode(self, chunk: Any) -> np.ndarray:
        """Return the sum over a chunk of records, UNPROTECTED."""
        loss, points = self.problem.loss, self._points
        margins = encode_products(points, loss.outputs, chunk)[:, :, 0]
        slopes = levels.of_records(loss, margins, chunk.targets, float(points.bound[0]), self.steepest(chunk))
        return chunk.gather(slopes).T.reshape(-1, 1)

    def steepest(self, chunk: Any) -> np.ndarray:
        """Return the largest slopes that each record may have, together, UNPROTECTED: its clip over its length."""
        return down(self.problem.clip / Lengths(self.problem, self.axis).of(chunk))  # pyright: ignore[reportOptionalOperand]

    @cached_property
    def _points(self) -> Points:
        return self._grid.points(self._columns, self.bound)

    @cached_property
    def _shape(self) -> Shape:
        return Elongated(self.axis, self.problem.loss.outputs) if self.axis else self.mechanism.shape(self.problem)


class Middle(ClippedGradient):
    """The mean of the records, times ``bound``, in the place of the first output's gradient; 0 in that of the others.

    Formal guarantee: that of ``ClippedGradient``, with the largest slope for the slope of every record: whatever a
    record holds, what it adds is no longer than the clip.
    """

    @classmethod
    def of(cls, problem: Problem, cost: float) -> "Middle":
        """Ask for the mean of records, none of which is shortened, for this rho."""
        x = np.zeros(problem.dimension)
        clip = up(problem.record_size(2) * float(problem.slope_at(x[:, None])[0]) * (1 + 2.0**-12))
        return cls.at(restated(problem, clip=clip), mechanisms.named("gaussian"), x, cost)  # pyright: ignore[reportReturnType]

    @np.errstate(all="ignore")  # a warning would tell something about a record
    def encode(self, chunk: Any) -> np.ndarray:
        """Return the sum over a chunk of records, UNPROTECTED."""
        slopes = np.zeros((len(chunk), self.problem.loss.outputs))
        most = np.floor(np.minimum(self.steepest(chunk) / float(self._points.bound[0]), 1.0) * levels.STEPS)
        slopes[:, 0] = np.nan_to_num(most)
        return chunk.gather(slopes).T.reshape(-1, 1)

    def publish(self, reading: np.ndarray, draw: Draw) -> np.ndarray:
        """Return the noisy mean of the records."""
        return super().publish(reading, draw)[: self.problem.width] / float(self._points.bound[0])

    @property
    def deviation(self) -> float:
        """The standard deviation of the noise on each entry."""
        return float(np.max(self.scale)) / (self.problem.n * float(self._points.bound[0]))


class Histogram(Sum):
    """How many records have which size: counts with Gaussian noise.

    Sizes end at largest/2^(j/4), j = 0, ..., 27; the last cell reaches down to 0, and the first holds whatever is
    larger. A kind of histogram is a frozen dataclass below this class with ``problem``, ``largest`` and ``scale``, the
    standard deviation of the noise on each count, which says what the size of a record is (``encode_sizes``).

    Formal guarantee: every record is in one cell, whatever it holds, so that a replaced one moves two counts by at most
    1 each, √2 in the L2 norm: Gaussian noise of this scale, rounded to integers, costs rho = 1/scale².
    """

    problem: Problem
    largest: float
    scale: float

    @staticmethod
    def noise_for(cost: float) -> float:
        """Return the scale that costs this rho."""
        return up(1 / math.sqrt(cost))

    @property
    def ends(self) -> np.ndarray:
        """The upper ends of the cells, the largest first: public numbers."""
        return self.largest * 2.0 ** (-np.arange(CELLS) / _PER_HALF)

    def beyond(self, counts: np.ndarray, share: float) -> float:
        """Return the smallest end that no more than this share of the records seems to be beyond."""
        above = np.append(0.0, np.cumsum(self.shares(counts))[:-1])
        first = np.flatnonzero(above > share)
        return float(self.ends[first[0] - 1 if len(first) else CELLS - 1])

    def shares(self, counts: np.ndarray) -> np.ndarray:
        """Return the likeliest shares of the records in the cells: they add up to 1, and none is negative.

        They are those nearest to the noisy ones, which are lowered by one number and held at 0. Sums of noisy counts
        over many empty cells would be far from 0, as their noise adds up.
        """
        noisy = counts / self.problem.n
        largest = np.sort(noisy)[::-1]
        lowered = (np.cumsum(largest) - 1) / np.arange(1, len(largest) + 1)
        return np.maximum(noisy - lowered[np.flatnonzero(largest >= lowered)[-1]], 0.0)

    @cached_property
    def costs(self) -> tuple[Cost, ...]:
        """The cost of noise of this scale on counts, of which a record moves two."""
        return (Rho(up(1 / self.scale**2)),)

    def require_drawable(self) -> None:
        """Raise unless the noise can be drawn."""
        _require_drawable(self.scale, "counts")

    def draw(self, source: "Source") -> Draw:
        """Draw what is added to the counts. Sees no records."""
        return {"noise": source.integers(mechanisms.named("gaussian"), self.scale, (CELLS,))}

    def read(self, records: Records, draw: Draw) -> np.ndarray:
        """Return the counts, UNPROTECTED."""
        return records.tally(self.encode)

    @np.errstate(all="ignore")  # a warning would tell something about a record
    def encode(self, chunk: Any) -> np.ndarray:
        """Return how many records of a chunk are in each cell, UNPROTECTED."""
        cells = CELLS - 1 - np.searchsorted(self.ends[:0:-1], self.encode_sizes(chunk), side="left")
        return np.bincount(cells, minlength=CELLS).astype(np.int64)

    def encode_sizes(self, chunk: Any) -> np.ndarray:
        """Return the size of each record of a chunk, UNPROTECTED: a function of that record alone."""
        raise NotImplementedError

    def publish(self, reading: np.ndarray, draw: Draw) -> np.ndarray:
        """Return the noisy counts."""
        return added(reading, draw["noise"]).astype(float)


def _require_drawable(scale: float, what: str) -> None:
    if scale > L1(1).coarsest:
        raise ValueError(f"noise of scale {scale:.3g} does not fit the integers of {what}. Use a larger budget.")


@dataclass(frozen=True, eq=False)
class Sizes(Histogram):
    """How many gradients of records have which size, at a public point: that of its slopes times its length.

    Parameters
    ----------
    problem : Problem
        How the records are read, and the loss.
    x : array
        A point that is public, or was published.
    largest : float
        Where the first cell ends.
    scale : float
        Standard deviation of the noise on each count.
    axis : tuple of float
        That of the norm, if it has one.
    """

    problem: Problem
    x: np.ndarray
    largest: float
    scale: float
    axis: tuple[float, ...] = ()

    @classmethod
    def at(cls, problem: Problem, x: np.ndarray, largest: float, cost: float, axis: tuple[float, ...] = ()) -> "Sizes":
        """Ask for the sizes at a public point, for this rho."""
        return cls(problem, x, largest, cls.noise_for(cost), axis)

    def encode_sizes(self, chunk: Any) -> np.ndarray:
        """Return the size of each record's gradient, UNPROTECTED."""
        loss, points = self.problem.loss, self._points
        margins, bound = encode_products(points, loss.outputs, chunk)[:, :, 0], float(points.bound[0])
        slopes = levels.of_records(loss, margins, chunk.targets, bound)
        return np.sqrt(np.sum(slopes * slopes, axis=1)) * (bound / levels.STEPS) * self._lengths.of(chunk)

    @cached_property
    def _lengths(self) -> Lengths:
        return Lengths(self.problem, self.axis)

    @cached_property
    def _points(self) -> Points:
        return _points(self.problem, self.x[:, None])


class Longest(Sizes):
    """How many records have which length: that of their gradients, were the slope of each the largest at the point."""

    def encode_sizes(self, chunk: Any) -> np.ndarray:
        """Return the length of each record times that slope, UNPROTECTED."""
        return self.slope * self._lengths.of(chunk)

    @property
    def slope(self) -> float:
        """The largest slope at the point."""
        return float(self._points.bound[0])


def _points(problem: Problem, x: np.ndarray) -> Points:
    """Return public points on the grid, with the largest slope at the first of them."""
    x = np.asarray(x, dtype=float)
    return Grid(problem).points(x, float(np.max(problem.slope_at(x[:, :1]))))


@dataclass(frozen=True, eq=False)
class Reaches(Histogram):
    """How many records reach how far along public directions: the length of their products, of the longest output's.

    Parameters
    ----------
    problem : Problem
        How the records are read.
    directions : array
        One in each column, of length 1 and at right angles.
    largest : float
        Where the first cell ends.
    scale : float
        Standard deviation of the noise on each count.
    """

    problem: Problem
    directions: np.ndarray
    largest: float
    scale: float

    @classmethod
    def of(cls, problem: Problem, directions: np.ndarray, cost: float) -> "Reaches":
        """Ask how far records reach, for this rho: none farther than the longest record."""
        return cls(problem, directions, problem.record_size(2), cls.noise_for(cost))

    def encode_sizes(self, chunk: Any) -> np.ndarray:
        """Return how far each record reaches, UNPROTECTED."""
        return np.max(_norms(encode_products(self._points, self.problem.loss.outputs, chunk)), axis=1)

    @cached_property
    def _points(self) -> Points:
        return _points(self.problem, self.directions)


# Pulls are integers, in steps of the clip over this; along no more directions than the inward rounding covers.
_PULL, _MOST_DIRECTIONS = 2.0**20, 8


@dataclass(frozen=True, eq=False)
class Pulls(Sum):
    """The mean pull of the loss at a public point along public directions, from pulls of records that are clipped.

    Formal guarantee: a record's pulls are a function of that record alone, whatever it holds: numbers that are
    multiplied by min(1, clip/length), rounded inward, and cut to integers in steps of clip/2^20. So their length is at
    most 2^20 of these, exactly, and a replaced record moves the sum by at most 2^21: Gaussian noise of this scale, in
    steps, rounded to integers, costs rho = (2^21/scale)²/2.

    Parameters
    ----------
    problem : Problem
        How the records are read, and the loss.
    x : array
        A point that is public, or was published.
    directions : array
        One in each column; public, or made of what was published.
    clip : float
        The length that the pulls of a record are clipped to.
    scale : float
        Standard deviation of the noise on each sum, in steps.
    """

    problem: Problem
    x: np.ndarray
    directions: np.ndarray
    clip: float
    scale: float

    def __post_init__(self) -> None:
        if self.directions.shape[1] > _MOST_DIRECTIONS:
            raise ValueError(f"pulls are along at most {_MOST_DIRECTIONS} directions, got {self.directions.shape[1]}.")

    @classmethod
    def at(cls, problem: Problem, x: np.ndarray, directions: np.ndarray, clip: float, cost: float) -> "Pulls":
        """Ask for the pull at a public point, for this rho."""
        return cls(problem, x, directions, clip, up(2 * _PULL / math.sqrt(2 * cost)))

    @cached_property
    def costs(self) -> tuple[Cost, ...]:
        """The cost of noise of this scale on a sum that a record moves by 2^21."""
        return (Rho(up((2 * _PULL / self.scale) ** 2 / 2)),)

    def require_drawable(self) -> None:
        """Raise unless the noise can be drawn."""
        _require_drawable(self.scale, "pulls")

    def draw(self, source: "Source") -> Draw:
        """Draw what is added to the sums. Sees no records."""
        return {"noise": source.integers(mechanisms.named("gaussian"), self.scale, (self.directions.shape[1],))}

    def read(self, records: Records, draw: Draw) -> np.ndarray:
        """Return the sums in steps, UNPROTECTED."""
        return records.tally(self.encode)

    def encode(self, chunk: Any) -> np.ndarray:
        """Return the sums over a chunk of records, UNPROTECTED."""
        return np.sum(self.encode_pulls(chunk), axis=0).astype(np.int64)

    @np.errstate(all="ignore")  # a warning would tell something about a record
    def encode_pulls(self, chunk: Any) -> np.ndarray:
        """Return the pulls of each record of a chunk in steps, UNPROTECTED: integers, no longer than 2^20."""
        loss, points = self.problem.loss, self._points
        products = encode_products(points, loss.outputs, chunk)
        slopes = levels.of_records(loss, products[:, :, 0], chunk.targets, float(points.bound[0]))
        pulls = slopes[:, :1] * products[:, 0, 1:]
        for output in range(1, loss.outputs):
            pulls = pulls + slopes[:, output, None] * products[:, output, 1:]
        pulls = pulls * (float(points.bound[0]) / levels.STEPS / self.clip)
        share = levels.INWARD / np.maximum(_norms(pulls), 1.0)
        return np.trunc(np.nan_to_num(pulls * (share * _PULL)[:, None], nan=0.0, posinf=0.0, neginf=0.0))

    def publish(self, reading: np.ndarray, draw: Draw) -> np.ndarray:
        """Return the mean pull of F: noise and the ridge's included."""
        mean = added(reading, draw["noise"]) * (self.clip / _PULL / self.problem.n)
        return mean + self.problem.ridge * (self.x @ self.directions)

    @cached_property
    def _points(self) -> Points:
        return _points(self.problem, np.column_stack([self.x, self.directions]))
