"""Kernels for the card, compiled by Triton: each reads the records once and writes one partial sum per program.

A program takes every P-th run of records. Its tile of D features by B records stays in registers: margins first, then
slopes, then slope x record, for up to four points. Programs with other points read the same tile at about the same
time, from the card's cache. Nothing is added atomically, so that results repeat.

``_logistic_levels`` and ``_residual_levels`` repeat the lines of ``problem.levels``. The exact kernel must be compiled
with ``enable_fp_fusion=False``: a fused multiply-add rounds once where those lines round twice.
"""

# Triton's own types do not describe the language that its kernels are written in.
# pyright: reportArgumentType=false, reportGeneralTypeIssues=false

import triton  # pyright: ignore[reportMissingImports]
import triton.language as tl  # pyright: ignore[reportMissingImports]

from epsteps.problem import levels

LOGISTIC = tl.constexpr(0)
_STEPS = tl.constexpr(float(levels.STEPS))
_LOG2_E = tl.constexpr(float(levels.LOG2_E))
_LN2_HIGH, _LN2_LOW = tl.constexpr(float(levels.LN2_HIGH)), tl.constexpr(float(levels.LN2_LOW))
_LARGEST_MARGIN = tl.constexpr(float(levels.LARGEST_MARGIN))
_C0, _C1, _C2, _C3, _C4, _C5, _C6 = (tl.constexpr(float(c)) for c in levels.EXP_COEFFICIENTS)


@triton.jit
def _tile(X, y, rows, features, stored, SF, SR, zero, d: tl.constexpr, SCALAR: tl.constexpr):
    """Load D features of B records, and their targets; zero beyond.

    Where loads are 16 bytes wide, a thread holds four records; with few features and SCALAR, one record and all its
    features, so that margins need no other thread. ``zero`` is 0, which the compiler does not know: it hides that the
    loads could be wider.
    """
    there = rows < stored
    where = features.to(tl.int64)[:, None] * SF + rows.to(tl.int64)[None, :] * SR
    if SCALAR:
        where += zero
    x = tl.load(X + where, mask=(features < d)[:, None] & there[None, :], other=0.0)
    return x, tl.load(y + rows, mask=there, other=0.0)


@triton.jit
def _over_rows(part, inside):
    """Sum a tile over its records. What lies beyond the features is dropped first: nothing is computed for it."""
    return tl.sum(tl.where(inside[:, None], part, 0), axis=1)


@triton.jit
def _add_gradient(part, x, target, point, KIND: tl.constexpr):
    margin = tl.sum(x * point[:, None], axis=0)
    if KIND == LOGISTIC:  # noqa: SIM108
        slope = -target / (1.0 + tl.exp(target * margin))
    else:
        slope = margin - target
    return part + x * slope[None, :]


@triton.jit(do_not_specialize=["zero", "tiles"])
def gradient(
    X, y, theta, out, stored, SF, SR, zero, groups, programs, tiles,
    d: tl.constexpr, D: tl.constexpr, B: tl.constexpr, C: tl.constexpr, KIND: tl.constexpr,
    SCALAR: tl.constexpr,
):  # fmt: skip
    """Sum slope x record for C points, in float32 over the tiles of a run and in float64 over those."""
    pid, column, width = tl.program_id(0) // groups, tl.program_id(0) % groups * C, groups * C
    features = tl.arange(0, D)
    inside = features < d
    at = theta + features * width + column
    point0 = tl.load(at, mask=inside, other=0.0)
    point1, point2, point3 = point0, point0, point0
    if C > 1:
        point1 = tl.load(at + 1, mask=inside, other=0.0)
    if C > 2:
        point2, point3 = tl.load(at + 2, mask=inside, other=0.0), tl.load(at + 3, mask=inside, other=0.0)
    total0 = tl.zeros((D,), dtype=tl.float64)
    total1, total2, total3 = total0, total0, total0
    for first in range(pid * (B * tiles), stored, programs * (B * tiles)):
        part0 = tl.zeros((D, B), dtype=tl.float32)
        part1, part2, part3 = part0, part0, part0
        for tile in range(tiles):
            x, target = _tile(X, y, first + tile * B + tl.arange(0, B), features, stored, SF, SR, zero, d, SCALAR)
            part0 = _add_gradient(part0, x, target, point0, KIND)
            if C > 1:
                part1 = _add_gradient(part1, x, target, point1, KIND)
            if C > 2:
                part2 = _add_gradient(part2, x, target, point2, KIND)
                part3 = _add_gradient(part3, x, target, point3, KIND)
        total0 += _over_rows(part0, inside).to(tl.float64)
        if C > 1:
            total1 += _over_rows(part1, inside).to(tl.float64)
        if C > 2:
            total2 += _over_rows(part2, inside).to(tl.float64)
            total3 += _over_rows(part3, inside).to(tl.float64)
    to = out + (pid * D + features) * width + column
    tl.store(to, total0)
    if C > 1:
        tl.store(to + 1, total1)
    if C > 2:
        tl.store(to + 2, total2)
        tl.store(to + 3, total3)


