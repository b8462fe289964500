"""Compiled kernels of the fast engine: importing this module needs numba.

Everything is in one file because numba's cache notices only changes of the file that holds the compiled function.
The inner loops are written down as vector instructions (class ``Lanes``): left to itself, the compiler neither keeps
a block of a matrix product in registers nor vectorises ``math.exp``. The instructions are LLVM's own, for any
processor; sums and products may be fused, and are never reordered, so that NaN stays NaN.
"""

import math
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

# Doubles per vector: AVX2's registers. Others split or pair them.
LANES = 4
# Doubles per line of the cache.
_LINE = 8
# Columns that go through a tile together: two panels of the matrix product.
GROUP = 24
# A product of this many factors in (1, 2] cannot overflow.
MAX_FACTORS = 1000
# Fills a tile's last vector up, as margin and as target: no loss and no slope, for either loss.
_FILLER = 1000.0

LOGISTIC, SQUARED = 0, 1
SLOPE, VALUE, BOTH = 1, 2, 3

Value = Any  # llvmlite's builders do not declare what they return
_DOUBLE, _INT = ir.DoubleType(), ir.IntType(64)
_SIGN = -(2**63)
_VECTOR, _INTEGERS = ir.VectorType(_DOUBLE, LANES), ir.VectorType(_INT, LANES)

# exp(r) for |r| <= ln(2)/2. Degree 10 leaves a relative error of 3e-16.
_FIT = np.polynomial.Chebyshev.interpolate(np.exp, 10, [-math.log(2) / 2, math.log(2) / 2])
_EXP = [float(c) for c in _FIT.convert(kind=np.polynomial.Polynomial).coef]
# Adding 1.5 * 2**52 rounds to an integer and leaves it in the lowest bits.
_ROUND = 6755399441055744.0
# ln(2) in two parts, the first with few enough digits for exact multiples (Cody and Waite).
_LN2_HIGH, _LN2_LOW = 0.693147180369123816490, 1.90821492927058770002e-10
# Beyond, exp is no normal number any more; it is held there.
_EXP_LIMIT = 708.0


def _intrinsic(function: Callable) -> Any:
    """Make a kernel's building block: numba calls ``function`` with types, kernels call the result with values."""
    return intrinsic(function)


class Lanes:
    """A vector of doubles in a kernel that is being written; each operator appends one instruction."""

    def __init__(self, builder: ir.IRBuilder, value: Value) -> None:
        self.builder, self.value = builder, value

    def _of(self, other: "Lanes | float") -> Value:
        return other.value if isinstance(other, Lanes) else ir.Constant(_VECTOR, [float(other)] * LANES)

    def __add__(self, other: "Lanes | float") -> "Lanes":
        return Lanes(self.builder, self.builder.fadd(self.value, self._of(other)))

    def __sub__(self, other: "Lanes | float") -> "Lanes":
        return Lanes(self.builder, self.builder.fsub(self.value, self._of(other)))

    def __mul__(self, other: "Lanes | float") -> "Lanes":
        return Lanes(self.builder, self.builder.fmul(self.value, self._of(other)))

    def __truediv__(self, other: "Lanes | float") -> "Lanes":
        return Lanes(self.builder, self.builder.fdiv(self.value, self._of(other)))

    def times(self, factor: "Lanes | float", plus: "Lanes | float") -> "Lanes":
        """Return self * factor + plus, in one instruction where the processor has it."""
        kind = ir.FunctionType(_VECTOR, [_VECTOR] * 3)
        function = cgutils.get_or_insert_function(self.builder.module, kind, f"llvm.fmuladd.v{LANES}f64")
        return Lanes(self.builder, self.builder.call(function, [self.value, self._of(factor), self._of(plus)]))

    def at_least(self, bound: float) -> "Lanes":
        """Return the larger of self and the bound; NaN stays."""
        less = self.builder.fcmp_ordered("<", self.value, self._of(bound))
        return Lanes(self.builder, self.builder.select(less, self._of(bound), self.value))

    def where_negative(self, yes: "Lanes | float", no: "Lanes | float") -> "Lanes":
        """Return ``yes`` in the lanes whose sign bit is set, else ``no``."""
        negative = self.builder.icmp_signed("<", self.bits(), ir.Constant(_INTEGERS, [0] * LANES))
        return Lanes(self.builder, self.builder.select(negative, self._of(yes), self._of(no)))

    def with_sign_of(self, other: "Lanes") -> "Lanes":
        """Return self, its sign changed where other's sign bit is set."""
        sign = self.builder.and_(other.bits(), ir.Constant(_INTEGERS, [_SIGN] * LANES))
        return self.from_bits(self.builder.xor(self.bits(), sign))

    def negative_size(self) -> "Lanes":
        """Return -|self|."""
        return self.from_bits(self.builder.or_(self.bits(), ir.Constant(_INTEGERS, [_SIGN] * LANES)))

    def bits(self) -> Value:
        """Return the doubles' bits as integers."""
        return self.builder.bitcast(self.value, _INTEGERS)

    def from_bits(self, bits: Value) -> "Lanes":
        """Return the doubles with these bits."""
        return Lanes(self.builder, self.builder.bitcast(bits, _VECTOR))

    def mix(self, other: "Lanes", lanes: list[int]) -> "Lanes":
        """Return these lanes of self (from 0) and other (from ``LANES``)."""
        mask = ir.Constant(ir.VectorType(ir.IntType(32), LANES), lanes)
        return Lanes(self.builder, self.builder.shuffle_vector(self.value, other.value, mask))


