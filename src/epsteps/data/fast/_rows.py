"""Kernels for one point, and many features or a subset: records row by row, in which a vector holds several features.

Blocks of rows are read from memory once: their margins, their slopes, then slopes times rows out of the cache.
"""

import numpy as np
from llvmlite import ir
from numba.core import cgutils

from epsteps.data.fast import _slopes
from epsteps.data.fast._lanes import (
    LINE,
    SHORT,
    VERSION,
    WIDTH,
    Kind,
    Lanes,
    Memory,
    Register,
    Value,
    building_block,
    count,
    inner,
    kernel,
)
from epsteps.data.fast._lanes import statement as _statement
from epsteps.problem.grid import ROWS_PER_DOUBLE

# Rows that are multiplied together, and to a multiple of which blocks are filled up (two vectors of float32).
_FOUR = 4
MULTIPLE = 16


def _each_vector(b: ir.IRBuilder, features: Memory, kind: Kind, places: list[Value], d: Value, use) -> None:
    """Call ``use(index, vectors)`` for each vector of features of these rows; the last is filled up with zeros."""
    whole = b.and_(d, count(-kind.lanes))
    with cgutils.for_range_slice(b, count(0), whole, count(kind.lanes)) as (j, _):
        use(j, [features.load(b.add(place, j), kind) for place in places])
    left = b.sub(d, whole)
    with b.if_then(b.icmp_signed("!=", left, count(0))):
        numbers = ir.VectorType(SHORT, kind.lanes)
        lanes = Lanes(b, Kind(SHORT, kind.lanes, "i32"), ir.Constant(numbers, list(range(kind.lanes))))
        limit = b.insert_element(ir.Constant(numbers, ir.Undefined), b.trunc(left, SHORT), ir.Constant(SHORT, 0))
        mask = b.icmp_signed("<", lanes.value, lanes.new(limit).mix(lanes, [0] * kind.lanes).value)
        use(whole, [features.load_some(b.add(place, whole), mask, kind) for place in places])


@building_block
def _margins(typing, features, zero, offsets, at_offsets, x, at_x, d, margins, at_margins):
    """Write the margins of four rows: four sums along their features, transposed and added up at the end."""

    def write(b, features, offsets, x, d, margins) -> None:
        totals = [Register(b, x.kind, 0) for _ in range(_FOUR)]

        def add(j: Value, vectors: list[Lanes]) -> None:
            weights = x.load(j)
            for total, vector in zip(totals, vectors, strict=True):
                total.set(vector.times(weights, total.get()))

        _each_vector(b, features, x.kind, [offsets.integer(p) for p in range(_FOUR)], d, add)
        s = [total.get() for total in totals]
        if x.kind.lanes == 2 * _FOUR:
            s = [t.mix(t, [0, 1, 2, 3]) + t.mix(t, [4, 5, 6, 7]) for t in s]
        first, second = [s[i].mix(s[i + 1], [0, 4, 2, 6]) + s[i].mix(s[i + 1], [1, 5, 3, 7]) for i in (0, 2)]
        margins.store(0, first.mix(second, [0, 1, 4, 5]) + first.mix(second, [2, 3, 6, 7]))

    return _statement(write, features, zero, offsets, at_offsets, x, at_x, d, margins, at_margins)


@building_block
def _gradient(typing, features, zero, offsets, at_offsets, slopes, at_slopes, d, gradient, at_gradient):
    """Add four rows times their slopes to the gradient, which is filled up to whole vectors."""

    def write(b, features, offsets, slopes, d, gradient) -> None:
        factors = [slopes.spread(p) for p in range(_FOUR)]

        def add(j: Value, u: list[Lanes]) -> None:
            first = u[1].times(factors[1], u[0] * factors[0])
            second = u[3].times(factors[3], u[2] * factors[2])
            gradient.store(j, gradient.load(j) + (first + second))

        _each_vector(b, features, slopes.kind, [offsets.integer(p) for p in range(_FOUR)], d, add)

    return _statement(write, features, zero, offsets, at_offsets, slopes, at_slopes, d, gradient, at_gradient)


@building_block
def _prefetch(typing, features, offset, d):
    """Ask for a row ahead of its use: the processor cannot guess which rows were drawn."""

    def write(b, features, d) -> None:
        step = LINE // features.kind.size
        with cgutils.for_range_slice(b, count(0), b.add(d, count(step - 1)), count(step)) as (i, _):
            last = b.sub(d, count(1))
            features.prefetch(b.select(b.icmp_signed("<", i, last), i, last))

    return _statement(write, features, offset, d)