@triton.jit
def _add_loss(part, x, target, counted, point, KIND: tl.constexpr):
    margin = tl.sum(x * point[:, None], axis=0)
    if KIND == LOGISTIC:
        size = tl.abs(margin)
        e = tl.exp(-size)
        # ln(1 + e) loses a small e: there, two terms of its series are more accurate.
        value = tl.where(e < 1e-3, e - 0.5 * e * e, tl.log(1.0 + e)) + 0.5 * (size - target * margin)
    else:
        value = 0.5 * (margin - target) * (margin - target)
    return part + tl.where(counted, value, 0.0)


@triton.jit(do_not_specialize=["zero", "tiles", "count"])
def loss(
    X, y, theta, out, stored, count, SF, SR, zero, groups, programs, tiles,
    d: tl.constexpr, D: tl.constexpr, B: tl.constexpr, C: tl.constexpr, KIND: tl.constexpr,
    SCALAR: tl.constexpr,
):  # fmt: skip
    """Sum the losses of ``count`` records at C points, in float32 over the tiles of a run and in float64 over those."""
    pid, column, width = tl.program_id(0) // groups, tl.program_id(0) % groups * C, groups * C
    features = tl.arange(0, D)
    inside = features < d
    at = theta + features * width + column
    point0 = tl.load(at, mask=inside, other=0.0)
    point1, point2, point3 = point0, point0, point0
    if C > 1:
        point1 = tl.load(at + 1, mask=inside, other=0.0)
    if C > 2:
        point2, point3 = tl.load(at + 2, mask=inside, other=0.0), tl.load(at + 3, mask=inside, other=0.0)
    total0 = tl.zeros((B,), dtype=tl.float64)
    total1, total2, total3 = total0, total0, total0
    for first in range(pid * (B * tiles), stored, programs * (B * tiles)):
        part0 = tl.zeros((B,), dtype=tl.float32)
        part1, part2, part3 = part0, part0, part0
        for tile in range(tiles):
            rows = first + tile * B + tl.arange(0, B)
            x, target = _tile(X, y, rows, features, stored, SF, SR, zero, d, SCALAR)
            part0 = _add_loss(part0, x, target, rows < count, point0, KIND)
            if C > 1:
                part1 = _add_loss(part1, x, target, rows < count, point1, KIND)
            if C > 2:
                part2 = _add_loss(part2, x, target, rows < count, point2, KIND)
                part3 = _add_loss(part3, x, target, rows < count, point3, KIND)
        total0 += part0.to(tl.float64)
        total1 += part1.to(tl.float64)
        total2 += part2.to(tl.float64)
        total3 += part3.to(tl.float64)
    to = out + pid * width + column
    tl.store(to, tl.sum(total0, axis=0))
    if C > 1:
        tl.store(to + 1, tl.sum(total1, axis=0))
    if C > 2:
        tl.store(to + 2, tl.sum(total2, axis=0))
        tl.store(to + 3, tl.sum(total3, axis=0))


@triton.jit
def _logistic_levels(margin, label, scale):
    m = margin.to(tl.float32)
    w = tl.abs(m)
    w = tl.where(w < _LARGEST_MARGIN, w, _LARGEST_MARGIN)
    k = tl.floor(w * _LOG2_E + 0.5)
    r = (w - k * _LN2_HIGH) - k * _LN2_LOW
    square = r * r
    low = (_C0 + r * _C1) + (_C2 + r * _C3) * square
    high = (_C4 + r * _C5) + square * _C6
    power = ((127 - k.to(tl.int32)) << 23).to(tl.float32, bitcast=True)
    small = (low + high * (square * square)) * power
    small = tl.div_rn(small, 1.0 + small)
    share = tl.where(label * m > 0, small, 1.0 - small)
    steps = tl.floor(share * scale.to(tl.float32) + 0.5)
    steps = tl.where(steps > 0, steps, 0.0)
    return -label * tl.where(steps < _STEPS, steps, _STEPS)


