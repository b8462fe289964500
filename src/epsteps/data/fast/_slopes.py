"""Slopes and losses from margins, in vectors: floats for means, integers for exact sums."""

import math

import numpy as np
from llvmlite import ir
from numba.core import cgutils

from epsteps.data.fast._lanes import (
    F32,
    F64,
    SHORT,
    Kind,
    Lanes,
    Register,
    building_block,
    count,
    inner,
    spread,
)
from epsteps.data.fast._lanes import statement as _statement
from epsteps.problem import levels

LOGISTIC, SQUARED = 0, 1
SLOPE, VALUE, BOTH = 1, 2, 3
# Fills vectors up, as margin and as target: no loss and no slope, for either loss.
FILLER = 1000.0


def _polynomial(degree: int) -> list[float]:
    """Return coefficients of exp(r) for |r| <= ln(2)/2."""
    fit = np.polynomial.Chebyshev.interpolate(np.exp, degree, [-math.log(2) / 2, math.log(2) / 2])
    return [float(c) for c in fit.convert(kind=np.polynomial.Polynomial).coef]


# Relative errors of 3e-16 and 2e-9.
_COEFFICIENTS = {"f64": _polynomial(10), "f32": _polynomial(6)}
# Adding 1.5 * 2**52 (or 2**23) rounds to an integer and leaves it in the lowest bits.
_ROUND = {"f64": 1.5 * 2**52, "f32": 1.5 * 2**23}
# ln(2) in two parts, the first with few enough digits for exact multiples (Cody and Waite).
_LN2 = {"f64": (0.693147180369123816490, 1.90821492927058770002e-10), "f32": (0.693359375, -2.12194440e-4)}
# Below, exp is no normal number any more; it is held there.
_LOWEST = {"f64": -708.0, "f32": -87.0}
_MANTISSA = {"f64": 52, "f32": 23}


def exp(x: Lanes) -> Lanes:
    """Return exp(x) for x <= 0 (or not far above), held where it is the smallest normal number.

    It is p(r) 2^k for x = r + k ln 2, and k is added to the exponent's bits.
    """
    kind, b = x.kind, x.builder
    x = x.at_least(_LOWEST[kind.name])
    rounded = x.times(1 / math.log(2), _ROUND[kind.name])
    k = rounded - _ROUND[kind.name]
    high, low = _LN2[kind.name]
    r = k.times(-low, k.times(-high, x))
    # Estrin's order: pairs, pairs of pairs, ... a shorter chain than Horner's for about as many instructions.
    c, square = _COEFFICIENTS[kind.name], r * r
    terms = [r.times(c[i + 1], c[i]) for i in range(0, len(c) - 1, 2)]
    fours = [terms[i + 1].times(square, terms[i]) for i in range(0, len(terms) - 1, 2)]
    fours.append(square.times(c[-1], terms[-1]) if len(terms) % 2 else r.new(kind.all(c[-1])))
    fourth, p = square * square, fours[-1]
    for four in reversed(fours[:-1]):
        p = p.times(fourth, four)
    shift = ir.Constant(kind.bits, [_MANTISSA[kind.name]] * kind.lanes)
    return p.from_bits(b.add(p.bits(), b.shl(rounded.bits(), shift)))


def _logistic(what: int, *, shared: bool):
    """Return an intrinsic: replace margins by slopes and gather the loss, as ``what`` asks.

    With v = -z m and t = exp(-|m|), the loss is (v + |m|)/2 + ln(1 + t), and its slope -z/(1 + t) for v > 0, else
    -z t/(1 + t). As z is 1 or -1, only its sign is used, by flipping signs.
    Lanes are columns with a ``shared`` target, or records with one each, two vectors of them at a time.
    Targets decide whether it is computed in float64 or float32.
    """

    def write(b, margins, step, negated, totals, factors, vectors) -> None:
        kind = negated.kind if shared else negated.kind.twice
        total, factor = Register(b, kind, 0.0), Register(b, kind, factors.load(0, kind))
        with cgutils.for_range(b, vectors) as loop:
            place = b.mul(loop.index, step)
            m = margins.load(place, kind)
            z = negated.spread(loop.index) if shared else negated.load(place, kind)
            v, minus = m.with_sign_of(z), m.negative_size()
            t = exp(minus)
            whole = t + 1.0
            if what & SLOPE:
                margins.store(place, (v.where_negative(t, 1.0) / whole).with_sign_of(z).to(margins.kind))
            if what & VALUE:
                total.set(total.get() + (v - minus))
                factor.set(factor.get() * whole)
        totals.store(0, total.get().times(0.5, totals.load(0, kind)))
        factors.store(0, factor.get())

    return _elementwise(write)