def _exp(x: Lanes) -> Lanes:
    """Return exp(x) for x <= 708, held at exp(-708) from below.

    It is p(r) 2^k for x = r + k ln 2, and k is added to the exponent's bits.
    """
    x = x.at_least(-_EXP_LIMIT)
    rounded = x.times(1 / math.log(2), _ROUND)
    k = rounded - _ROUND
    r = k.times(-_LN2_LOW, k.times(-_LN2_HIGH, x))
    # Estrin's order: pairs, pairs of pairs, ... a shorter chain than Horner's for about as many instructions.
    square = r * r
    fourth = square * square
    pairs = [r.times(_EXP[i + 1], _EXP[i]) for i in (0, 2, 4, 6, 8)]
    quads = [pairs[1].times(square, pairs[0]), pairs[3].times(square, pairs[2]), square.times(_EXP[10], pairs[4])]
    p = quads[2].times(fourth, quads[1]).times(fourth, quads[0])
    b = x.builder
    return p.from_bits(b.add(p.bits(), b.shl(rounded.bits(), ir.Constant(_INTEGERS, [52] * LANES))))


class Memory:
    """An array argument of an intrinsic, from an offset on."""

    def __init__(self, context, builder: ir.IRBuilder, kind, array: Value, offset: Value) -> None:
        data = context.make_array(kind)(context, builder, array).data
        self.builder, self.pointer = builder, builder.gep(data, [offset])

    def at(self, index: Value | int, kind: ir.Type = _DOUBLE) -> Value:
        """Return the address of this index."""
        index = ir.Constant(_INT, index) if isinstance(index, int) else index
        return self.builder.bitcast(self.builder.gep(self.pointer, [index]), kind.as_pointer())

    def load(self, index: Value | int) -> Lanes:
        """Return the doubles from this index on."""
        return Lanes(self.builder, self.builder.load(self.at(index, _VECTOR), align=8))

    def spread(self, index: Value | int) -> Lanes:
        """Return the double at this index in all lanes."""
        b, first = self.builder, ir.Constant(ir.IntType(32), 0)
        number = b.load(self.at(index, _DOUBLE))
        one = Lanes(b, b.insert_element(ir.Constant(_VECTOR, ir.Undefined), number, first))
        return one.mix(one, [0] * LANES)

    def integer(self, index: int) -> Value:
        """Return the integer at this index."""
        return self.builder.load(self.at(index, _INT))

    def store(self, index: Value | int, value: Lanes) -> None:
        """Write the doubles from this index on."""
        self.builder.store(value.value, self.at(index, _VECTOR), align=8)


