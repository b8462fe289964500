"""A box: each column in its declared range, and the indicators of a category together."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from epsteps.problem import validate
from epsteps.problem.domain import Clipping, Columns, Domain, checked_norm, owners, sum_in_order
from epsteps.problem.shapes import Body, Hull

_Bound = float | Sequence[float]


@dataclass(frozen=True)
class Box(Domain, name="Box"):
    """All vectors with ``low <= u <= high`` in each column, and with blocks of columns that encode one category.

    Declared from public knowledge, never measured on the data. Columns that cannot be negative are worth declaring so:
    noise for [0, 1] is smaller than for [-1, 1].

    Parameters
    ----------
    low, high : float or sequence of float
        Ends of the range, one for all columns or one for each.
    one_hot : sequence of (start, stop)
        Ranges of columns with the indicators of one category each: not negative, and together at most 1, whatever
        ``low`` and ``high`` say.
    numbers : sequence of int
        Columns of such blocks that hold a number: beside it stands the indicator that it is missing. The set is the
        same with them and without, and so are boxes: they say what columns mean, for intervals of coefficients.

    >>> box = Box(0, 1, one_hot=[(2, 5)])
    >>> box.size(1, d=5), box.body(5)
    (3.0, Body(hull=(0, 1), blocks=((2, 3, 4),)))
    """

    low: float | tuple[float, ...] = 0.0
    high: float | tuple[float, ...] = 1.0
    one_hot: tuple[tuple[int, int], ...] = ()
    numbers: tuple[int, ...] = field(default=(), compare=False, repr=False)

    def __init__(
        self,
        low: _Bound = 0.0,
        high: _Bound = 1.0,
        one_hot: Sequence[Sequence[int]] = (),
        numbers: Sequence[int] = (),
    ) -> None:
        object.__setattr__(self, "low", _checked_ends("low", low))
        object.__setattr__(self, "high", _checked_ends("high", high))
        object.__setattr__(self, "one_hot", _checked_blocks(one_hot))
        listed = tuple(sorted({validate.integer("numbers", column, low=0) for column in numbers}))
        if not all(any(column in range(*block) for block in self.one_hot) for column in listed):
            raise ValueError(f"numbers must be columns of the blocks in one_hot, got {listed!r}.")
        object.__setattr__(self, "numbers", listed)
        columns = {len(ends) for ends in (self.low, self.high) if isinstance(ends, tuple)}
        if len(columns) > 1:
            raise ValueError(f"low and high must have the same length, got {sorted(columns)}.")
        if np.any(np.asarray(self.low) >= np.asarray(self.high)):
            raise ValueError(f"low must be below high in every column, got low={self.low!r}, high={self.high!r}.")
        for largest in np.unique(np.maximum(np.abs(self.low), np.abs(self.high))).tolist():
            validate.size("the larger of |low| and |high|", largest)

    def __str__(self) -> str:
        blocks = f" with {len(self.one_hot)} one-hot block{'s' * (len(self.one_hot) > 1)}" if self.one_hot else ""
        if isinstance(self.low, tuple) or isinstance(self.high, tuple):
            return f"a box of {np.size(self.low) if isinstance(self.low, tuple) else np.size(self.high)} ranges{blocks}"
        return f"the box [{self.low:g}, {self.high:g}]^d{blocks}"

    @property
    def categories(self) -> tuple[tuple[int, int], ...]:
        """The blocks without a number: ranges of columns that are the levels of one category each."""
        return tuple(block for block in self.one_hot if not any(column in range(*block) for column in self.numbers))

    def require(self, d: int) -> None:
        """Raise unless the box has d columns."""
        for name, ends in (("low", self.low), ("high", self.high)):
            if isinstance(ends, tuple) and len(ends) != d:
                raise ValueError(f"{name} must have one entry for each of the d={d} features, got {len(ends)}.")
        if self.one_hot and self.one_hot[-1][1] > d:
            raise ValueError(f"one_hot must stay within the d={d} features, got {self.one_hot[-1]!r}.")

    def units(self, d: int) -> np.ndarray:
        """Return the largest absolute value of each column."""
        return np.maximum(*np.abs(self._ends(d)))

    def body(self, d: int) -> Body:
        """Return a body that holds c u for |c| <= 1: columns that are never negative share a hull.

        Indicators are held by cross-polytopes, each on its own: more than ``hull`` where there are any.
        """
        low, _ = self._ends(d)
        free = np.flatnonzero(~self._in_block(d)).tolist()
        singles = tuple((column,) for column in free if low[column] < 0)
        blocks = tuple(tuple(range(*block)) for block in self.one_hot)
        return Body(tuple(column for column in free if low[column] >= 0), blocks + singles)

    def hull(self, d: int) -> Hull | None:
        """Return the convex hull of all c u for |c| <= 1, of columns in [0, 1] or [-1, 1] and of one-hot blocks.

        None without such blocks: it is then the body.
        """
        if not self.one_hot:
            return None
        body = self.body(d)
        signed = tuple(block[0] for block in body.blocks[len(self.one_hot) :])
        return Hull((*((column,) for column in body.hull), *body.blocks[: len(self.one_hot)]), signed)

    def even_moments(self, d: int) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of each column if records were spread evenly over ranges and categories."""
        low, high = self._ends(d)
        mean, variance = (low + high) / 2, (high - low) ** 2 / 12
        for start, stop in self.one_hot:
            mean[start:stop] = 1 / (stop - start + 1)
            variance[start:stop] = mean[start] * (1 - mean[start])
        return mean, variance

    def size(self, norm: float, d: int) -> float:
        """Return the largest ``norm`` of a record: a one-hot block counts as one column."""
        values = np.append(self.units(d)[~self._in_block(d)], np.ones(len(self.one_hot)))
        return float(np.linalg.norm(values, ord=checked_norm(norm)))

    def columns(self, d: int) -> Columns:
        """Return the columns around the middle of their ranges; of their squares z², 2 z² - 1 fills [-1, 1]."""
        low, high = (np.array(np.broadcast_to(ends, d), dtype=float) for ends in (self.low, self.high))
        centre, half = (low + high) / 2, (high - low) / 2
        for start, stop in self.one_hot:
            centre[start:stop], half[start:stop] = 0.0, 1.0
        unit = Box(-1, 1, one_hot=self.one_hot)
        return Columns(unit, centre, half, squares=Box(-1, 1), factor=2, offset=1, clipped=True)

    def largest_square(self, centre: Sequence[int], weights: Sequence[int], steps: int) -> int:
        """Return the sum at its largest corner, for it is convex. Those of a block are its indicators, and 0."""
        d = len(weights)
        scale = steps / self.units(d)
        low, high = (np.broadcast_to(ends, d) * scale for ends in (self.low, self.high))
        total = 0
        for j in np.flatnonzero(~self._in_block(d)).tolist():
            corners = (max(math.floor(low[j]), -steps), min(math.ceil(high[j]), steps))
            total += max((weights[j] * (end - centre[j])) ** 2 for end in corners)
        for start, stop in self.one_hot:
            none = sum((weights[j] * centre[j]) ** 2 for j in range(start, stop))
            one = (weights[j] ** 2 * ((steps - centre[j]) ** 2 - centre[j] ** 2) for j in range(start, stop))
            total += none + max([0, *one])
        return total

    def reach(self, x: np.ndarray) -> np.ndarray:
        """Return sup |u'x| over the box, for each column of x."""
        low, high = (ends.reshape(-1, *[1] * (x.ndim - 1)) for ends in self._ends(len(x)))
        return np.maximum(self._support(low, high, x), self._support(low, high, -x))

    def _support(self, low: np.ndarray, high: np.ndarray, x: np.ndarray) -> np.ndarray:
        best = np.maximum(low * x, high * x)
        for start, stop in self.one_hot:
            best[start + 1 : stop] = 0.0
            best[start] = np.maximum(x[start:stop].max(axis=0), 0.0)
        return best.sum(axis=0)

    def project(self, rows: np.ndarray) -> np.ndarray:
        """Return finite rows inside the box: entries clipped, indicators that add up to more than 1 divided by that."""
        rows = _held(_without_nan(rows), *self._ends(rows.shape[1]))
        for start, stop in self.one_hot:
            block = rows[:, start:stop]
            block *= _shrink(sum_in_order(block), stop - start)[:, None]
        return rows

    def project_entries(self, entries: np.ndarray, columns: np.ndarray, starts: np.ndarray, d: int) -> np.ndarray:
        """Return what ``project`` does to sparse rows, of which row i holds entries[starts[i]:starts[i+1]]."""
        low, high = self._ends(d)
        if np.any(low > 0) or np.any(high < 0):
            raise ValueError("sparse records need a box that holds 0 in every column: pass dense records, or widen it.")
        entries = np.clip(_without_nan(entries), low[columns], high[columns])
        inside, group = self._groups(columns, starts, d)
        sums = np.bincount(group, weights=entries[inside], minlength=1)
        widths = np.array([stop - start for start, stop in self.one_hot] or [1])
        entries[inside] *= _shrink(sums, np.resize(widths, len(sums)))[group]
        return entries

    def integers(self, rows: np.ndarray, steps: int) -> np.ndarray:
        """Return the projected rows in units of 1/steps of each column's largest value, exactly inside the box."""
        d = rows.shape[1]
        real = self.project(rows)
        real *= _alike(steps / self.units(d))
        nearest = _held(np.rint(real), *self._integer_ends(d, steps))
        for start, stop in self.one_hot:
            too_long = np.flatnonzero(nearest[:, start:stop].sum(axis=1) > steps)
            below = np.floor(real[too_long, start:stop])
            below[below.sum(axis=1) > steps] = 0.0  # cannot happen, and would not harm
            nearest[too_long, start:stop] = below
        return nearest

    def recipe(self, d: int, steps: int) -> Clipping:
        """Return what ``integers`` computes with."""
        return Clipping(np.vstack((self._ends(d), steps / self.units(d), *self._integer_ends(d, steps))), self.one_hot)

    def integer_entries(
        self, entries: np.ndarray, columns: np.ndarray, starts: np.ndarray, d: int, steps: int
    ) -> np.ndarray:
        """Return what ``integers`` does to sparse rows: entries that are not stored stay 0."""
        real = self.project_entries(entries, columns, starts, d) * (steps / self.units(d))[columns]
        low, high = self._integer_ends(d, steps)
        nearest = np.clip(np.rint(real), low[columns], high[columns])
        inside, group = self._groups(columns, starts, d)
        too_long = np.bincount(group, weights=nearest[inside], minlength=1) > steps
        nearest[inside] = np.where(too_long[group], np.floor(real[inside]), nearest[inside])
        still_too_long = np.bincount(group, weights=nearest[inside], minlength=1) > steps
        nearest[inside] = np.where(still_too_long[group], 0.0, nearest[inside])  # cannot happen, and would not harm
        return nearest

    def outside(self, rows: np.ndarray) -> np.ndarray:
        """Mark the rows that ``project`` would move. Reads data: for its holder's eyes."""
        rows = np.asarray(rows, dtype=float)
        low, high = self._ends(rows.shape[1])
        inside = np.all((rows >= low) & (rows <= high), axis=1)
        for start, stop in self.one_hot:
            with np.errstate(invalid="ignore", over="ignore"):
                inside &= rows[:, start:stop].sum(axis=1) <= 1 + 1e-12
        return ~inside

    def outside_entries(self, entries: np.ndarray, columns: np.ndarray, starts: np.ndarray) -> np.ndarray:
        """Mark the sparse rows that ``project_entries`` would move. Reads data: for its holder's eyes."""
        d = int(columns.max(initial=-1)) + 1
        d = max(d, self.one_hot[-1][1] if self.one_hot else 0, np.size(self.low) if isinstance(self.low, tuple) else 0)
        low, high = self._ends(d)
        entries = np.asarray(entries, dtype=float)
        outside = ~((entries >= low[columns]) & (entries <= high[columns]))
        marks = np.bincount(owners(starts)[outside], minlength=len(starts) - 1) > 0
        inside, group = self._groups(columns, starts, d)
        too_long = np.flatnonzero(np.bincount(group, weights=entries[inside], minlength=1) > 1 + 1e-12)
        marks[too_long // max(len(self.one_hot), 1)] = True
        return marks

    def _ends(self, d: int) -> np.ndarray:
        """Return the ends of the d columns' ranges."""
        ends = np.array([np.broadcast_to(self.low, d), np.broadcast_to(self.high, d)])
        ends[:, self._in_block(d)] = [[0.0], [1.0]]
        return ends

    def _integer_ends(self, d: int, steps: int) -> tuple[np.ndarray, np.ndarray]:
        low, high = self._ends(d) * (steps / self.units(d))
        return np.clip(np.ceil(low), -steps, steps), np.clip(np.floor(high), -steps, steps)

    def _in_block(self, d: int) -> np.ndarray:
        marks = np.zeros(d, dtype=bool)
        for start, stop in self.one_hot:
            marks[start:stop] = True
        return marks

    def _groups(self, columns: np.ndarray, starts: np.ndarray, d: int) -> tuple[np.ndarray, np.ndarray]:
        """Return which entries of sparse rows lie in a block, and a number for each one's row and block."""
        number = np.full(d, -1)
        for index, (start, stop) in enumerate(self.one_hot):
            number[start:stop] = index
        inside = np.flatnonzero(number[columns] >= 0)
        return inside, owners(starts)[inside] * len(self.one_hot) + number[columns[inside]]


def _checked_ends(name: str, ends: _Bound) -> float | tuple[float, ...]:
    if np.ndim(ends) == 0:
        return validate.number(name, ends)
    if np.ndim(ends) != 1 or len(np.ravel(ends)) == 0:
        raise ValueError(f"{name} must be a number or one number for each column, got {ends!r}.")
    return tuple(validate.number(name, value) for value in np.asarray(ends, dtype=float).tolist())


def _checked_blocks(blocks: Sequence[Sequence[int]]) -> tuple[tuple[int, int], ...]:
    """Return the column ranges in order, or raise."""
    pairs = []
    for block in blocks:
        if len(block) != 2:
            raise ValueError(f"one_hot must list pairs (start, stop) of columns, got {block!r}.")
        pairs.append((validate.integer("one_hot", block[0], low=0), validate.integer("one_hot", block[1])))
    pairs.sort()
    edges = [edge for pair in pairs for edge in pair]
    if edges != sorted(edges) or any(start == stop for start, stop in pairs):
        raise ValueError(f"one_hot must list ranges that do not overlap, with start < stop, got {pairs!r}.")
    return tuple(pairs)


def _held(values: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Hold values between each column's ends, in place."""
    low, high = _alike(low), _alike(high)
    if np.ndim(low) == np.ndim(high) == 0:
        return np.clip(values, low, high, out=values)
    return np.minimum(np.maximum(values, low, out=values), high, out=values)  # quicker than to clip by arrays


def _alike(numbers: np.ndarray) -> np.ndarray:
    """Return a single number where all are the same: NumPy is quicker with that."""
    return numbers[0] if np.all(numbers == numbers[0]) else numbers


def _without_nan(values: np.ndarray) -> np.ndarray:
    values = np.array(values, dtype=float)
    np.copyto(values, 0.0, where=np.isnan(values))
    return values


def _shrink(sums: np.ndarray, width: np.ndarray | int) -> np.ndarray:
    """Return what to multiply indicators by whose sum this is, so that it is at most 1: rounded toward the inside."""
    allowed = 1 - (np.asarray(width) + 8) * np.finfo(float).eps
    return np.where(sums > 1, allowed / np.maximum(sums, 1), 1.0)