def _squared(*, shared: bool):
    """Return an intrinsic: replace margins by residuals, and add half their squares to the totals."""

    def write(b, margins, step, negated, totals, factors, vectors) -> None:
        kind = negated.kind if shared else negated.kind.twice
        total = Register(b, kind, totals.load(0, kind))
        with cgutils.for_range(b, vectors) as loop:
            place = b.mul(loop.index, step)
            target = negated.spread(loop.index) if shared else negated.load(place, kind)
            residual = margins.load(place, kind) + target
            margins.store(place, residual.to(margins.kind))
            total.set((residual * 0.5).times(residual, total.get()))
        totals.store(0, total.get())

    return _elementwise(write)


def _elementwise(write):
    @building_block
    def loop(typing, margins, at_margins, step, negated, at_negated, totals, at_totals, factors, at_factors, vectors):
        return _statement(
            write, margins, at_margins, step, negated, at_negated, totals, at_totals, factors, at_factors, vectors
        )

    return loop


_squared_columns, _squared_records = _squared(shared=True), _squared(shared=False)
_slope_columns, _slope_records = _logistic(SLOPE, shared=True), _logistic(SLOPE, shared=False)
_value_columns, _value_records = _logistic(VALUE, shared=True), _logistic(VALUE, shared=False)
_both_columns, _both_records = _logistic(BOTH, shared=True), _logistic(BOTH, shared=False)


@inner
def slopes_of_records(loss, what, margins, negated, at_negated, totals, factors, lanes, vectors):
    """Replace the margins of records, one in each lane, by slopes; gather losses in ``totals`` and ``factors``."""
    if loss == SQUARED:
        _squared_records(margins, 0, lanes, negated, at_negated, totals, 0, factors, 0, vectors)
    elif what == SLOPE:
        _slope_records(margins, 0, lanes, negated, at_negated, totals, 0, factors, 0, vectors)
    elif what == VALUE:
        _value_records(margins, 0, lanes, negated, at_negated, totals, 0, factors, 0, vectors)
    else:
        _both_records(margins, 0, lanes, negated, at_negated, totals, 0, factors, 0, vectors)


@inner
def slopes_of_columns(loss, what, margins, at_margins, step, negated, at_negated, totals, factors, column, count):
    """Do the same for a vector of columns, which share each record's target."""
    if loss == SQUARED:
        _squared_columns(margins, at_margins, step, negated, at_negated, totals, column, factors, column, count)
    elif what == SLOPE:
        _slope_columns(margins, at_margins, step, negated, at_negated, totals, column, factors, column, count)
    elif what == VALUE:
        _value_columns(margins, at_margins, step, negated, at_negated, totals, column, factors, column, count)
    else:
        _both_columns(margins, at_margins, step, negated, at_negated, totals, column, factors, column, count)


@inner
def empty_totals(totals, factors, into):
    """Move what was gathered of the losses, and the logarithms of their factors, to float64 sums."""
    for i in range(len(totals)):
        into[i] += totals[i] + math.log(factors[i])
        totals[i] = 0
        factors[i] = 1


def _levels_logistic(margin: Lanes, label: Lanes, scale: Lanes) -> Lanes:
    """Repeat ``levels.logistic`` instruction by instruction, in float32; nothing is fused."""
    w = margin.size().at_most(float(levels.LARGEST_MARGIN))
    k = (w * float(levels.LOG2_E) + 0.5).floor()
    r = (w - k * float(levels.LN2_HIGH)) - k * float(levels.LN2_LOW)
    square = r * r
    c = [float(number) for number in levels.EXP_COEFFICIENTS]
    low = (r * c[1] + c[0]) + (r * c[3] + c[2]) * square
    high = (r * c[5] + c[4]) + square * c[6]
    b, bits = w.builder, Kind(SHORT, w.kind.lanes, "i32")
    power = b.shl(b.sub(bits.all(127), b.fptosi(k.value, bits.vector)), bits.all(23))
    small = (low + high * (square * square)) * w.from_bits(power)
    small = small / (small + 1.0)
    share = (label * margin).select(">", 0.0, small, 1.0 - small)
    steps = (share * scale + 0.5).floor()
    return label.new(b.fneg(label.value)) * steps.at_least(0.0).at_most(float(levels.STEPS))


