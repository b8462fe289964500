"""The radius of a noise vector whose law depends on a norm: one number, drawn in interval arithmetic."""

from functools import partial

import numpy as np

from epsteps.noise.bits import Bits
from epsteps.noise.reals import ONE, Ball, Point, Uniform, decide, is_inside, polar

WORDS = 32  # what a radius reads, in almost all cases
SQUEEZE = 0.016


class Tape:
    """Uniform numbers that an algorithm reads in order, and again from the start when it needs more precision."""

    def __init__(self, bits: Bits, words: np.ndarray) -> None:
        pairs = words.reshape(-1, 2).tolist()
        self._bits, self._read = bits, 0
        self._uniforms = [Uniform(bits, high << 64 | low, 128) for high, low in pairs]

    def rewind(self) -> None:
        """Start from the first number."""
        self._read = 0

    def next(self) -> Uniform:
        """Return the next number."""
        if self._read == len(self._uniforms):
            self._uniforms.append(Uniform(self._bits))
        self._read += 1
        return self._uniforms[self._read - 1]


def gamma(tape: Tape, twice_shape: int) -> Ball:
    """Return a Gamma variable of scale 1 and shape of at least 1, a multiple of 1/2 (Marsaglia and Tsang 2000).

    With y = x/(3√a) for a Gaussian x, a(1 + y)³ is accepted if ln U < h, where h = -3a times the integral of s³/(1 + s)
    from 0 to y. For y >= -1/2 that integral is at most 0.424 y⁴, so that U < 1 - 0.016 x⁴/a <= 1 + h <= e^h is enough:
    no logarithm is needed for most draws.
    """
    a = Ball.exact(twice_shape / 2) - ONE / Ball.exact(3)
    slope = ONE / (Ball.exact(9) * a).sqrt()
    while True:
        u, v = Point(tape.next(), tape.next()).coordinates()
        if not is_inside(u, v):
            continue
        x, uniform = polar(u, v), tape.next()
        root = ONE + slope * x
        if not root.is_positive():
            continue
        square = x * x
        cube = root * root * root
        enough = a * (ONE - uniform.ball()) - Ball.exact(SQUEEZE) * square * square
        if (root - Ball.exact(0.5)).is_positive() and enough.is_positive():
            return a * cube
        if (Ball.exact(0.5) * square + a * (ONE - cube + cube.ln()) + uniform.exponential()).is_positive():
            return a * cube


def integer_radius(tape: Tape, power: int, offset: float, scale: float) -> int:
    """Return r >= 0 with P(r) ~ (r + a)^D e^(-r/t), for the power D >= 1, an offset 0 < a <= 1 and the scale t.

    Y = t Gamma(D) has density ~ y^(D-1) e^(-y/t). Round it up to k + a, accept with probability e^(-(k + a - Y)/t), and
    add a geometric variable of scale t. The accepted mass of k is e^(-(k + a)/t) times the integral of y^(D-1) over the
    cell that is rounded up to it, ((k + a)^D - max(k + a - 1, 0)^D)/D: the sum over k <= r telescopes.

    One exponential E serves for both: accept if tE > k + a - Y; the rest of tE is then exponential again, and its
    integer part geometric.
    """
    return decide(partial(_integer_radius, tape, power, offset, scale))


def _integer_radius(tape: Tape, power: int, offset: float, scale: float) -> int:
    tape.rewind()
    a, t = Ball.exact(offset), Ball.exact(scale)
    while True:
        y = t * gamma(tape, 2 * power) - a
        k = (y + ONE).floor(least=0)
        rest = y + t * tape.next().exponential() - Ball.exact(k)
        if rest.is_positive():
            return k + rest.floor(least=0)
