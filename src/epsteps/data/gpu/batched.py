"""Float kernels for many points at once, compiled by Triton: products of small matrices on the card's matrix units.

Those units take 11 bits of a float32. Every number is split into these and the rest, and three products are added: all
but that of two rests. The units cut off where others round, so that they add few numbers at a time: a tile's sum begins
at zero and is added to the others by ordinary additions. Relative errors are below 1e-6.

Where a record's features fit a tile, it is read once (``gradients``); elsewhere twice (``slopes``, then ``products``).
Programs write partial sums in float32, which are added in float64 afterwards, in an order that repeats.
"""

# Triton's own types do not describe the language that its kernels are written in.
# pyright: reportArgumentType=false, reportGeneralTypeIssues=false

import triton  # pyright: ignore[reportMissingImports]
import triton.language as tl  # pyright: ignore[reportMissingImports]
from triton.language.extra import libdevice  # pyright: ignore[reportMissingImports]

LOGISTIC = tl.constexpr(0)


@triton.jit
def _split(x):
    """Return a number rounded to 11 bits, and the rest: together they are the number."""
    high = ((x.to(tl.uint32, bitcast=True) + 0x1000) & 0xFFFFE000).to(tl.float32, bitcast=True)
    return high, x - high


@triton.jit
def _dot(a, a_rest, b, b_rest):
    part = tl.dot(a_rest, b, input_precision="tf32")
    part = tl.dot(a, b_rest, part, input_precision="tf32")
    return tl.dot(a, b, part, input_precision="tf32")


@triton.jit
def _tile(X, rows, features, stop, quads, d: tl.constexpr, MAJOR: tl.constexpr):
    """Load features by records, zero beyond; the larger stride is 4 ``quads``, so that loads may be 16 bytes wide."""
    stride = quads.to(tl.int64) * 4
    if MAJOR:  # noqa: SIM108
        where = features[:, None] * stride + rows[None, :]
    else:
        where = features[:, None] + rows[None, :] * stride
    return tl.load(X + where, mask=(features < d)[:, None] & (rows < stop)[None, :], other=0.0)


@triton.jit
def _slope(margin, target, KIND: tl.constexpr):
    if KIND == LOGISTIC:  # noqa: SIM108
        slope = libdevice.fast_dividef(-target, 1.0 + tl.exp(target * margin))
    else:
        slope = margin - target
    return slope