class Register:
    """A vector that a loop updates."""

    def __init__(self, builder: ir.IRBuilder, start: Lanes | float) -> None:
        self.builder = builder
        self.place = cgutils.alloca_once(builder, _VECTOR)
        self.set(start)

    def get(self) -> Lanes:
        """Return the present value."""
        return Lanes(self.builder, self.builder.load(self.place))

    def set(self, value: Lanes | float) -> None:
        """Replace the value."""
        constant = ir.Constant(_VECTOR, [float(value)] * LANES) if not isinstance(value, Lanes) else value.value
        self.builder.store(constant, self.place)


def _count(n: int) -> ir.Constant:
    return ir.Constant(_INT, n)


def _fence(b: ir.IRBuilder) -> None:
    """Keep loads from moving across this point: unrolled loops would load so far ahead that registers run out."""
    b.asm(ir.FunctionType(ir.VoidType(), []), "", "~{memory}", [], side_effect=True)


def _arguments(context, builder: ir.IRBuilder, signature, values) -> list:
    """Return an intrinsic's arguments: each array with the integer after it as ``Memory``, the others as they are."""
    found, rest = [], list(zip(signature.args, values, strict=True))
    while rest:
        kind, value = rest.pop(0)
        if isinstance(kind, types.Array):
            value = Memory(context, builder, kind, value, rest.pop(0)[1])
        found.append(value)
    return found


def _statement(write, *kinds):
    """Return what numba wants of an intrinsic without a result: its signature, and a function that emits its body."""

    def emit(context, builder, signature, values):
        write(builder, *_arguments(context, builder, signature, values))
        return context.get_dummy_value()

    return types.void(*(kind if isinstance(kind, types.Array) else types.int64 for kind in kinds)), emit


def _panel(rows: int, vectors: int):
    """Return an intrinsic: C (+)= A B for that many rows of A and vectors of columns, the sums held in registers."""

    def write(b, A, row_step, step, B, B_step, C, C_step, count, add) -> None:
        places = [[b.add(b.mul(_count(p), C_step), _count(LANES * q)) for q in range(vectors)] for p in range(rows)]
        sums = [[Register(b, 0.0) for _ in range(vectors)] for _ in range(rows)]
        with b.if_then(b.icmp_signed("!=", add, _count(0))):
            for p in range(rows):
                for q in range(vectors):
                    sums[p][q].set(C.load(places[p][q]))
        with cgutils.for_range(b, count) as loop:
            _fence(b)
            from_A, from_B = b.mul(loop.index, step), b.mul(loop.index, B_step)
            columns = [B.load(b.add(from_B, _count(LANES * q))) for q in range(vectors)]
            for p in range(rows):
                factor = A.spread(b.add(from_A, b.mul(_count(p), row_step)))
                for q in range(vectors):
                    sums[p][q].set(factor.times(columns[q], sums[p][q].get()))
        for p in range(rows):
            for q in range(vectors):
                C.store(places[p][q], sums[p][q].get())

    @_intrinsic
    def panel(typing, A, at_A, row_step, step, B, at_B, B_step, C, at_C, C_step, count, add):
        return _statement(write, A, at_A, row_step, step, B, at_B, B_step, C, at_C, C_step, count, add)

    return panel


_panel_4x3, _panel_4x2, _panel_4x1 = _panel(4, 3), _panel(4, 2), _panel(4, 1)
_panel_1x3, _panel_1x2, _panel_1x1 = _panel(1, 3), _panel(1, 2), _panel(1, 1)


