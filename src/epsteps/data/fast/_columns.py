"""Kernels for many points: two matrix products per tile of rows, in which a vector holds several points."""

import numpy as np
from numba.core import cgutils

from epsteps.data.fast import _slopes
from epsteps.data.fast._lanes import VERSION, WIDTH, Register, building_block, count, fence, inner, kernel
from epsteps.data.fast._lanes import statement as _statement
from epsteps.problem.grid import ROWS_PER_DOUBLE

# Vectors of columns that go through a tile together: two panels of the matrix product.
GROUP = 6


def _panel(rows: int, vectors: int):
    """Return an intrinsic: C (+)= A B for that many rows of A and vectors of columns, the sums held in registers."""

    def write(b, A, row_step, step, B, B_step, C, C_step, number, add) -> None:
        kind = B.kind
        places = [[b.add(b.mul(count(p), C_step), count(kind.lanes * q)) for q in range(vectors)] for p in range(rows)]
        totals = [[Register(b, kind, 0.0) for _ in range(vectors)] for _ in range(rows)]
        with b.if_then(b.icmp_signed("!=", add, count(0))):
            for p in range(rows):
                for q in range(vectors):
                    totals[p][q].set(C.load(places[p][q]))
        with cgutils.for_range(b, number) as loop:
            fence(b)
            from_A, from_B = b.mul(loop.index, step), b.mul(loop.index, B_step)
            columns = [B.load(b.add(from_B, count(kind.lanes * q))) for q in range(vectors)]
            for p in range(rows):
                factor = A.spread(b.add(from_A, b.mul(count(p), row_step)))
                for q in range(vectors):
                    totals[p][q].set(factor.times(columns[q], totals[p][q].get()))
        for p in range(rows):
            for q in range(vectors):
                C.store(places[p][q], totals[p][q].get())

    @building_block
    def panel(typing, A, at_A, row_step, step, B, at_B, B_step, C, at_C, C_step, number, add):
        return _statement(write, A, at_A, row_step, step, B, at_B, B_step, C, at_C, C_step, number, add)

    return panel


_panel_4x3, _panel_4x2, _panel_4x1 = _panel(4, 3), _panel(4, 2), _panel(4, 1)
_panel_1x3, _panel_1x2, _panel_1x1 = _panel(1, 3), _panel(1, 2), _panel(1, 1)


@inner
def _product(A, at_A, row_step, step, rows, B, at_B, B_step, columns, C, at_C, C_step, number, add):
    """Set C (or add to it) the product of A (rows x number) and B (number x columns, whole vectors)."""
    lanes = WIDTH // B.itemsize
    for c in range(0, columns, 3 * lanes):
        b, left, to = at_B + c, columns - c, at_C + c
        p = 0
        while p + 4 <= rows:
            a, into = at_A + p * row_step, to + p * C_step
            if left >= 3 * lanes:
                _panel_4x3(A, a, row_step, step, B, b, B_step, C, into, C_step, number, add)
            elif left >= 2 * lanes:
                _panel_4x2(A, a, row_step, step, B, b, B_step, C, into, C_step, number, add)
            else:
                _panel_4x1(A, a, row_step, step, B, b, B_step, C, into, C_step, number, add)
            p += 4
        while p < rows:
            a, into = at_A + p * row_step, to + p * C_step
            if left >= 3 * lanes:
                _panel_1x3(A, a, row_step, step, B, b, B_step, C, into, C_step, number, add)
            elif left >= 2 * lanes:
                _panel_1x2(A, a, row_step, step, B, b, B_step, C, into, C_step, number, add)
            else:
                _panel_1x1(A, a, row_step, step, B, b, B_step, C, into, C_step, number, add)
            p += 1


@kernel
def means(features, negated, x, loss, what, start, stop, tile, gradient, totals, version=VERSION):
    """Add the sums over records start to stop to the gradient (d x width) and to the losses' totals (width).

    ``x`` is d x width with zeros in the columns that fill its last vector up; ``features`` are flat. Within a tile
    everything is in the kind of numbers of x, between tiles in float64.
    """
    d, width = x.shape
    points, lanes = x.ravel(), WIDTH // x.itemsize
    margins, part = np.empty(tile * GROUP * lanes, x.dtype), np.empty(d * GROUP * lanes, x.dtype)
    sums, factors = np.zeros(width, x.dtype), np.ones(width, x.dtype)
    for first in range(start, stop, tile):
        number = min(tile, stop - first)
        for c in range(0, width, GROUP * lanes):
            w = min(GROUP * lanes, width - c)
            _product(features, first * d, d, 1, number, points, c, width, w, margins, 0, w, d, 0)
            for q in range(0, w, lanes):
                _slopes.slopes_of_columns(loss, what, margins, q, w, negated, first, sums, factors, c + q, number)
            if what != _slopes.VALUE:
                _product(features, first * d, 1, d, d, margins, 0, w, w, part, 0, w, number, 0)
                for j in range(d):
                    for i in range(w):
                        gradient[j, c + i] += part[j * w + i]
        if what != _slopes.SLOPE:
            _slopes.empty_totals(sums, factors, totals)


@kernel
def sums(features, targets, x, steps, scales, loss, start, stop, tile, gradient, version=VERSION):
    """Add the exact sums over records start to stop to the gradient (d x width, int64).

    ``x`` is d x width, ``steps`` and ``scales`` have one number per column; all hold integers, records in float32.
    """
    d, width = x.shape
    points, lanes = x.ravel(), WIDTH // x.itemsize
    doubles, margins, part = np.empty(tile * d), np.empty(tile * GROUP * lanes), np.zeros(d * width)
    pending = 0
    for first in range(start, stop, tile):
        number = min(tile, stop - first)
        for i in range(number * d):
            doubles[i] = features[first * d + i]
        if pending + number > ROWS_PER_DOUBLE:
            _empty(part, gradient)
            pending = 0
        pending += number
        for c in range(0, width, GROUP * lanes):
            w = min(GROUP * lanes, width - c)
            _product(doubles, 0, d, 1, number, points, c, width, w, margins, 0, w, d, 0)
            for q in range(0, w, lanes):
                _slopes.levels_of_columns(loss, margins, q, w, targets, first, steps, scales, c + q, number)
            _product(doubles, 0, 1, d, d, margins, 0, w, w, part, c, width, number, 1)
    _empty(part, gradient)


@inner
def _empty(doubles, into):
    """Move exact integers to int64."""
    flat = into.ravel()
    for i in range(len(flat)):
        flat[i] += np.int64(doubles[i])
        doubles[i] = 0.0
