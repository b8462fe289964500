"""Slopes as integers: the derivative of a record's loss in steps of bound/2^20, the same on every machine.

A private sum is a sum of integers, so that it is exact and its sensitivity that of the real problem. What is rounded
here is written with additions, multiplications, divisions and square roots of IEEE 754 in a fixed order, never fused,
and nothing else: every engine that repeats these lines gets the same integers. Their accuracy concerns the error of a
step alone. Privacy rests on the last lines of each function, which hold the level within its limits whatever came
before, and for the levels of any other loss on ``Limits``.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

# The largest slope is this many steps.
STEPS = 2**20

# exp(-r) for |r| <= ln(2)/2. Degree 6 leaves a relative error of 2e-9, below float32's own.
_FIT = np.polynomial.Chebyshev.interpolate(lambda r: np.exp(-r), 6, [-math.log(2) / 2, math.log(2) / 2])
EXP_COEFFICIENTS = tuple(_FIT.convert(kind=np.polynomial.Polynomial).coef.astype(np.float32))
LOG2_E = np.float32(1 / math.log(2))
# ln(2) in two parts, the first with few enough digits for exact multiples (Cody and Waite).
LN2_HIGH, LN2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)
# Margins are held here: exp(-24) is far below half a step.
LARGEST_MARGIN = np.float32(24)
_LARGEST_EXPONENT = 700.0
_HALF, _ONE, _STEPS = np.float32(0.5), np.float32(1), np.float32(STEPS)
# Residuals are held here, in units of c: from there on the slope is c to the last bit.
_LARGEST_RATIO = 2.0**30


# The norms in which the levels of a record are held together.
NORMS = (1.0, 2.0, math.inf)
_INWARD = 1 - 2.0**-40
# What is rounded toward privacy is moved by more than its rounding error.
INWARD = 1 - 2.0**-49


@dataclass(frozen=True)
class Limits:
    """What the levels of a record keep within: each of them, the sum of their sizes, and that of their squares."""

    each: float
    total: float
    square: float

    @np.errstate(all="ignore")
    def held(self, numbers: np.ndarray) -> np.ndarray:
        """Return any numbers as levels, which are integers within the limits: what is within stays, NaN becomes 0.

        Several levels lie along the second axis. Those of a record that are too large together are multiplied by what
        they exceed a limit by, and rounded toward 0: sums of sizes below 2^53 are exact, so that none is missed.
        """
        levels = np.rint(np.asarray(numbers, dtype=float))
        np.clip(levels, -self.each, self.each, out=levels)
        np.copyto(levels, 0.0, where=np.isnan(levels))
        if math.isinf(self.total) and math.isinf(self.square):
            return levels
        exceeded = self._exceeded(levels)
        if np.any(exceeded > 1):
            levels = np.where(exceeded > 1, np.trunc(levels * (_INWARD / np.maximum(exceeded, 1))), levels)
            levels = np.where(self._exceeded(levels) > 1, 0.0, levels)  # cannot happen, and would not harm
        return levels

    def _exceeded(self, levels: np.ndarray) -> np.ndarray:
        """Return how many times as large as they may be the levels of a record are together: above 1 if at all."""
        total, square = (np.sum(sizes, axis=1, keepdims=True) for sizes in (np.abs(levels), levels * levels))
        share = np.maximum(total / self.total, np.sqrt(square / self.square))
        return np.where((total > self.total) | (square > self.square), np.maximum(share, 1 + 2.0**-52), 1.0)


@lru_cache(maxsize=64)
def limits_of(outputs: int, one: float, two: float, largest: float) -> Limits:
    """Return the limits of so many levels whose norms, where each is at most 2^20, are at most these times 2^20."""
    each = min(STEPS, math.floor(Fraction(largest) * STEPS))
    total, square = math.floor(Fraction(one) * STEPS), math.floor(Fraction(two) ** 2 * STEPS**2)
    if outputs == 1:
        return Limits(float(min(each, total, math.isqrt(square))), math.inf, math.inf)
    # What always holds is not looked at. Above 2^52 sums are rounded, so that the limit is lowered by more.
    limits = (
        math.inf if limit >= most else float(limit) * (1.0 if limit <= 2**52 else _INWARD)
        for limit, most in ((total, outputs * each), (square, outputs * each**2))
    )
    return Limits(float(each), *limits)


@np.errstate(all="ignore")  # a warning would tell something about a record
def logistic(margin: np.ndarray, label: np.ndarray, bound: np.ndarray | float) -> np.ndarray:
    """Return -z σ(-z m) in steps of bound/2^20, for labels z of -1 and 1; computed in float32.

    The error is below 0.6 steps for a bound of 1, of which rounding is 0.5.
    """
    margin, label = margin.astype(np.float32), label.astype(np.float32)
    small = _exp_minus(np.minimum(np.abs(margin), LARGEST_MARGIN))
    small = small / (_ONE + small)
    share = np.where(label * margin > 0, small, _ONE - small)
    steps = np.floor(share * (_STEPS / np.asarray(bound, dtype=np.float32)) + _HALF)
    return -label * np.minimum(np.maximum(steps, np.float32(0)), _STEPS)


@np.errstate(all="ignore")
def smoothed_hinge(margin: np.ndarray, label: np.ndarray, width: float, bound: np.ndarray | float) -> np.ndarray:
    """Return -z σ((1 - z m)/w) in steps of bound/2^20: the logistic slope at the margin (m - z)/w."""
    return logistic((margin - label) / width, label, bound)


@np.errstate(all="ignore")
def softmax(margin: np.ndarray, place: np.ndarray, bound: np.ndarray | float) -> np.ndarray:
    """Return p - e_y in steps of bound/2^20, for margins with the classes along the second axis and y their places.

    Formal guarantee: the entries other than y are not negative, and entry y is minus their sum, which is at most 2^20:
    the L1 norm is at most 2^21, the L2 norm at most √2 2^20. They are rounded to the nearest step, whose errors cancel
    over the records, and then, as that may pass the bound, taken in order until the sum is full.
    """
    below = (margin.max(axis=1, keepdims=True) - margin).astype(np.float32)
    small = _exp_minus(np.minimum(below, LARGEST_MARGIN)).astype(float)
    share = small / np.add.accumulate(small, axis=1)[:, -1:]
    other = places_like(margin) != place
    steps = np.nan_to_num(np.floor(share * (STEPS / np.asarray(bound, dtype=float)) + 0.5), nan=0.0)
    steps = np.where(other, np.clip(steps, 0.0, float(STEPS)), 0.0)
    filled = np.minimum(np.add.accumulate(steps, axis=1), float(STEPS))
    return np.where(other, np.diff(filled, axis=1, prepend=0.0), -filled[:, -1:])


def places_like(margin: np.ndarray) -> np.ndarray:
    """Return 0, 1, ... along the second axis of margins."""
    return np.arange(margin.shape[1], dtype=float).reshape(1, -1, *[1] * (margin.ndim - 2))


def _exp_minus(w: np.ndarray) -> np.ndarray:
    """Return exp(-w) for float32 w in [0, 24]."""
    near_one, k = _exp_parts(w)
    return near_one * ((127 - k.astype(np.int32)) << 23).view(np.float32)


def _exp_parts(w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return p(r) and k with exp(-w) = p(r) 2^-k and w = r + k ln 2, for w that is not negative, in its kind of float.

    In float64 p is off by no more than in float32, its coefficients being the same: by a few 1e-9.
    """
    k = np.floor(w * LOG2_E + _HALF)
    r = (w - k * LN2_HIGH) - k * LN2_LOW
    square = r * r
    c0, c1, c2, c3, c4, c5, c6 = EXP_COEFFICIENTS
    low = (c0 + r * c1) + (c2 + r * c3) * square
    high = (c4 + r * c5) + square * c6
    return low + high * (square * square), k


