"""Records on the grid in one compiled pass: without NaN, projected, rounded, as float32 with the intercept's column.

Every operation is that of the domain's ``integers``, in its order where the order matters, so that results are the same
bit by bit: lengths are sums one feature after the other, of several rows side by side; sums of integers are exact in
any order. Kernels compute with the numbers that a domain gives as its ``recipe``.
"""

import threading
from collections.abc import Callable
from functools import partial

import numpy as np
from llvmlite import ir
from numba.core import cgutils

from epsteps.data import encoding
from epsteps.data.engine import map_parts
from epsteps.data.fast._lanes import (
    F32,
    F64,
    SHORT,
    VERSION,
    Lanes,
    Memory,
    Register,
    Value,
    building_block,
    count,
    inner,
    kernel,
    spread,
    statement,
)
from epsteps.problem.domain import Clipping, Shortening
from epsteps.problem.grid import STEPS
from epsteps.problem.problem import Problem

# Numbers in a vector, and rows that are added up side by side, and that are clipped together.
_KIND = F64.twice
_LANES = _KIND.lanes
_SIDE_BY_SIDE = _LANES
_TOGETHER = 4
# Entries of which the first to be shortened is known, and the largest number of columns that ranks have room for.
_GROUP = 4 * _LANES
_COLUMNS = 2**22


