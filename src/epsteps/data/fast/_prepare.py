"""Records on the grid in one compiled pass: without NaN, projected, rounded, as float32 with the intercept's column.

Every operation is that of the domain's ``integers``, in its order where the order matters, so that results are the same
bit by bit: lengths are sums one feature after the other, of several rows side by side; sums of integers are exact in
any order. Kernels compute with the numbers that a domain gives as its ``recipe``.
"""

from collections.abc import Callable
from typing import Any

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

# Numbers that are converted at a time where kernels do not read them as they are: they stay in a core's cache.
_BLOCK = 2**15
# Numbers in a vector, which is also how many rows are treated together.
_KIND = F64.twice
_LANES = _KIND.lanes
# Columns up to which rows are shortened side by side. Above, each on its own, with the next entry of groups known.
_FEW = 64
_GROUP = 4 * _LANES
# Ranks are multiples of this, one for each distance, plus the column.
_COLUMNS = 2**22
# What writes the integers of rows of features to rows of a result.
_Fill = Callable[[np.ndarray, np.ndarray], None]


def integers(problem: Problem, features: np.ndarray) -> np.ndarray:
    """Return what ``encoding.integers`` does, in threads."""
    number, d = features.shape
    if d != problem.d:
        raise ValueError(f"features must have d={problem.d} columns, got shape {features.shape}.")
    fill = _kernel_of(problem)
    if fill is None:
        return encoding.integers(problem, features)
    result = np.empty((number, problem.width), dtype=np.float32)
    as_they_are = features.dtype in (np.float64, np.float32) and features.flags.c_contiguous and features.flags.aligned
    size = max(1, number if as_they_are else _BLOCK // d)

    def part(start: int, stop: int) -> None:
        for first in range(start, stop, size):
            block = slice(first, min(first + size, stop))
            rows = features[block] if as_they_are else np.ascontiguousarray(features[block], dtype=float)
            rows = np.asarray(rows).reshape(-1).view()
            rows.flags.writeable = False  # numba compiles anew for arrays that can be written
            fill(rows, result[block].reshape(-1))

    map_parts(part, number, work=d)
    return result


def _kernel_of(problem: Problem) -> _Fill | None:
    """Return what writes the integers of rows, or None where the domain's own class has no recipe for a kernel."""
    domain, d = problem.domain, problem.d
    recipe = domain.recipe(d, STEPS) if "recipe" in vars(type(domain)) and d < _COLUMNS else None
    kernel = None if recipe is None else _KERNELS.get(recipe.kernel)
    return None if kernel is None else kernel(recipe, d, problem.width)


def _shortening(recipe: Shortening, d: int, width: int) -> _Fill:
    return lambda features, result: shortened(features, result, d, width, *recipe, STEPS, VERSION)


def _clipping(recipe: Clipping, d: int, width: int) -> _Fill:
    ends = np.zeros((5, -(-d // _LANES) * _LANES))
    ends[:, :d] = recipe.ends
    blocks = np.array(recipe.one_hot, dtype=np.int64).reshape(-1, 2)
    allowed = 1 - (np.diff(blocks).reshape(-1) + 8) * np.finfo(float).eps  # as in Box: rounded toward the inside
    return lambda features, result: clipped(
        features, result, d, width, ends.reshape(-1), blocks, allowed, STEPS, VERSION
    )


# What makes a kernel of a recipe, the number of features and the width of a result, by the name that recipes have.
_KERNELS: dict[str, Callable[[Any, int, int], _Fill]] = {"shorten": _shortening, "clip": _clipping}


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


def _finite(numbers: Lanes, low: Value, high: Value) -> Lanes:
    """Return the numbers, held within bounds on both sides of 0; NaN becomes 0."""
    low, high = (spread(numbers.builder, _KIND, bound) for bound in (low, high))
    return _without_nan(_held(numbers, low, high))


def _powers(numbers: Lanes, squares: Value) -> Lanes:
    """Return squares or sizes."""
    b = numbers.builder
    return numbers.new(
        b.select(b.icmp_signed("!=", squares, count(0)), (numbers * numbers).value, numbers.size().value)
    )


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
def _lengths(typing, features, zero, places, at_places, d, squares, low, high, totals, at_totals):
    """Write the sums of the powers of several rows, each one number after the other."""

    def write(b, features, places, d, squares, low, high, totals) -> None:
        total, rows = Register(b, _KIND, 0), [places.integer(row) for row in range(_LANES)]

        def add(window: _Window) -> None:
            numbers = [_finite(window.load(features, row), low, high) for row in rows]
            for column in _transposed([_powers(vector, squares) for vector in numbers]):
                total.set(total.get() + column)

        _each_window(b, d, add)
        totals.store(0, total.get())

    return statement(write, features, zero, places, at_places, d, squares, low, high, totals, at_totals)


def _real(numbers: Lanes, low: Value, high: Value, shrink: Lanes, scale: Value) -> Lanes:
    """Return projected features in steps of the grid."""
    return _finite(numbers, low, high) * shrink * spread(numbers.builder, _KIND, scale)


def _rounding(how: Callable[[Lanes], Lanes]) -> Callable[..., None]:
    """Return what writes a row's features as integers, rounded like this, and the sum of their powers."""

    def write(b, features, d, squares, low, high, shrink, scale, result, size) -> None:
        total, factor = Register(b, _KIND, 0), spread(b, _KIND, shrink)

        def add(window: _Window) -> None:
            numbers = how(_real(window.load(features, count(0)), low, high, factor, scale)) + 0.0  # 0 without a sign
            window.store(result, count(0), numbers.to(F32))
            total.set(total.get() + _powers(numbers, squares))

        _each_window(b, d, add)
        size.store(0, _folded(total.get(), lambda one, other: one + other))

    return write


@building_block
def _round(typing, features, place, d, squares, low, high, shrink, scale, result, target, size, at_size):
    """Write the integers that are nearest to a row's features, and the sum of their powers."""
    write = _rounding(Lanes.nearest)
    return statement(write, features, place, d, squares, low, high, shrink, scale, result, target, size, at_size)


@building_block
def _floor(typing, features, place, d, squares, low, high, shrink, scale, result, target, size, at_size):
    """Write the integers below a row's features, and the sum of their powers."""
    write = _rounding(Lanes.floor)
    return statement(write, features, place, d, squares, low, high, shrink, scale, result, target, size, at_size)


def _ranks(window: _Window, real: Lanes) -> Lanes:
    """Return for entries that are rounded away from 0 their rank among those: by distance, then by column.

    The distance is in steps of 2^-31, at most 2^30 of them, so that a double holds it with the column exactly. Others,
    and empty lanes, have none: infinity.
    """
    b, size = real.builder, real.size()
    near = size.nearest()
    numbers = real.new(ir.Constant(_KIND.vector, [float(lane) for lane in range(_LANES)]))
    column = spread(b, _KIND, b.sitofp(window.first, _KIND.element)) + numbers
    rank = ((size - near) * 2.0**31).nearest() * float(_COLUMNS) + column
    return near.select(">", size, rank, float("inf"))


def _smaller(one: Lanes, other: Lanes) -> Lanes:
    return one.select("<", other, one, other)


@building_block
def _rank_row(typing, features, place, d, low, high, shrink, scale, ranks, zero):
    """Write the ranks of a row's entries."""

    def write(b, features, d, low, high, shrink, scale, ranks) -> None:
        factor = spread(b, _KIND, shrink)

        def add(window: _Window) -> None:
            real = _real(window.load(features, count(0)), low, high, factor, scale)
            ranks.store(window.first, _ranks(window, real))

        _each_window(b, d, add)

    return statement(write, features, place, d, low, high, shrink, scale, ranks, zero)


@building_block
def _next(typing, ranks, start, number, last, result, index):
    """Write the smallest of so many ranks that is larger than the last one; they fill whole vectors."""

    def write(b, ranks, number, last, result) -> None:
        least, bound = Register(b, _KIND, float("inf")), spread(b, _KIND, last)
        with cgutils.for_range_slice(b, count(0), number, count(_LANES)) as (j, _):
            found = ranks.load(j, _KIND)
            least.set(_smaller(found.select(">", bound, found, float("inf")), least.get()))
        result.store(0, _folded(least.get(), _smaller))

    return statement(write, ranks, start, number, last, result, index)


@inner
def _shorten(result, target, rank, excess, squares):
    """Round the entry of a rank toward 0 if the row exceeds its limit; return what it exceeds it by then."""
    goes_on = excess > 0 and rank < np.inf
    column = np.int64(rank if rank < np.inf else 0.0) & (_COLUMNS - 1)
    near = np.float64(result[target + column])
    result[target + column] = near - np.copysign(1.0 if goes_on else 0.0, near)
    saved = 2 * abs(near) - 1 if squares else 1.0
    return column, (excess - saved if goes_on else excess)


@inner
def _shorten_row(features, place, d, squares, largest, shrink, scale, result, target, excess, ranks, firsts):
    """Round entries of a row toward 0, in the order of their ranks, until it fits; return what it still exceeds.

    ``ranks``, and ``firsts``, the next of each group of them, are filled up with infinity; the last place is free.
    """
    _rank_row(features, place, d, -largest, largest, shrink, scale, ranks, 0)
    for group in range(-(-d // _GROUP)):
        _next(ranks, group * _GROUP, _GROUP, -np.inf, firsts, group)
    last = len(firsts) - 1
    while excess > 0:
        _next(firsts, 0, last, -np.inf, firsts, last)
        rank = firsts[last]
        if rank == np.inf:
            break
        column, excess = _shorten(result, target, rank, excess, squares)
        group = column // _GROUP
        _next(ranks, group * _GROUP, _GROUP, rank, firsts, group)
    return excess


@building_block
def _rank_rows(typing, features, zero, places, at_places, d, low, high, shrinks, at_shrinks, scale, ranks, at_ranks):
    """Write the ranks of several rows' entries side by side."""

    def write(b, features, places, d, low, high, shrinks, scale, ranks) -> None:
        factors = [shrinks.spread(row) for row in range(_LANES)]
        rows = [(places.integer(row), factor.mix(factor, [0] * _LANES)) for row, factor in enumerate(factors)]

        def add(window: _Window) -> None:
            real = [_real(window.load(features, place), low, high, shrink, scale) for place, shrink in rows]
            for i, column in enumerate(_transposed([_ranks(window, vector) for vector in real])):
                ranks.store(b.mul(b.add(window.first, count(i)), count(_LANES)), column)

        _each_window(b, d, add)

    return statement(
        write, features, zero, places, at_places, d, low, high, shrinks, at_shrinks, scale, ranks, at_ranks
    )


@building_block
def _next_of_rows(typing, ranks, zero, d, last, at_last):
    """Replace the last ranks of several rows by the next ones."""

    def write(b, ranks, d, last) -> None:
        bound, least = last.load(0, _KIND), [Register(b, _KIND, float("inf")) for _ in range(2)]
        with cgutils.for_range_slice(b, count(0), b.mul(d, count(_LANES)), count(2 * _LANES)) as (j, _):
            for i, register in enumerate(least):  # the columns are filled up to whole vectors
                found = ranks.load(b.add(j, count(i * _LANES)), _KIND)
                register.set(_smaller(found.select(">", bound, found, float("inf")), register.get()))
        last.store(0, _smaller(least[0].get(), least[1].get()))

    return statement(write, ranks, zero, d, last, at_last)


@inner
def _shorten_rows(features, places, d, squares, largest, shrinks, scale, result, targets, excess, ranks, last):
    """Do what ``_shorten_row`` does for several rows side by side, and leave in ``excess`` what they still exceed."""
    _rank_rows(features, 0, places, 0, d, -largest, largest, shrinks, 0, scale, ranks, 0)
    last[:] = -np.inf
    goes_on = True
    while goes_on:
        _next_of_rows(ranks, 0, d, last, 0)
        goes_on = False
        for i in range(_LANES):
            _, excess[i] = _shorten(result, targets[i], last[i], excess[i], squares)
            goes_on |= (excess[i] > 0) & (last[i] < np.inf)


@inner
def _shorten_found(
    features, places, d, squares, largest, shrinks, scale, result, targets, excess, found, ranks, firsts, last
):
    """Shorten the rows that were found to exceed the limit, one for each lane at most."""
    if d <= _FEW:
        for i in range(found, _LANES):
            places[i], targets[i], shrinks[i], excess[i] = places[0], targets[0], shrinks[0], 0.0
        _shorten_rows(features, places, d, squares, largest, shrinks, scale, result, targets, excess, ranks, last)
    else:
        for i in range(found):
            row = places[i], d, squares, largest, shrinks[i], scale
            excess[i] = _shorten_row(features, *row, result, targets[i], excess[i], ranks, firsts)
    for i in range(found):
        if excess[i] > 0:  # cannot happen, and would not harm
            result[targets[i] : targets[i] + d] = 0.0


@kernel
def shortened(features, result, d, width, squares, largest, allowed, scale, limit, steps, version=VERSION):
    """Write the integers of rows in a ball: ``features`` has d for each, ``result`` ``width``, with an intercept."""
    n, padded = len(result) // width, -(-d // _GROUP) * _GROUP
    places, lengths, size = np.empty(_LANES, np.int64), np.empty(_LANES), np.empty(1)
    long_places, long_targets = np.empty(_LANES + 1, np.int64), np.empty(_LANES + 1, np.int64)
    shrinks, excess, found = np.empty(_LANES + 1), np.empty(_LANES + 1), 0
    ranks = np.full(padded * (_LANES if d <= _FEW else 1), np.inf)
    firsts, last = np.full(-(-padded // _GROUP // _LANES) * _LANES + 1, np.inf), np.empty(_LANES)
    for start in range(0, n, _LANES):
        for i in range(_LANES):
            places[i] = min(start + i, n - 1) * d
        _lengths(features, 0, places, 0, d, squares, -largest, largest, lengths, 0)
        for i in range(_LANES):
            length = np.sqrt(lengths[i]) if squares else lengths[i]
            lengths[i] = allowed / (length if length > allowed else allowed)
        for i in range(min(_LANES, n - start)):
            target = (start + i) * width
            _round(features, places[i], d, squares, -largest, largest, lengths[i], scale, result, target, size, 0)
            for j in range(d, width):
                result[target + j] = steps
            long_places[found], long_targets[found], shrinks[found] = places[i], target, lengths[i]
            excess[found] = size[0] - limit
            found += size[0] > limit  # about every other row that lies on the sphere: too hard to guess for a branch
            if found == _LANES or (found > 0 and start + i == n - 1):
                row = long_places, d, squares, largest, shrinks, scale
                _shorten_found(features, *row, result, long_targets, excess, found, ranks, firsts, last)
                found = 0


@building_block
def _clip(typing, features, zero, places, at_places, d, ends, at_ends, padded, result, at_result, targets, at_targets):
    """Write the nearest integers of several rows, held in each column's range before and after they are rounded."""

    def write(b, features, places, d, ends, padded, result, targets) -> None:
        rows = [(places.integer(row), targets.integer(row)) for row in range(_LANES)]

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
def _share(features, places, start, stop, allowed, result, targets, steps, totals, size):
    """Write the integers of a block of indicators: in all at most 1, as features and as integers."""
    d, scale = stop - start, float(steps)
    places += start
    _lengths(features, 0, places, 0, d, 0, 0.0, 1.0, totals, 0)
    for i in range(_LANES):
        shrink, place, target = allowed / totals[i] if totals[i] > 1 else 1.0, places[i], targets[i] + start
        _round(features, place, d, 0, 0.0, 1.0, shrink, scale, result, target, size, 0)
        if size[0] > steps:
            _floor(features, place, d, 0, 0.0, 1.0, shrink, scale, result, target, size, 0)
        if size[0] > steps:  # cannot happen, and would not harm
            result[target : target + d] = 0.0
    places -= start


@kernel
def clipped(features, result, d, width, ends, blocks, allowed, steps, version=VERSION):
    """Write the integers of rows in a box: ``features`` has d for each, ``result`` ``width``, with an intercept.

    ``ends`` holds those of a ``Clipping`` one after the other, each filled up to whole vectors.
    """
    n, padded = len(result) // width, len(ends) // 5
    places, targets = np.empty(_LANES, np.int64), np.empty(_LANES, np.int64)
    totals, size = np.empty(_LANES), np.empty(1)
    for start in range(0, n, _LANES):
        for i in range(_LANES):
            row = min(start + i, n - 1)
            places[i], targets[i] = row * d, row * width
        _clip(features, 0, places, 0, d, ends, 0, padded, result, 0, targets, 0)
        for block in range(len(blocks)):
            first, stop = blocks[block]
            _share(features, places, first, stop, allowed[block], result, targets, steps, totals, size)
        for i in range(_LANES):
            for j in range(d, width):
                result[targets[i] + j] = steps