@triton.jit
def _residual_levels(margin, target, scale):
    steps = tl.floor((margin - target.to(tl.float64)) * scale + 0.5)
    held = tl.where(steps < _STEPS, steps, _STEPS)
    held = tl.where(held > -_STEPS, held, -_STEPS)
    return tl.where(steps == steps, held, 0.0)  # NaN is not equal to itself


@triton.jit
def _add_levels(total, x, target, point, step, scale, KIND: tl.constexpr):
    margin = tl.sum(x * point[:, None], axis=0) * step
    level = _logistic_levels(margin, target, scale) if KIND == LOGISTIC else _residual_levels(margin, target, scale)
    # Fused or not, this product and sum are exact.
    return tl.fma(x, level.to(tl.float64)[None, :], total)


@triton.jit
def _to_double(x, MAGIC: tl.constexpr):
    """Convert integers below 2^22 from float32: by two additions, as the card converts four times slower than it adds.

    x + 1.5 2^23 has the integer in its last bits; behind the leading bits of 2^52, they are a double's last bits.
    """
    if MAGIC:
        bits = (x + 12582912.0).to(tl.uint32, bitcast=True).to(tl.uint64) | 0x4330000000000000
        return bits.to(tl.float64, bitcast=True) - 4503600889856000.0
    else:
        return x.to(tl.float64)


@triton.jit(do_not_specialize=["zero"])
def exact(
    X, y, theta, step, scale, out, start, stored, SF, SR, zero, groups, programs,
    d: tl.constexpr, D: tl.constexpr, B: tl.constexpr, C: tl.constexpr, KIND: tl.constexpr, SCALAR: tl.constexpr,
    MAGIC: tl.constexpr,
):  # fmt: skip
    """Sum level x record for C points in integers that doubles hold: an accumulator takes one record per tile."""
    pid, column, width = tl.program_id(0) // groups, tl.program_id(0) % groups * C, groups * C
    features = tl.arange(0, D)
    inside = features < d
    at = theta + features * width + column
    point0 = tl.load(at, mask=inside, other=0.0)
    point1, point2, point3 = point0, point0, point0
    step0, scale0 = tl.load(step + column), tl.load(scale + column)
    step1, scale1, step2, scale2, step3, scale3 = step0, scale0, step0, scale0, step0, scale0
    if C > 1:
        point1, step1, scale1 = (
            tl.load(at + 1, mask=inside, other=0.0),
            tl.load(step + column + 1),
            tl.load(scale + column + 1),
        )
    if C > 2:
        point2, step2, scale2 = (
            tl.load(at + 2, mask=inside, other=0.0),
            tl.load(step + column + 2),
            tl.load(scale + column + 2),
        )
        point3, step3, scale3 = (
            tl.load(at + 3, mask=inside, other=0.0),
            tl.load(step + column + 3),
            tl.load(scale + column + 3),
        )
    total0 = tl.zeros((D, B), dtype=tl.float64)
    total1, total2, total3 = total0, total0, total0
    for first in range(start + pid * B, stored, programs * B):
        x, target = _tile(X, y, first + tl.arange(0, B), features, stored, SF, SR, zero, d, SCALAR)
        x = _to_double(x, MAGIC)
        total0 = _add_levels(total0, x, target, point0, step0, scale0, KIND)
        if C > 1:
            total1 = _add_levels(total1, x, target, point1, step1, scale1, KIND)
        if C > 2:
            total2 = _add_levels(total2, x, target, point2, step2, scale2, KIND)
            total3 = _add_levels(total3, x, target, point3, step3, scale3, KIND)
    to = out + (pid * D + features) * width + column
    tl.store(to, _over_rows(total0.to(tl.int64), inside))
    if C > 1:
        tl.store(to + 1, _over_rows(total1.to(tl.int64), inside))
    if C > 2:
        tl.store(to + 2, _over_rows(total2.to(tl.int64), inside))
        tl.store(to + 3, _over_rows(total3.to(tl.int64), inside))