@inner
def _locate(features, targets, rows, n, d, first, number, ahead, offsets, found):
    """Write where a block's rows begin, and their targets; fill up to a multiple with its first row.

    Drawn rows are asked for one block ahead, the first block's by itself.
    """
    for i in range(number):
        row = first + i
        if len(rows):
            row = rows[first + i]
            if row < 0 or row >= n:
                raise IndexError("a row is not one of the records")
            _prefetch(features, rows[min(first + i + ahead, len(rows) - 1)] * d, d)
        offsets[i], found[i] = row * d, targets[row]
    full = -(-number // MULTIPLE) * MULTIPLE
    for i in range(number, full):
        offsets[i], found[i] = offsets[0], -_slopes.FILLER
    return full


@kernel
def means(features, negated, rows, x, loss, what, start, stop, block, gradient, total, version=VERSION):
    """Add the sums over records start to stop, or those of ``rows``, to the gradient (d) and the losses' total (1).

    ``x`` is filled up with zeros to whole vectors.
    """
    n, d, wide = len(negated), len(gradient), 2 * WIDTH // negated.itemsize
    offsets, targets = np.empty(block, np.int64), np.empty(block, negated.dtype)
    margins, part = np.empty(block, x.dtype), np.zeros(len(x), x.dtype)
    sums, factors, totals = np.zeros(wide, negated.dtype), np.ones(wide, negated.dtype), np.zeros(wide)
    for first in range(start, stop, block):
        number = min(block, stop - first)
        full = _locate(features, negated, rows, n, d, first, number, block, offsets, targets)
        for i in range(0, full, _FOUR):
            _margins(features, 0, offsets, i, x, 0, d, margins, i)
        margins[number:full] = _slopes.FILLER
        _slopes.slopes_of_records(loss, what, margins, targets, 0, sums, factors, wide, full // wide)
        if what != _slopes.SLOPE:
            _slopes.empty_totals(sums, factors, totals)
        if what != _slopes.VALUE:
            margins[number:full] = 0
            for i in range(0, full, _FOUR):
                _gradient(features, 0, offsets, i, margins, i, d, part, 0)
            for j in range(d):
                gradient[j] += part[j]
                part[j] = 0
    total[0] += totals.sum()


@kernel
def sums(features, targets, rows, x, step, scale, loss, start, stop, block, gradient, version=VERSION):
    """Add the exact sums over records start to stop, or those of ``rows``, to the gradient (d, int64).

    Records and targets are float32, x is float64 and filled up with zeros to whole vectors; all hold integers.
    """
    n, d = len(targets), len(gradient)
    offsets, found = np.empty(block, np.int64), np.empty(block, np.float32)
    margins, part = np.empty(block), np.zeros(len(x))
    pending = 0
    for first in range(start, stop, block):
        number = min(block, stop - first)
        full = _locate(features, targets, rows, n, d, first, number, block, offsets, found)
        for i in range(0, full, _FOUR):
            _margins(features, 0, offsets, i, x, 0, d, margins, i)
        _slopes.levels_of_records(loss, margins, found, 0, step, scale, full)
        margins[number:full] = 0.0
        if pending + full > ROWS_PER_DOUBLE:
            _empty(part, gradient)
            pending = 0
        pending += full
        for i in range(0, full, _FOUR):
            _gradient(features, 0, offsets, i, margins, i, d, part, 0)
    _empty(part, gradient)


@inner
def _empty(doubles, into):
    """Move exact integers to int64."""
    for j in range(len(into)):
        into[j] += np.int64(doubles[j])
        doubles[j] = 0.0


@kernel
def descend(
    features,
    negated,
    rows,
    size,
    alpha,
    beta,
    gamma,
    restart,
    noise,
    ridge,
    loss,
    block,
    point,
    sums,
    path,
    first,
    version=VERSION,
):
    """Write the iterates after path[first], one for each row of ``noise``: the library's loop, operation by operation.

    Step t reads ``size`` of the ``rows``, which are drawn for all steps: the next step's first rows are asked for while
    this one is still computing. ``point`` (filled up with zeros to whole vectors) and ``sums`` are for the kernel's own
    use.
    """
    total = sums[:1].copy()
    for i in range(len(noise)):
        t = first + i
        moving = t > 0 and not restart[t]
        for j in range(len(sums)):
            drift = path[t, j] - path[t - 1, j] if moving else 0.0
            path[t + 1, j] = path[t, j] + gamma[t] * drift
            point[j] = path[t + 1, j]
            sums[j] = 0.0
        means(
            features, negated, rows, point, loss, _slopes.SLOPE, i * size, (i + 1) * size, block, sums, total, VERSION
        )
        for j in range(len(sums)):
            drift = path[t, j] - path[t - 1, j] if moving else 0.0
            noisy = sums[j] / size + ridge * path[t + 1, j] + noise[i, j]
            path[t + 1, j] = path[t, j] + beta[t] * drift - alpha[t] * noisy
