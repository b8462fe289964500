"""A ball of one of the usual norms."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from epsteps.problem import validate
from epsteps.problem.box import Box
from epsteps.problem.domain import Clipping, Columns, Domain, Shortening, checked_norm, owners, sum_in_order
from epsteps.problem.rounding import up
from epsteps.problem.shapes import Body

_ROUNDS = 24  # entries of a row that are looked for one by one, before all of its entries are sorted
_LARGEST = 1e150  # entries are clipped here before a norm is taken, so that squares stay finite


@dataclass(frozen=True)
class Ball(Domain, name="Ball"):
    """All vectors whose ``norm`` (1, 2 or infinity) is at most ``radius``.

    Declared from public knowledge, never measured on the data. The unit cube [-1, 1]^d is
    ``Ball(1, norm=np.inf)``.

    >>> Ball(1, norm=np.inf).size(1, d=20)
    20.0
    """

    is_centred: ClassVar[bool] = True

    radius: float
    norm: float = 2

    def __post_init__(self) -> None:
        object.__setattr__(self, "radius", validate.size("radius", self.radius))
        object.__setattr__(self, "norm", checked_norm(self.norm))

    def __str__(self) -> str:
        norm = "inf" if self.norm == math.inf else f"{self.norm:g}"
        return f"the L{norm} ball of radius {self.radius:g}"

    def units(self, d: int) -> np.ndarray:
        """Return the largest absolute value of each column."""
        return np.full(d, self.radius)

    def body(self, d: int) -> Body | None:
        """Return the body that c u fills, for |c| <= 1 and u in the ball; None for the L2 ball, which is no product."""
        if self.norm == 2:
            return None
        return Body((), (tuple(range(d)),) if self.norm == 1 else tuple((column,) for column in range(d)))

    def even_moments(self, d: int) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of each column if records were spread evenly over the ball."""
        share = {1: 2 / ((d + 1) * (d + 2)), 2: 1 / (d + 2), math.inf: 1 / 3}[self.norm]
        return np.zeros(d), np.full(d, self.radius**2 * share)

    def size(self, norm: float, d: int) -> float:
        """Return the largest ``norm`` of a vector of the ball in d dimensions."""
        gap = 1 / checked_norm(norm) - 1 / self.norm
        return self.radius * d ** max(gap, 0.0)

    def columns(self, d: int) -> Columns:
        """Return the columns of the unit ball; their squares lie in the L1 ball where the norm is 1 or 2."""
        centre, half = np.zeros(d), np.full(d, self.radius)
        if self.norm == math.inf:
            return Columns(Box(-1, 1), centre, half, squares=Box(-1, 1), factor=2, offset=1)
        return Columns(Ball(1, norm=self.norm), centre, half, squares=Ball(1, norm=1), factor=1, offset=0)

    def largest_square(self, centre: Sequence[int], weights: Sequence[int], steps: int) -> int:
        """Return the largest weighed square of one column, or the sum of all of them in a cube; the centre is 0."""
        squares = [steps**2 * weight**2 for weight in weights]
        return sum(squares) if self.norm == math.inf else max(squares)

    def reach(self, x: np.ndarray) -> np.ndarray:
        """Return sup |u'x| over the ball, for each column of x: radius times the dual norm."""
        dual = {1: math.inf, 2: 2, math.inf: 1}[self.norm]
        return self.radius * np.linalg.norm(x, ord=dual, axis=0)

    def project(self, rows: np.ndarray) -> np.ndarray:
        """Return finite rows inside the ball: cube rows clipped, others shortened; NaN becomes 0.

        Every row gets the same operations, and rounding is toward the inside.
        """
        rows = self._finite(rows)
        if self.norm == math.inf:
            return rows
        rows *= self._shrink(sum_in_order(_powers(rows, self.norm)), rows.shape[1])[:, None]
        return rows

    def project_entries(self, entries: np.ndarray, columns: np.ndarray, starts: np.ndarray, d: int) -> np.ndarray:
        """Return what ``project`` does to sparse rows of length d, of which row i holds entries[starts[i]:starts[i+1]].

        The entries of a row come in the order of their columns.
        """
        entries = self._finite(entries)
        if self.norm == math.inf:
            return entries
        owner = owners(starts)
        sizes = np.bincount(owner, weights=_powers(entries, self.norm), minlength=len(starts) - 1)
        return entries * self._shrink(sizes, d)[owner]

    def integers(self, rows: np.ndarray, steps: int) -> np.ndarray:
        """Return the projected rows in units of radius/steps, as integers whose norm is at most ``steps``, exactly.

        Rounded to the nearest integer; where that leaves the ball, as few entries as it takes are rounded toward 0
        instead, those first that were rounded away from it most. All of it is decided within the row.
        """
        real = self.project(rows)
        real *= steps / self.radius
        nearest = np.rint(real)
        if self.norm == math.inf:
            return np.clip(nearest, -steps, steps, out=nearest)
        excess = _power_sum(nearest, self.norm) - self._limit(steps)
        if len(too_long := np.flatnonzero(excess > 0)):
            shorter = _shortened(real[too_long], nearest[too_long], excess[too_long], self.norm)
            shorter[_power_sum(shorter, self.norm) > self._limit(steps)] = 0.0  # cannot happen, and would not harm
            nearest[too_long] = shorter
        return nearest

    def recipe(self, d: int, steps: int) -> Clipping | Shortening:
        """Return what ``integers`` computes with."""
        scale = steps / self.radius
        if self.norm == math.inf:
            return Clipping(np.repeat([[-self.radius], [self.radius], [scale], [-steps], [steps]], d, axis=1))
        return Shortening(self.norm == 2, _LARGEST, self._allowed(d), scale, self._limit(steps))

    def integer_entries(
        self, entries: np.ndarray, columns: np.ndarray, starts: np.ndarray, d: int, steps: int
    ) -> np.ndarray:
        """Return what ``integers`` does to sparse rows, given as for ``project_entries``: entries not stored stay 0."""
        real = self.project_entries(entries, columns, starts, d) * (steps / self.radius)
        nearest = np.rint(real)
        if self.norm == math.inf:
            return np.clip(nearest, -steps, steps, out=nearest)
        limit, owner = self._limit(steps), owners(starts)
        size = _ragged_sum(_powers(nearest, self.norm), starts)
        picked = np.flatnonzero((size > limit)[owner])
        picked = picked[np.lexsort((_distance(real[picked], nearest[picked]), owner[picked]))]
        near, rows = nearest[picked], owner[picked]
        saved = _saved(real[picked], near, self.norm)
        before = np.cumsum(saved) - saved
        before -= before[np.searchsorted(rows, rows)]  # what the rows above saved does not count
        nearest[picked] = near - np.copysign((before < (size - limit)[rows]) & (saved > 0), near)
        still_too_long = _ragged_sum(_powers(nearest, self.norm), starts) > limit
        nearest[still_too_long[owner]] = 0.0  # cannot happen, and would not harm
        return nearest

    def _allowed(self, d: int) -> float:
        """Return the length that a row of d features is shortened to: what rounding adds stays within the radius."""
        return float(self.radius * (1 - (d + 8) * np.finfo(float).eps))

    def _limit(self, steps: int) -> float:
        return float(steps**2 if self.norm == 2 else steps)

    def _finite(self, values: np.ndarray) -> np.ndarray:
        """Return a copy in float64, clipped to where norms can be taken (the cube's own range); NaN becomes 0."""
        limit = self.radius if self.norm == math.inf else _LARGEST
        values = np.clip(np.asarray(values, dtype=float), -limit, limit)
        np.copyto(values, 0.0, where=np.isnan(values))
        return values

    def _shrink(self, sizes: np.ndarray, d: int) -> np.ndarray:
        """Return what to multiply rows by, given the sums of their entries' powers, rounded toward the inside."""
        allowed = self._allowed(d)
        lengths = np.sqrt(sizes) if self.norm == 2 else sizes
        return allowed / np.maximum(lengths, allowed)

    def outside(self, rows: np.ndarray) -> np.ndarray:
        """Mark the rows that ``project`` would move. Reads data: for its holder's eyes."""
        with np.errstate(over="ignore", invalid="ignore"):
            lengths = np.linalg.norm(np.asarray(rows, dtype=float), ord=self.norm, axis=1)
        return ~(lengths <= up(self.radius))

    def outside_entries(self, entries: np.ndarray, columns: np.ndarray, starts: np.ndarray) -> np.ndarray:
        """Mark the sparse rows that ``project_entries`` would move. Reads data: for its holder's eyes."""
        entries, owner, limit = np.asarray(entries, dtype=float), owners(starts), up(self.radius)
        if self.norm == math.inf:
            return np.bincount(owner[~(np.abs(entries) <= limit)], minlength=len(starts) - 1) > 0
        with np.errstate(over="ignore", invalid="ignore"):
            sizes = np.bincount(owner, weights=_powers(entries, self.norm), minlength=len(starts) - 1)
            return ~((np.sqrt(sizes) if self.norm == 2 else sizes) <= limit)