@triton.jit(do_not_specialize=["stored", "quads", "groups", "tiles"])
def gradients(
    X, y, theta, out, stored, quads, groups, tiles,
    d: tl.constexpr, D: tl.constexpr, B: tl.constexpr, R: tl.constexpr, KIND: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Sum slope x record over a run of tiles, for R points."""
    pid, width = tl.program_id(0) // groups, groups * R
    features, columns = tl.arange(0, D), tl.program_id(0) % groups * R + tl.arange(0, R)
    point, point_rest = _split(tl.load(theta + features[None, :] * width + columns[:, None]))
    total = tl.zeros((R, D), dtype=tl.float32)
    for first in tl.range(pid * B * tiles, tl.minimum((pid + 1) * B * tiles, stored), B, num_stages=STAGES):
        rows = first + tl.arange(0, B)
        x, x_rest = _split(_tile(X, rows, features, stored, quads, d, True))
        target = tl.load(y + rows, mask=rows < stored, other=0.0)
        slope, slope_rest = _split(_slope(_dot(point, point_rest, x, x_rest), target[None, :], KIND))
        total += _dot(slope, slope_rest, tl.trans(x), tl.trans(x_rest))
    tl.store(out + (pid * D + features)[None, :] * width + columns[:, None], total)


@triton.jit
def _margins(
    X, theta, rows, columns, stop, quads, width,
    d: tl.constexpr, F: tl.constexpr, B: tl.constexpr, R: tl.constexpr, MAJOR: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Return records by points, F features at a time."""
    margin = tl.zeros((B, R), dtype=tl.float32)
    for feature in tl.range(0, d, F, num_stages=STAGES):
        features = feature + tl.arange(0, F)
        x, x_rest = _split(_tile(X, rows, features, stop, quads, d, MAJOR))
        point, point_rest = _split(tl.load(theta + features[:, None] * width + columns[None, :]))
        margin += _dot(tl.trans(x), tl.trans(x_rest), point, point_rest)
    return margin


@triton.jit(do_not_specialize=["start", "stop", "quads", "groups"])
def slopes(
    X, y, theta, out, start, stop, quads, groups,
    d: tl.constexpr, F: tl.constexpr, B: tl.constexpr, R: tl.constexpr, KIND: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Write the slopes of B records at R points."""
    first, width = tl.program_id(0) // groups * B, groups * R
    rows, columns = start + first + tl.arange(0, B), tl.program_id(0) % groups * R + tl.arange(0, R)
    margin = _margins(X, theta, rows, columns, stop, quads, width, d, F, B, R, False, STAGES)
    target = tl.load(y + rows, mask=rows < stop, other=0.0)
    to = out + (rows - start)[:, None] * width + columns[None, :]
    tl.store(to, _slope(margin, target[:, None], KIND), mask=(rows < stop)[:, None])


@triton.jit(do_not_specialize=["start", "stop", "quads", "groups", "tiles"])
def products(
    X, slope, out, start, stop, quads, groups, tiles,
    d: tl.constexpr, D: tl.constexpr, F: tl.constexpr, B: tl.constexpr, R: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Sum slope x record over a run of tiles, for F features and R points."""
    chunks: tl.constexpr = D // F
    pid, rest, width = tl.program_id(0) // (groups * chunks), tl.program_id(0) % (groups * chunks), groups * R
    features, columns = rest // groups * F + tl.arange(0, F), rest % groups * R + tl.arange(0, R)
    total, begin = tl.zeros((F, R), dtype=tl.float32), start + pid * B * tiles
    for first in tl.range(begin, tl.minimum(begin + B * tiles, stop), B, num_stages=STAGES):
        rows = first + tl.arange(0, B)
        x, x_rest = _split(_tile(X, rows, features, stop, quads, d, False))
        at = slope + (rows - start)[:, None] * width + columns[None, :]
        s, s_rest = _split(tl.load(at, mask=(rows < stop)[:, None], other=0.0))
        total += _dot(x, x_rest, s, s_rest)
    tl.store(out + (pid * D + features)[:, None] * width + columns[None, :], total)


@triton.jit(do_not_specialize=["stored", "count", "quads", "groups", "tiles"])
def losses(
    X, y, theta, out, stored, count, quads, groups, tiles,
    d: tl.constexpr, F: tl.constexpr, B: tl.constexpr, R: tl.constexpr, KIND: tl.constexpr, MAJOR: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """Sum the losses of ``count`` records over a run of tiles, at R points."""
    pid, width = tl.program_id(0) // groups, groups * R
    columns, total = tl.program_id(0) % groups * R + tl.arange(0, R), tl.zeros((R,), dtype=tl.float32)
    for first in range(pid * B * tiles, tl.minimum((pid + 1) * B * tiles, stored), B):
        rows = first + tl.arange(0, B)
        margin = _margins(X, theta, rows, columns, stored, quads, width, d, F, B, R, MAJOR, STAGES)
        target = tl.load(y + rows, mask=rows < stored, other=0.0)[:, None]
        if KIND == LOGISTIC:
            size = tl.abs(margin)
            e = tl.exp(-size)
            # ln(1 + e) loses a small e: there, two terms of its series are more accurate.
            value = tl.where(e < 1e-3, e - 0.5 * e * e, tl.log(1.0 + e)) + 0.5 * (size - target * margin)
        else:
            value = 0.5 * (margin - target) * (margin - target)
        total += tl.sum(tl.where((rows < count)[:, None], value, 0.0), axis=0)
    tl.store(out + pid * width + columns, total)