def _levels_squared(margin: Lanes, target: Lanes, scale: Lanes) -> Lanes:
    """Repeat ``levels.residual`` in float64."""
    steps = ((margin - target) * scale + 0.5).floor()
    steps = steps.select("==", steps, steps, 0.0)  # NaN becomes 0
    return steps.at_least(-float(levels.STEPS)).at_most(float(levels.STEPS))


@building_block
def _logistic_levels(typing, margins, at_margins, labels, at_labels, step, scale, vectors):
    """Replace exact margins of records, in units of ``step``, by slopes as integers: two vectors at a time."""

    def write(b, margins, labels, step, scale, vectors) -> None:
        kind = F32.twice
        step, scale = spread(b, F64.twice.twice, step), spread(b, F64.twice.twice, scale).to(kind)
        with cgutils.for_range(b, vectors) as loop:
            place = b.mul(loop.index, count(kind.lanes))
            margin = (margins.load(place, step.kind) * step).to(kind)
            margins.store(place, _levels_logistic(margin, labels.load(place, kind), scale).to(F64))

    return _statement(write, margins, at_margins, labels, at_labels, step, scale, vectors)


@building_block
def _squared_levels(typing, margins, at_margins, targets, at_targets, step, scale, vectors):
    """Do the same for the squared loss."""

    def write(b, margins, targets, step, scale, vectors) -> None:
        kind = F64.twice.twice
        step, scale = spread(b, kind, step), spread(b, kind, scale)
        with cgutils.for_range(b, vectors) as loop:
            place = b.mul(loop.index, count(kind.lanes))
            margin = margins.load(place, kind) * step
            margins.store(place, _levels_squared(margin, targets.load(place, kind), scale))

    return _statement(write, margins, at_margins, targets, at_targets, step, scale, vectors)


# Records whose levels are computed at a time.
LEVELS_MULTIPLE = 2 * F32.lanes


@inner
def levels_of_records(loss, margins, targets, at_targets, step, scale, number):
    """Replace exact margins by slopes as integers, for a multiple of ``LEVELS_MULTIPLE`` records."""
    if loss == LOGISTIC:
        _logistic_levels(margins, 0, targets, at_targets, step, scale, number // LEVELS_MULTIPLE)
    else:
        _squared_levels(margins, 0, targets, at_targets, step, scale, number // LEVELS_MULTIPLE)


def _levels_columns(write_levels, kind: Kind):
    """Return an intrinsic: replace exact margins by slopes as integers, lanes being columns with a shared target."""

    def write(b, margins, step, targets, steps, scales, records) -> None:
        unit, scale = steps.load(0), scales.load(0).to(kind)
        with cgutils.for_range(b, records) as loop:
            place = b.mul(loop.index, step)
            target = targets.spread(loop.index)
            target = target.mix(target, [0] * F64.lanes).to(kind)
            margins.store(place, write_levels((margins.load(place) * unit).to(kind), target, scale).to(F64))

    @building_block
    def block(typing, margins, at_margins, step, targets, at_targets, steps, at_steps, scales, at_scales, records):
        return _statement(
            write, margins, at_margins, step, targets, at_targets, steps, at_steps, scales, at_scales, records
        )

    return block


_logistic_columns, _residual_columns = _levels_columns(_levels_logistic, F32), _levels_columns(_levels_squared, F64)


@inner
def levels_of_columns(loss, margins, at_margins, step, targets, at_targets, steps, scales, column, records):
    """Replace the exact margins of a vector of columns by slopes as integers."""
    if loss == LOGISTIC:
        _logistic_columns(margins, at_margins, step, targets, at_targets, steps, column, scales, column, records)
    else:
        _residual_columns(margins, at_margins, step, targets, at_targets, steps, column, scales, column, records)


@building_block
def _exp_loop(typing, source, at_source, target, at_target, vectors):
    def write(b, source, target, vectors) -> None:
        with cgutils.for_range(b, vectors) as loop:
            place = b.mul(loop.index, count(source.kind.lanes))
            target.store(place, exp(source.load(place)))

    return _statement(write, source, at_source, target, at_target, vectors)


@inner
def exponentials(values, results):
    """Write exp of the values (whole vectors of them), as the kernels compute it: for tests."""
    _exp_loop(values, 0, results, 0, len(values) * values.itemsize // 32)