def _logistic(what: int, *, shared: bool):
    """Return an intrinsic: replace margins by slopes and gather the loss, as ``what`` asks.

    With v = -z m and t = exp(-|m|), the loss is (v + |m|)/2 + ln(1 + t), and its slope -z/(1 + t) for v > 0, else
    -z t/(1 + t). As z is 1 or -1, only its sign is used, by flipping signs.
    Lanes are columns with a ``shared`` target, or records with one each.
    """

    def write(b, margins, step, negated, totals, factors, count) -> None:
        total, factor = Register(b, 0.0), Register(b, factors.load(0))
        with cgutils.for_range(b, count) as loop:
            place = b.mul(loop.index, step)
            m, z = margins.load(place), negated.spread(loop.index) if shared else negated.load(place)
            v, minus = m.with_sign_of(z), m.negative_size()
            t = _exp(minus)
            whole = t + 1.0
            if what & SLOPE:
                margins.store(place, (v.where_negative(t, 1.0) / whole).with_sign_of(z))
            if what & VALUE:
                total.set(total.get() + (v - minus))
                factor.set(factor.get() * whole)
        totals.store(0, total.get().times(0.5, totals.load(0)))
        factors.store(0, factor.get())

    return _elementwise(write)


def _squared(*, shared: bool):
    """Return an intrinsic: replace margins by residuals, and add half their squares to the totals."""

    def write(b, margins, step, negated, totals, factors, count) -> None:
        total = Register(b, totals.load(0))
        with cgutils.for_range(b, count) as loop:
            place = b.mul(loop.index, step)
            residual = margins.load(place) + (negated.spread(loop.index) if shared else negated.load(place))
            margins.store(place, residual)
            total.set((residual * 0.5).times(residual, total.get()))
        totals.store(0, total.get())

    return _elementwise(write)


def _elementwise(write):
    @_intrinsic
    def loop(typing, margins, at_margins, step, negated, at_negated, totals, at_totals, factors, at_factors, count):
        return _statement(
            write, margins, at_margins, step, negated, at_negated, totals, at_totals, factors, at_factors, count
        )

    return loop


_squared_columns, _squared_records = _squared(shared=True), _squared(shared=False)
_slope_columns, _slope_records = _logistic(SLOPE, shared=True), _logistic(SLOPE, shared=False)
_value_columns, _value_records = _logistic(VALUE, shared=True), _logistic(VALUE, shared=False)
_both_columns, _both_records = _logistic(BOTH, shared=True), _logistic(BOTH, shared=False)


@_intrinsic
def _four_margins(typing, features, zero, offsets, at_offsets, x, at_x, d, margins, at_margins):
    """Write the margins of four records: four sums along their features, transposed and added up at the end.

    The last vector of features overlaps the one before when d is no multiple of ``LANES``; x holds zeros there.
    """

    def write(b, features, offsets, x, d, margins) -> None:
        places = [offsets.integer(p) for p in range(LANES)]
        sums = [Register(b, 0.0) for _ in range(LANES)]
        with cgutils.for_range_slice(b, _count(0), b.sub(d, _count(LANES - 1)), _count(LANES)) as (j, _):
            weights = x.load(j)
            for place, total in zip(places, sums, strict=True):
                total.set(features.load(b.add(place, j)).times(weights, total.get()))
        with _leftover(b, d):
            weights, last = x.load(_rounded_down(b, d)), b.sub(d, _count(LANES))
            for place, total in zip(places, sums, strict=True):
                total.set(features.load(b.add(place, last)).times(weights, total.get()))
        s = [total.get() for total in sums]
        first, second = [s[i].mix(s[i + 1], [0, 4, 2, 6]) + s[i].mix(s[i + 1], [1, 5, 3, 7]) for i in (0, 2)]
        margins.store(0, first.mix(second, [0, 1, 4, 5]) + first.mix(second, [2, 3, 6, 7]))

    return _statement(write, features, zero, offsets, at_offsets, x, at_x, d, margins, at_margins)