def _exp_minus_double(w: np.ndarray) -> np.ndarray:
    """Return exp(-w) for float64 w that is not negative; from 700 on, that of 700."""
    near_one, k = _exp_parts(np.minimum(w, _LARGEST_EXPONENT))
    return np.ldexp(near_one, -k.astype(np.int32))


def _capped_share(agreed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return σ(-t) and σ(-t) σ(t), both with small relative errors, for t = z m in float64."""
    small = _exp_minus_double(np.abs(agreed))
    above = 1.0 + small
    return np.where(agreed > 0, small, 1.0) / above, small / (above * above)


@np.errstate(all="ignore")
def capped_logistic(margin: np.ndarray, label: np.ndarray, cap: float, bound: np.ndarray | float) -> np.ndarray:
    """Return -z min(σ(-z m), cap) in steps of bound/2^20, computed in float64: small caps are small slopes."""
    return rounded(-label * np.minimum(_capped_share(label * margin)[0], cap), bound)


@np.errstate(all="ignore")
def capped_logistic_bend(margin: np.ndarray, label: np.ndarray, cap: float, largest: float) -> np.ndarray:
    """Return σ(m) σ(-m) up to where σ(-z m) is the cap, and 0 beyond, over the largest, as a share."""
    slope, bend = _capped_share(label * margin)
    return share(np.where(slope <= cap, bend / largest, 0.0))


@np.errstate(all="ignore")
def half_exponential(margin: np.ndarray, label: np.ndarray, bound: np.ndarray | float) -> np.ndarray:
    """Return -z min(exp(-z m), 1) in steps of bound/2^20, computed in float64."""
    return rounded(-label * _exp_minus_double(np.maximum(label * margin, 0.0)), bound)


@np.errstate(all="ignore")
def half_exponential_bend(margin: np.ndarray, label: np.ndarray) -> np.ndarray:
    """Return exp(-z m) where z m is not negative, and 0 elsewhere, as a share; computed in float64."""
    agreed = label * margin
    return share(np.where(agreed >= 0, _exp_minus_double(np.maximum(agreed, 0.0)), 0.0))


@np.errstate(all="ignore")
def sigmoid_bend(margin: np.ndarray) -> np.ndarray:
    """Return 4 σ(m) σ(-m), the bend of a sigmoid over its largest, as a share; computed in float32."""
    small = _exp_minus(np.minimum(np.abs(margin.astype(np.float32)), LARGEST_MARGIN))
    above = _ONE + small
    return share(np.float32(4) * small / (above * above))


@np.errstate(all="ignore")
def pseudo_huber_bend(margin: np.ndarray, target: np.ndarray, c: float, power: int) -> np.ndarray:
    """Return (1 + |r/c|^p)^(-1 - 1/p), r = m - y, as a share; computed in float64."""
    raised, root = _raised(np.clip((margin - target) / c, -_LARGEST_RATIO, _LARGEST_RATIO), power)
    return share(1.0 / (raised * root))


@np.errstate(all="ignore")
def share(numbers: np.ndarray) -> np.ndarray:
    """Return any numbers as shares in float64, held within [0, 1]; NaN becomes 0."""
    return np.clip(np.nan_to_num(np.asarray(numbers, dtype=float), nan=0.0), 0.0, 1.0)


def residual(margin: np.ndarray, target: np.ndarray, bound: np.ndarray | float) -> np.ndarray:
    """Return m - y in steps of bound/2^20, computed in float64."""
    return rounded(margin - target, bound)


@np.errstate(all="ignore")
def pseudo_huber(margin: np.ndarray, target: np.ndarray, c: float, power: int, bound: np.ndarray | float) -> np.ndarray:
    """Return r/(1 + |r/c|^p)^(1/p), r = m - y, in steps of bound/2^20, computed in float64; p is a power of two."""
    ratio = np.clip((margin - target) / c, -_LARGEST_RATIO, _LARGEST_RATIO)
    _, root = _raised(ratio, power)
    return rounded(c * (ratio / root), bound)


def _raised(ratio: np.ndarray, power: int) -> tuple[np.ndarray, np.ndarray]:
    """Return 1 + |t|^p and its p-th root for a power of two: by squares and square roots, which IEEE 754 defines."""
    doublings = power.bit_length() - 1
    raised = ratio
    for _ in range(doublings):
        raised = raised * raised
    raised = 1.0 + raised
    root = raised
    for _ in range(doublings):
        root = np.sqrt(root)
    return raised, root


@np.errstate(all="ignore")
def rounded(derivative: np.ndarray, bound: np.ndarray | float) -> np.ndarray:
    """Return any derivative in steps of bound/2^20; NaN becomes 0."""
    steps = np.floor(derivative * (STEPS / np.asarray(bound, dtype=float)) + 0.5)
    return _without_nan(np.clip(steps, -float(STEPS), float(STEPS)))


def _without_nan(numbers: np.ndarray) -> np.ndarray:
    """Return numbers of one's own with 0 in the place of NaN."""
    np.copyto(numbers, 0.0, where=np.isnan(numbers))
    return numbers


def of_records(
    loss: Any, margins: np.ndarray, targets: np.ndarray, bound: np.ndarray | float, steepest: np.ndarray | None = None
) -> np.ndarray:
    """Return the slopes of records as integers, at margins with the outputs along the second axis, clipped if asked.

    Formal guarantee: whatever the loss answers, levels are integers of at most 2^20, those of a record keep within the
    loss's declared ``joint_slope`` together, and their L2 norm, in steps of bound/2^20, is at most the record's
    steepest slope. What the loss answers for one record must not depend on others: that alone is taken for granted.
    """
    limits = limits_of(loss.outputs, *(float(loss.joint_slope(norm)) for norm in NORMS))
    slopes = limits.held(_asked(loss, margins, along(targets, margins), bound))
    if steepest is None:
        return slopes
    with np.errstate(all="ignore"):
        most = np.floor(along(steepest, margins) * (STEPS / bound) * INWARD)
    return (_shortened if loss.outputs > 1 else _within)(slopes, _without_nan(most))


def _asked(loss: Any, margins: np.ndarray, targets: np.ndarray, bound: np.ndarray | float) -> np.ndarray:
    """Return what a loss answers, in numbers: 0 for records about which it raises, or answers something else.

    Records are then asked about in ever smaller parts, so that one of them does not change what others add.
    """
    try:
        with np.errstate(all="ignore"):  # a warning would tell something about a record
            answer = np.asarray(loss.levels(margins, targets, bound))
        if answer.shape == margins.shape and answer.dtype.kind in "fiub":
            return answer
    except Exception:  # which records make a loss raise is not for others to know
        answer = None
    if len(margins) <= 1:
        return np.zeros(margins.shape)
    half = len(margins) // 2
    parts = ((margins[:half], targets[:half]), (margins[half:], targets[half:]))
    return np.concatenate([_asked(loss, *part, bound).astype(float) for part in parts])


def along(values: np.ndarray, margins: np.ndarray) -> np.ndarray:
    """Return one number for each record in the form of their margins: as a column, where these have several axes."""
    return values.reshape(-1, *[1] * (margins.ndim - 1))


def _within(slopes: np.ndarray, most: np.ndarray) -> np.ndarray:
    return np.clip(slopes, -most, most)


def _shortened(slopes: np.ndarray, most: np.ndarray) -> np.ndarray:
    """Return levels whose L2 norm is at most ``most``; where one was minus the sum of the others, it stays that.

    Entries are multiplied and rounded toward 0; the only negative one of several then becomes minus the sum of the
    others, unless that would make it longer.
    """
    size = np.sqrt(np.sum(slopes * slopes, axis=1, keepdims=True))
    share = np.minimum(1.0, most / np.maximum(size, 1.0) * INWARD)
    kept = np.where(size <= most, slopes, np.trunc(slopes * share))
    alone = np.sum(slopes < 0, axis=1, keepdims=True) == 1
    others = np.where(slopes > 0, kept, 0.0).sum(axis=1, keepdims=True)
    return np.where(alone & (slopes < 0), np.maximum(kept, -others), kept)