def integers(problem: Problem, features: np.ndarray) -> np.ndarray:
    """Return what ``encoding.integers`` does, in threads."""
    d, count = problem.d, len(features)
    fill = _kernel_of(problem)
    if fill is None or features.shape[1] != d:
        return encoding.integers(problem, features)
    result = np.empty((count, problem.width), dtype=np.float32)
    as_they_are = features.dtype in (np.float64, np.float32) and features.flags.c_contiguous and features.flags.aligned
    size = max(1, count) if as_they_are else max(1, encoding.BLOCK // d)

    def part(start: int, stop: int) -> None:
        for first in range(start, stop, size):
            block = slice(first, min(first + size, stop))
            rows = features[block] if as_they_are else np.ascontiguousarray(features[block], dtype=float)
            rows = np.asarray(rows).reshape(-1).view()
            rows.flags.writeable = False  # numba compiles anew for arrays that can be written
            fill(rows, result[block].reshape(-1))

    if threading.current_thread().name.startswith("epsteps"):
        part(0, count)  # a thread of the pool that waits for others of the pool could wait forever
    else:
        map_parts(part, count, work=d)
    return result


def _kernel_of(problem: Problem) -> Callable[[np.ndarray, np.ndarray], None] | None:
    """Return what writes the integers of rows, or None where the domain's own class has no recipe for them."""
    domain, d, width = problem.domain, problem.d, problem.width
    recipe = domain.recipe(d, STEPS) if "recipe" in vars(type(domain)) and d < _COLUMNS else None
    if isinstance(recipe, Shortening):
        return partial(_shortened, recipe, d, width)
    if isinstance(recipe, Clipping):
        return partial(_clipped, _padded(recipe), _blocks(recipe), d, width)
    return None


def _padded(recipe: Clipping) -> np.ndarray:
    """Return the recipe's arrays below each other, filled up to whole vectors."""
    d = len(recipe.low)
    ends = np.zeros((5, -(-d // _LANES) * _LANES))
    ends[:, :d] = recipe[:5]
    return ends


def _blocks(recipe: Clipping) -> tuple[np.ndarray, np.ndarray]:
    """Return where the blocks of indicators start and stop, and what those that are too long add up to at last."""
    edges = np.array(recipe.one_hot, dtype=np.int64).reshape(-1, 2)
    return edges, 1 - (edges[:, 1] - edges[:, 0] + 8) * np.finfo(float).eps


def _shortened(recipe: Shortening, d: int, width: int, features: np.ndarray, result: np.ndarray) -> None:
    shortened(features, result, d, width, *recipe, STEPS, VERSION)


def _clipped(
    ends: np.ndarray,
    blocks: tuple[np.ndarray, np.ndarray],
    d: int,
    width: int,
    features: np.ndarray,
    result: np.ndarray,
) -> None:
    clipped(features, result, d, width, ends.reshape(-1), *blocks, STEPS, VERSION)


class _Window:
    """As many columns as a vector has lanes, of any row; the last ones of a row leave lanes empty."""

    def __init__(self, builder: ir.IRBuilder, first: Value, mask: Value | None = None) -> None:
        self.builder, self.first, self._mask = builder, first, mask

    def load(self, memory: Memory, place: Value) -> Lanes:
        """Return the numbers of the row that begins here, in float64; zeros in empty lanes."""
        index = self.builder.add(place, self.first)
        return memory.load(index, _KIND) if self._mask is None else memory.load_some(index, self._mask, _KIND)

    def store(self, memory: Memory, place: Value, numbers: Lanes) -> None:
        """Write the numbers to the row that begins here."""
        index = self.builder.add(place, self.first)
        if self._mask is None:
            memory.store(index, numbers)
        else:
            memory.store_some(index, self._mask, numbers)


def _each_window(b: ir.IRBuilder, d: Value, use: Callable[[_Window], None]) -> None:
    """Go over the columns of rows of length d."""
    whole = b.and_(d, count(-_LANES))
    with cgutils.for_range_slice(b, count(0), whole, count(_LANES)) as (j, _):
        use(_Window(b, j))
    left = b.sub(d, whole)
    with b.if_then(b.icmp_signed("!=", left, count(0))):
        numbers = ir.VectorType(SHORT, _LANES)
        limit = b.insert_element(ir.Constant(numbers, ir.Undefined), b.trunc(left, SHORT), ir.Constant(SHORT, 0))
        limit = b.shuffle_vector(limit, limit, ir.Constant(numbers, [0] * _LANES))
        use(_Window(b, whole, b.icmp_signed("<", ir.Constant(numbers, list(range(_LANES))), limit)))


def _held(numbers: Lanes, low: Lanes, high: Lanes) -> Lanes:
    """Return the numbers, held within bounds; NaN stays."""
    numbers = numbers.select("<", low, low, numbers)
    return numbers.select(">", high, high, numbers)


def _without_nan(numbers: Lanes) -> Lanes:
    return numbers.select("==", numbers, numbers, 0.0)


def _finite(numbers: Lanes, largest: Value) -> Lanes:
    bound = spread(numbers.builder, _KIND, largest)
    return _without_nan(_held(numbers, 0.0 - bound, bound))


def _powers(numbers: Lanes, squares: Value) -> Lanes:
    """Return squares or sizes."""
    b = numbers.builder
    return numbers.new(b.select(b.icmp_signed("!=", squares, count(0)), (numbers * numbers).value, numbers.size().value))


def _transposed(vectors: list[Lanes]) -> list[Lanes]:
    """Return as many vectors, of which the first holds the first lanes of all, and so on."""
    half = _LANES // 2
    for _ in range(_LANES.bit_length() - 1):
        pairs = zip(vectors[:half], vectors[half:], strict=True)
        orders = [[lane for i in range(half) for lane in (i + at, i + at + _LANES)] for at in (0, half)]
        vectors = [one.mix(other, order) for one, other in pairs for order in orders]
    return vectors


def _folded(numbers: Lanes, fold: Callable[[Lanes, Lanes], Lanes]) -> Lanes:
    """Return all lanes folded into a single one."""
    while (half := numbers.kind.lanes // 2) > 0:
        first, second = (numbers.mix(numbers, list(range(at, at + half))) for at in (0, half))
        numbers = fold(first, second)
    return numbers


@building_block
def _lengths(typing, features, zero, places, at_places, d, squares, largest, totals, at_totals):
    """Write the sums of the powers of rows, one number after the other, for as many rows as a vector has lanes."""

    def write(b, features, places, d, squares, largest, totals) -> None:
        total, rows = Register(b, _KIND, 0), [places.integer(row) for row in range(_SIDE_BY_SIDE)]

        def add(window: _Window) -> None:
            numbers = [_finite(window.load(features, row), largest) for row in rows]
            for column in _transposed([_powers(vector, squares) for vector in numbers]):
                total.set(total.get() + column)

        _each_window(b, d, add)
        totals.store(0, total.get())

    return statement(write, features, zero, places, at_places, d, squares, largest, totals, at_totals)


def _real(window: _Window, features: Memory, largest: Value, shrink: Value, scale: Value) -> Lanes:
    """Return the projected features of a row in steps of the grid."""
    numbers = _finite(window.load(features, count(0)), largest)
    return numbers * spread(window.builder, _KIND, shrink) * spread(window.builder, _KIND, scale)


@building_block
def _round(typing, features, place, d, squares, largest, shrink, scale, result, target, size, at_size):
    """Write the integers that are nearest to a row's features, and how long they are."""

    def write(b, features, d, squares, largest, shrink, scale, result, size) -> None:
        total = Register(b, _KIND, 0)

        def add(window: _Window) -> None:
            near = _real(window, features, largest, shrink, scale).nearest() + 0.0  # a zero without a sign
            window.store(result, count(0), near.to(F32))
            total.set(total.get() + _powers(near, squares))

        _each_window(b, d, add)
        size.store(0, _folded(total.get(), lambda one, other: one + other))

    return statement(write, features, place, d, squares, largest, shrink, scale, result, target, size, at_size)


@building_block
def _rank(typing, features, place, d, largest, shrink, scale, ranks, zero):
    """Write for each entry that was rounded away from 0 its rank among those, by its distance and then its column.

    The distance is in steps of 2^-31, at most 2^30 of them, so that a double holds it with the column exactly.
    """

    def write(b, features, d, largest, shrink, scale, ranks) -> None:
        numbers = ir.Constant(_KIND.vector, [float(lane) for lane in range(_LANES)])

        def add(window: _Window) -> None:
            real = _real(window, features, largest, shrink, scale).size()
            near = real.nearest()
            column = spread(b, _KIND, b.sitofp(window.first, _KIND.element)) + real.new(numbers)
            rank = ((real - near) * 2.0**31).nearest() * float(_COLUMNS) + column
            window.store(ranks, count(0), near.select(">", real, rank, float("inf")))

        _each_window(b, d, add)

    return statement(write, features, place, d, largest, shrink, scale, ranks, zero)


@building_block
def _least(typing, numbers, start, stop, result, index):
    """Write the smallest of numbers that fill whole vectors."""

    def write(b, numbers, stop, result) -> None:
        least = Register(b, _KIND, float("inf"))
        with cgutils.for_range_slice(b, count(0), stop, count(_LANES)) as (j, _):
            least.set(_smaller(numbers.load(j, _KIND), least.get()))
        result.store(0, _folded(least.get(), _smaller))

    return statement(write, numbers, start, stop, result, index)


def _smaller(one: Lanes, other: Lanes) -> Lanes:
    return one.select("<", other, one, other)


@inner
def _shorten(features, place, d, squares, largest, shrink, scale, result, target, excess, ranks, firsts, first):
    """Round entries toward 0, in the order of their ranks, until the row fits.

    ``ranks`` and ``firsts``, the smallest of each group of them, are filled up with infinity.
    """
    _rank(features, place, d, largest, shrink, scale, ranks, 0)
    for group in range(len(ranks) // _GROUP):
        _least(ranks, group * _GROUP, _GROUP, firsts, group)
    while excess > 0:
        _least(firsts, 0, len(firsts), first, 0)
        if first[0] == np.inf:
            break
        column = np.int64(first[0]) & (_COLUMNS - 1)
        near = np.float64(result[target + column])
        excess -= 2 * abs(near) - 1 if squares else 1.0
        result[target + column] = near - 1 if near > 0 else near + 1
        ranks[column] = np.inf
        group = column // _GROUP
        _least(ranks, group * _GROUP, _GROUP, firsts, group)
    if excess > 0:  # cannot happen, and would not harm
        for j in range(d):
            result[target + j] = 0.0


@kernel
def shortened(features, result, d, width, squares, largest, allowed, scale, limit, steps, version=VERSION):
    """Write the integers of rows in a ball: ``features`` has d for each, ``result`` ``width``, the last an intercept."""
    n = len(result) // width
    places, lengths, size = np.empty(_SIDE_BY_SIDE, np.int64), np.empty(_SIDE_BY_SIDE), np.empty(1)
    ranks = np.full(-(-d // _GROUP) * _GROUP, np.inf)
    firsts, first = np.full(-(-len(ranks) // _GROUP // _LANES) * _LANES, np.inf), np.empty(1)
    for start in range(0, n, _SIDE_BY_SIDE):
        for i in range(_SIDE_BY_SIDE):
            places[i] = min(start + i, n - 1) * d
        _lengths(features, 0, places, 0, d, squares, largest, lengths, 0)
        for i in range(_SIDE_BY_SIDE):
            length = np.sqrt(lengths[i]) if squares else lengths[i]
            lengths[i] = allowed / (length if length > allowed else allowed)
        for i in range(min(_SIDE_BY_SIDE, n - start)):
            place, target, shrink = places[i], (start + i) * width, lengths[i]
            _round(features, place, d, squares, largest, shrink, scale, result, target, size, 0)
            if size[0] > limit:
                excess = size[0] - limit
                _shorten(
                    features, place, d, squares, largest, shrink, scale, result, target, excess, ranks, firsts, first
                )
            for j in range(d, width):
                result[target + j] = steps


@building_block
def _clip(typing, features, zero, places, at_places, d, ends, at_ends, padded, result, at_result, targets, at_targets):
    """Write the nearest integers of a few rows, held in each column's range before and after they are rounded."""

    def write(b, features, places, d, ends, padded, result, targets) -> None:
        rows = [(places.integer(row), targets.integer(row)) for row in range(_TOGETHER)]

        def add(window: _Window) -> None:
            starts = (b.add(b.mul(padded, count(row)), window.first) for row in range(5))
            low, high, scale, least, most = (ends.load(start, _KIND) for start in starts)
            for place, target in rows:
                real = _held(_without_nan(window.load(features, place)), low, high) * scale
                near = _held(real.nearest(), least, most) + 0.0  # a zero without a sign
                window.store(result, target, near.to(F32))

        _each_window(b, d, add)

    return statement(
        write, features, zero, places, at_places, d, ends, at_ends, padded, result, at_result, targets, at_targets
    )


@inner
def _indicator(features, place, ends, padded, j):
    """Return a feature without NaN, in the range of its column."""
    value = np.float64(features[place + j])
    value = value if value == value else 0.0
    value = ends[j] if value < ends[j] else value
    return ends[padded + j] if value > ends[padded + j] else value


@inner
def _share(features, place, ends, padded, start, stop, allowed, result, target, steps):
    """Write the integers of a block of indicators again if they add up to more than one of them may be."""
    total, size = 0.0, 0.0
    for j in range(start, stop):
        total += _indicator(features, place, ends, padded, j)
        size += result[target + j]
    if not (total > 1 or size > steps):
        return
    shrink, size = allowed / total if total > 1 else 1.0, 0.0
    for j in range(start, stop):
        near = np.rint(_indicator(features, place, ends, padded, j) * shrink * ends[2 * padded + j])
        near = ends[3 * padded + j] if near < ends[3 * padded + j] else near
        near = ends[4 * padded + j] if near > ends[4 * padded + j] else near
        result[target + j] = near + 0.0
        size += near
    if size > steps:
        size = 0.0
        for j in range(start, stop):
            near = np.floor(_indicator(features, place, ends, padded, j) * shrink * ends[2 * padded + j])
            result[target + j] = near + 0.0
            size += near
    if size > steps:  # cannot happen, and would not harm
        for j in range(start, stop):
            result[target + j] = 0.0


@kernel
def clipped(features, result, d, width, ends, blocks, allowed, steps, version=VERSION):
    """Write the integers of rows in a box: ``features`` has d for each, ``result`` ``width``, the last an intercept.

    ``ends`` holds the arrays of a ``Clipping`` one after the other, each filled up to whole vectors.
    """
    n, padded = len(result) // width, len(ends) // 5
    places, targets = np.empty(_TOGETHER, np.int64), np.empty(_TOGETHER, np.int64)
    for start in range(0, n, _TOGETHER):
        for i in range(_TOGETHER):
            row = min(start + i, n - 1)
            places[i], targets[i] = row * d, row * width
        _clip(features, 0, places, 0, d, ends, 0, padded, result, 0, targets, 0)
        for i in range(min(_TOGETHER, n - start)):
            for block in range(len(blocks)):
                first, last = blocks[block]
                _share(features, places[i], ends, padded, first, last, allowed[block], result, targets[i], steps)
            for j in range(d, width):
                result[targets[i] + j] = steps