@_intrinsic
def _add_four_records(typing, features, zero, offsets, at_offsets, slopes, at_slopes, d, gradient, at_gradient):
    """Add four records times their slopes to the gradient; its last vector is that of ``_four_margins``."""

    def write(b, features, offsets, slopes, d, gradient) -> None:
        places, factors = [offsets.integer(p) for p in range(LANES)], [slopes.spread(p) for p in range(LANES)]

        def add(source: Value, target: Value) -> None:
            u = [features.load(b.add(place, source)) for place in places]
            first = u[1].times(factors[1], u[0] * factors[0])
            second = u[3].times(factors[3], u[2] * factors[2])
            gradient.store(target, gradient.load(target) + (first + second))

        with cgutils.for_range_slice(b, _count(0), b.sub(d, _count(LANES - 1)), _count(LANES)) as (j, _):
            add(j, j)
        with _leftover(b, d):
            add(b.sub(d, _count(LANES)), _rounded_down(b, d))

    return _statement(write, features, zero, offsets, at_offsets, slopes, at_slopes, d, gradient, at_gradient)


@_intrinsic
def _prefetch(typing, array, offset, count):
    """Ask for these doubles ahead of their use: the processor cannot guess which rows were drawn."""

    def write(b, memory, count) -> None:
        byte, flag = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, flag, flag, flag])
        function = cgutils.get_or_insert_function(b.module, kind, "llvm.prefetch.p0i8")
        with cgutils.for_range_slice(b, _count(0), count, _count(_LINE)) as (i, _):
            b.call(function, [b.bitcast(memory.at(i), byte), *(ir.Constant(flag, value) for value in (0, 3, 1))])

    return _statement(write, array, offset, count)


def _leftover(b: ir.IRBuilder, d: Value):
    """Return the context of what happens only when d is no multiple of ``LANES``."""
    return b.if_then(b.icmp_signed("!=", d, _rounded_down(b, d)))


def _rounded_down(b: ir.IRBuilder, d: Value) -> Value:
    return b.and_(d, _count(-LANES))


def _jit(function: Callable) -> Any:
    """Compile on first use, and keep the result on disk where numba finds a place for it."""
    options = {"nogil": True, "error_model": "numpy", "boundscheck": False}
    try:
        return numba.njit(function, cache=True, **options)
    except RuntimeError:  # no writable place
        return numba.njit(function, **options)


@_jit
def _product(A, at_A, row_step, step, rows, B, at_B, B_step, columns, C, at_C, C_step, count, add):
    """Set C (or add to it) the product of A (rows x count) and B (count x columns, a multiple of ``LANES``)."""
    for c in range(0, columns, 3 * LANES):
        b, left, to = at_B + c, columns - c, at_C + c
        p = 0
        while p + 4 <= rows:
            a, into = at_A + p * row_step, to + p * C_step
            if left >= 3 * LANES:
                _panel_4x3(A, a, row_step, step, B, b, B_step, C, into, C_step, count, add)
            elif left >= 2 * LANES:
                _panel_4x2(A, a, row_step, step, B, b, B_step, C, into, C_step, count, add)
            else:
                _panel_4x1(A, a, row_step, step, B, b, B_step, C, into, C_step, count, add)
            p += 4
        while p < rows:
            a, into = at_A + p * row_step, to + p * C_step
            if left >= 3 * LANES:
                _panel_1x3(A, a, row_step, step, B, b, B_step, C, into, C_step, count, add)
            elif left >= 2 * LANES:
                _panel_1x2(A, a, row_step, step, B, b, B_step, C, into, C_step, count, add)
            else:
                _panel_1x1(A, a, row_step, step, B, b, B_step, C, into, C_step, count, add)
            p += 1


@_jit
def _take_logarithms(totals, factors):
    """Move the factors of the loss to its sum."""
    for c in range(len(factors)):
        totals[c] += math.log(factors[c])
        factors[c] = 1.0


