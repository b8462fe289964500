"""Real numbers known up to a bound: what decides where float64 cannot.

A ``Ball`` is a midpoint and a radius, as decimals. Operations return a ball that contains every result the operands
allow. The context rounds away from zero, so that

- a radius, computed from terms that are not negative, is never too small;
- a midpoint m is off by at most ``|m| 10^(1 - precision)``, which every operation adds to its radius.

``ln`` and ``sqrt`` are documented as correctly rounded whatever the context, which is less than that: assumed here.
Questions about balls have an answer, or raise ``Undecided``; ``decide`` then asks again at twice the precision.
"""

import math
from collections.abc import Callable
from decimal import (
    MAX_EMAX,
    MIN_EMIN,
    ROUND_UP,
    Context,
    Decimal,
    DivisionByZero,
    InvalidOperation,
    Overflow,
    getcontext,
    localcontext,
)
from functools import cache, partial
from typing import TypeVar

import numpy as np

from epsteps.noise.bits import Bits

_DIGITS = 36
_BITS_PER_DIGIT = 3.2  # a little below log2(10): the bits of a uniform number fit into the digits of a ball

Answer = TypeVar("Answer")


class Undecided(Exception):
    """The precision in force does not settle the question."""


def decide(question: Callable[[], Answer], digits: int = _DIGITS) -> Answer:
    """Ask at growing precision until the answer is certain. The caller's own decimal context does not matter."""
    while True:
        try:
            with localcontext(_context(digits)):
                return question()
        except Undecided:
            digits *= 2


@cache
def _context(digits: int) -> Context:
    traps = [InvalidOperation, DivisionByZero, Overflow]
    return Context(prec=digits, rounding=ROUND_UP, Emin=MIN_EMIN, Emax=MAX_EMAX, capitals=1, clamp=0, traps=traps)


def _rounding(midpoint: Decimal) -> Decimal:
    return midpoint.copy_abs().scaleb(1 - getcontext().prec)


class Ball:
    """All real numbers within ``radius`` of ``midpoint``."""

    __slots__ = ("midpoint", "radius")

    def __init__(self, midpoint: Decimal, radius: Decimal) -> None:
        self.midpoint, self.radius = midpoint, radius

    @classmethod
    def exact(cls, number: float) -> "Ball":
        """Return a float or an integer, which decimals hold exactly."""
        return cls(Decimal(number), Decimal(0))

    def __add__(self, other: "Ball") -> "Ball":
        m = self.midpoint + other.midpoint
        return Ball(m, self.radius + other.radius + _rounding(m))

    def __neg__(self) -> "Ball":
        return Ball(self.midpoint.copy_negate(), self.radius)

    def __sub__(self, other: "Ball") -> "Ball":
        m = self.midpoint - other.midpoint
        return Ball(m, self.radius + other.radius + _rounding(m))

    def __mul__(self, other: "Ball") -> "Ball":
        m = self.midpoint * other.midpoint
        spread = self.midpoint.copy_abs() * other.radius + (other.midpoint.copy_abs() + other.radius) * self.radius
        return Ball(m, spread + _rounding(m))

    def __truediv__(self, other: "Ball") -> "Ball":
        """With r <= |b|/2, |a'/b' - a/b| <= (|a/b| r_b + r_a)/(|b| - r_b), and |b| - r_b >= |b|/2."""
        size = other.midpoint.copy_abs()
        _require(2 * other.radius < size)
        m = self.midpoint / other.midpoint
        spread = 2 * (m.copy_abs() * other.radius + self.radius) / size
        return Ball(m, spread + _rounding(m))

    def ln(self) -> "Ball":
        """With r <= m/2, |ln y - ln m| <= r/(m - r) <= 2r/m."""
        _require(2 * self.radius < self.midpoint)
        m = self.midpoint.ln()
        return Ball(m, 2 * self.radius / self.midpoint + _rounding(m))

    def sqrt(self) -> "Ball":
        """Return the root: |√y - √m| <= r/√m; twice that, as the root itself is rounded."""
        _require(self.radius < self.midpoint)
        m = self.midpoint.sqrt()
        return Ball(m, 2 * self.radius / m + _rounding(m))

    def is_positive(self) -> bool:
        """Return the sign, if it is certain."""
        _require(self.radius < self.midpoint.copy_abs())
        return self.midpoint > 0

    def floor(self, least: int | None = None) -> int:
        """Return the integer part, if it is certain, of a number known to be at least ``least``."""
        margin = self.radius + 2 * _rounding(self.midpoint.copy_abs() + self.radius)  # the two ends are rounded as well
        low, high = math.floor(self.midpoint - margin), math.floor(self.midpoint + margin)
        low = low if least is None else max(low, least)
        _require(low == high)
        return low


def _require(certain: bool) -> None:
    if not certain:
        raise Undecided


ONE = Ball.exact(1)
_TWO = Ball.exact(2)