def _powers(values: np.ndarray, norm: float) -> np.ndarray:
    """Return |value|^norm."""
    return values * values if norm == 2 else np.abs(values)


def _power_sum(rows: np.ndarray, norm: float) -> np.ndarray:
    """Return the sum of |entry|^norm over rows of integers.

    Doubles hold it exactly up to 2^53, and a larger one never becomes smaller than that by rounding.
    """
    return np.einsum("ij,ij->i", rows, rows) if norm == 2 else np.einsum("ij->i", np.abs(rows))


def _distance(real: np.ndarray, near: np.ndarray) -> np.ndarray:
    """Return in steps of 2^-31 how far rounding moved toward 0: from -2^30, away from it, to 2^30."""
    moved = np.abs(real)
    moved -= np.abs(near)
    moved *= 2.0**31
    return np.rint(moved, out=moved)


def _shortened(real: np.ndarray, near: np.ndarray, excess: np.ndarray, norm: float) -> np.ndarray:
    """Round entries toward 0, in the order of their distance and then their column, until each row fits."""
    distance, first = _distance(real, near), np.arange(0, near.size, near.shape[1])
    for _ in range(_ROUNDS):
        column = distance.argmin(axis=1)  # the first of equal ones
        place = first + column
        whole = near.take(place)
        saved = _saved(real.take(place), whole, norm)
        near.put(place, whole - np.copysign(saved > 0, whole))
        excess = excess - saved
        left = np.flatnonzero(excess > 0)
        if len(left) == 0:
            return near
        distance[np.arange(len(column)), column] = np.inf
        first, distance, excess = first[left], distance[left], excess[left]
    place = first[:, None] + np.argsort(distance, axis=1, kind="stable")
    whole = near.take(place)
    saved = _saved(real.take(place), whole, norm)
    chosen = (np.cumsum(saved, axis=1) - saved < excess[:, None]) & (saved > 0)
    near.put(place, whole - np.copysign(chosen, whole))
    return near


def _saved(real: np.ndarray, near: np.ndarray, norm: float) -> np.ndarray:
    """Return how much shorter a row gets by rounding an entry toward 0: nothing where that was the nearest."""
    size = np.abs(near)
    return np.where(size > np.abs(real), 2 * size - 1 if norm == 2 else 1.0, 0.0)


def _ragged_sum(powers: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Return each row's sum; integers are exact as long as ``_power_sum`` is."""
    return np.bincount(owners(starts), weights=powers, minlength=len(starts) - 1)