@_jit
def columns(features, negated, x, kind, what, start, stop, tile, gradient, totals):
    """Add the sums over records start to stop to the gradient (d x width) and to the losses' totals (width).

    ``x`` is d x width with zeros in the columns that fill its last vector up; ``features`` are flat.
    """
    d, width = x.shape
    x, gradient = x.ravel(), gradient.ravel()
    margins, factors = np.empty(tile * GROUP), np.ones(width)
    pending = 0
    for first in range(start, stop, tile):
        count = min(tile, stop - first)
        if pending + count > MAX_FACTORS:
            _take_logarithms(totals, factors)
            pending = 0
        pending += count
        for c in range(0, width, GROUP):
            w = min(GROUP, width - c)
            _product(features, first * d, d, 1, count, x, c, width, w, margins, 0, w, d, 0)
            for q in range(0, w, LANES):
                if kind == SQUARED:
                    _squared_columns(margins, q, w, negated, first, totals, c + q, factors, c + q, count)
                elif what == SLOPE:
                    _slope_columns(margins, q, w, negated, first, totals, c + q, factors, c + q, count)
                elif what == VALUE:
                    _value_columns(margins, q, w, negated, first, totals, c + q, factors, c + q, count)
                else:
                    _both_columns(margins, q, w, negated, first, totals, c + q, factors, c + q, count)
            if what != VALUE:
                _product(features, first * d, 1, d, d, margins, 0, w, w, gradient, c, width, count, 1)
    _take_logarithms(totals, factors)


@_jit
def records(features, negated, rows, x, d, kind, what, start, stop, tile, gradient, totals):
    """Add the sums over records start to stop, or those of ``rows``, at one point; d is at least ``LANES``.

    ``x`` and ``gradient`` end with a vector for the last features (see ``_four_margins``); ``totals`` has ``LANES``
    parts of the loss.
    """
    offsets, targets, margins = np.empty(tile, np.int64), np.empty(tile), np.empty(tile)
    factors = np.ones(LANES)
    n = len(negated)
    for first in range(start, stop, tile):
        count = min(tile, stop - first)
        if len(rows) == 0:
            for i in range(count):
                offsets[i], targets[i] = (first + i) * d, negated[first + i]
        else:
            for i in range(count):
                row = rows[first + i]
                if row < 0 or row >= n:
                    raise IndexError("a row is not one of the records")
                offsets[i], targets[i] = row * d, negated[row]
                _prefetch(features, rows[min(first + i + tile, stop - 1)] * d, d)
        full = -(-count // LANES) * LANES
        for i in range(count, full):
            offsets[i] = offsets[0]
        for i in range(0, full, LANES):
            _four_margins(features, 0, offsets, i, x, 0, d, margins, i)
        for i in range(count, full):
            margins[i], targets[i] = _FILLER, -_FILLER
        vectors = full // LANES
        if kind == SQUARED:
            _squared_records(margins, 0, LANES, targets, 0, totals, 0, factors, 0, vectors)
        elif what == SLOPE:
            _slope_records(margins, 0, LANES, targets, 0, totals, 0, factors, 0, vectors)
        elif what == VALUE:
            _value_records(margins, 0, LANES, targets, 0, totals, 0, factors, 0, vectors)
        else:
            _both_records(margins, 0, LANES, targets, 0, totals, 0, factors, 0, vectors)
        _take_logarithms(totals, factors)
        if what != VALUE:
            for i in range(count, full):
                margins[i] = 0.0
            for i in range(0, full, LANES):
                _add_four_records(features, 0, offsets, i, margins, i, d, gradient, 0)


@_intrinsic
def _exp_loop(typing, source, at_source, target, at_target, vectors):
    def write(b, source, target, vectors) -> None:
        with cgutils.for_range(b, vectors) as loop:
            place = b.mul(loop.index, _count(LANES))
            target.store(place, _exp(source.load(place)))

    return _statement(write, source, at_source, target, at_target, vectors)


@_jit
def exponentials(values, results):
    """Write exp of the values (a multiple of ``LANES`` of them), as the kernels compute it: for tests."""
    _exp_loop(values, 0, results, 0, len(values) // LANES)