class Uniform:
    """A uniform number on [0, 1], of which the first bits are known and more are drawn when they are needed."""

    def __init__(self, bits: Bits, prefix: int = 0, known: int = 0) -> None:
        self._bits, self._prefix, self._known = bits, prefix, known

    def leading(self, count: int) -> int:
        """Return the first bits, as an integer."""
        if count > self._known:
            missing = count - self._known
            self._prefix, self._known = (self._prefix << missing) | self._bits.more(missing), count
        return self._prefix >> (self._known - count)

    def is_below(self, numerator: int, denominator: int) -> bool:
        """Return whether the number lies below a fraction, which is exact for integers of any size."""
        count = 64
        while True:
            first, bound = self.leading(count) * denominator, numerator << count
            if first + denominator <= bound:
                return True
            if first >= bound:
                return False
            count *= 2

    def ball(self) -> Ball:
        """Return the interval that the first bits leave open, with as many bits as the precision in force can use."""
        count = int(_BITS_PER_DIGIT * getcontext().prec)
        steps = Decimal(2 ** (count + 1))
        m = Decimal(2 * self.leading(count) + 1) / steps
        return Ball(m, 1 / steps + _rounding(m))

    def exponential(self) -> Ball:
        """Return -ln U, a standard exponential variable."""
        return -self.ball().ln()


class Point:
    """A uniform point of the square [-1, 1]², and the two standard Gaussians of Marsaglia's polar method."""

    def __init__(self, first: Uniform, second: Uniform) -> None:
        self._uniforms = (first, second)

    def coordinates(self) -> tuple[Ball, Ball]:
        """Return the point."""
        first, second = (_TWO * uniform.ball() - ONE for uniform in self._uniforms)
        return first, second

    def is_inside(self) -> bool:
        """Return whether the point lies in the unit disc."""
        return is_inside(*self.coordinates())

    def gaussian(self, axis: int) -> Ball:
        """Return one of the two Gaussians of a point of the disc."""
        u, v = self.coordinates()
        return polar(u, v) if axis == 0 else polar(v, u)

    def gaussians(self) -> tuple[Ball, Ball]:
        """Return both of them, with one logarithm."""
        u, v = self.coordinates()
        factor = _polar_factor(u, v)
        return u * factor, v * factor


def is_inside(u: Ball, v: Ball) -> bool:
    """Return whether a point lies in the unit disc."""
    return (ONE - (u * u + v * v)).is_positive()


def polar(u: Ball, v: Ball) -> Ball:
    """Return u √(-2 ln s / s), s = u² + v²: a standard Gaussian if the point is uniform in the disc."""
    return u * _polar_factor(u, v)


def _polar_factor(u: Ball, v: Ball) -> Ball:
    s = u * u + v * v
    return (-_TWO * s.ln() / s).sqrt()


LOG_ULPS = 8
FLAT = 2.0**-16
SQUEEZE = 0.016

HIGH_BITS = 27
THRESHOLD_BITS = 16


def split(scales: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return ``scales / 2^shift`` (exact, below 2^27, and from 2^26 on where the shift is not 0) and the shift."""
    if scales.strides == (0,) and len(scales) > 1:  # one scale, broadcast
        reduced, shift = split(scales[:1])
        return np.broadcast_to(reduced, scales.shape), np.broadcast_to(shift, scales.shape)
    shift = np.maximum(np.frexp(scales)[1].astype(np.int64) - HIGH_BITS, 0)
    return np.ldexp(scales, -shift), shift


def certain_floor(x: np.ndarray, tolerance: np.ndarray, least: float = -np.inf) -> tuple[np.ndarray, np.ndarray]:
    """Return the integer part of numbers of at least ``least``, and the positions where the tolerance leaves it open.

    Tolerances must cover the rounding of ``x ± tolerance``.
    """
    low, high = np.floor(np.maximum(x - tolerance, least)), np.floor(x + tolerance)
    open_at = np.flatnonzero(low != high)  # also where a logarithm overflowed
    low[open_at] = 0
    return low.astype(np.int64), open_at


def low_part(
    bits: Bits,
    words: np.ndarray,
    shift: np.ndarray,
    steep: np.ndarray | bool,
    excess: Callable[[int, Uniform, Uniform], Ball],
    widen: float = 1.0,
) -> np.ndarray:
    """Return positions inside cells of 2^shift integers: uniform ones, of which some are rejected.

    The low bits of a word are the position, its top 16 the threshold: both are numbers with more bits to come. Position
    i is accepted if ``excess(i, position, threshold)`` is positive, which it must be for thresholds below 1 - ``FLAT``
    unless ``steep``: only one threshold in 2^16 has to be looked at. ``widen`` lets tests look at more of them.
    """
    positions = (words & ((np.uint64(1) << shift.astype(np.uint64)) - np.uint64(1))).astype(np.int64)
    thresholds = words >> np.uint64(64 - THRESHOLD_BITS)
    unseen = max(0, 2**THRESHOLD_BITS - int(widen))
    for i in np.flatnonzero((shift > 0) & ((thresholds >= unseen) | steep)).tolist():
        width = int(shift[i])
        position = Uniform(bits, int(positions[i]), width)
        threshold = Uniform(bits, int(thresholds[i]), THRESHOLD_BITS)
        while not decide(partial(_is_accepted, excess, i, position, threshold)):
            position, threshold = Uniform(bits), Uniform(bits)
        positions[i] = position.leading(width)
    return positions


def _is_accepted(excess: Callable, i: int, position: Uniform, threshold: Uniform) -> bool:
    return excess(i, position, threshold).is_positive()
