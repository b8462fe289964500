"""Noise vectors with P(z) ~ exp(-|z|/t) for a norm of the whole vector (Hardt and Talwar 2010), exactly.

A vector is a uniform point of a ball whose radius is drawn first. The radius must stay secret: a point that is known to
be uniform on a known ball protects nothing. So nothing that follows it is rejected on its account.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
from scipy.special import gammaincinv

from epsteps.noise.bits import Bits
from epsteps.noise.gaussian import float_gaussian, rounded_product
from epsteps.noise.reals import ONE, Ball, Point, Undecided, Uniform, decide, is_inside, polar, split
from epsteps.noise.samplers import SAMPLERS, Sampler, Uniforms, as_columns, by_column, checked_ball, checked_scale
from epsteps.noise.uniform import uniform_below
from epsteps.problem.shapes import L2

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


def linf(bits: Bits, d: int, scale: float, widen: float = 1.0) -> np.ndarray:
    """Return integers with P(z) ~ exp(-max|z_j|/t), modulo 2^64.

    There are (2r + 1)^d points with max|z| <= r. If P(R = r) ~ (2r + 1)^d e^(-r/t) and z is uniform on those of R, then
    P(z) ~ sum of e^(-r/t) over r >= max|z|, which is ~ e^(-max|z|/t).
    """
    words = bits.words(WORDS + 2 * d)
    r = integer_radius(Tape(bits, words[:WORDS]), d, 0.5, scale)
    return uniform_below(bits, words[WORDS:].reshape(2, -1), 2 * r + 1, widen) - _int64(r)


def hull(bits: Bits, d: int, scale: float, widen: float = 1.0) -> np.ndarray:
    """Return integers with P(z) ~ exp(-|z|/t), |z| = range(0, z_1, ..., z_d)/2, modulo 2^64.

    This is the norm whose unit ball is [-1, 1]^d + [-1, 1](1, ..., 1), the shadow of a cube. If P(R = r) ~
    (r + 1)^(d+1) e^(-r/2t), w is uniform on {0, ..., R}^(d+1) and z_j = w_j - w_0, then a z of range k comes from
    max(r - k + 1, 0) points w, and the sum of (r - k + 1) e^(-r/2t) over r >= k is ~ e^(-k/2t).
    """
    words = bits.words(WORDS + 2 * (d + 1))
    r = integer_radius(Tape(bits, words[:WORDS]), d + 1, 1.0, 2 * scale)
    w = uniform_below(bits, words[WORDS:].reshape(2, -1), r + 1, widen)
    return w[1:] - w[:1]


def l2(bits: Bits, d: int, scales: np.ndarray | float, widen: float = 1.0) -> np.ndarray:
    """Return ⌊z_j + 1/2⌋ for a real vector z of density ~ exp(-|z/t|_2), modulo 2^64, for one scale t or one each.

    A Gaussian vector with variances 2t_j² Gamma((d+1)/2) has this density (the subordination integral of a stable law).
    """
    tape, each = Tape(bits, bits.words(WORDS)), np.broadcast_to(np.asarray(scales, dtype=np.float64), (d,))

    def root() -> Ball:
        tape.rewind()
        return (Ball.exact(2) * gamma(tape, d + 1)).sqrt()

    # Shifts come from public numbers, near which the σ_j are. float(...) and the product add 2^-53 of σ_j each.
    _, shift = split(each * np.sqrt(d + 1.0))
    reduced = np.ldexp(each, -shift) * decide(partial(_nearest_float, root))
    return rounded_product(bits, reduced, shift, lambda i: Ball.exact(float(each[i])) * root(), widen)


def _nearest_float(number: Callable[[], Ball]) -> float:
    ball = number()
    if ball.radius > abs(ball.midpoint).scaleb(-20):
        raise Undecided
    return float(ball.midpoint)


def _int64(integer: int) -> np.ndarray:
    """Return an integer modulo 2^64 as an array, whose differences wrap around without a word."""
    return np.array([integer % 2**64], dtype=np.uint64).view(np.int64)


def float_l2(uniform: Uniforms, shape: L2, form: tuple[int, ...]) -> np.ndarray:
    """Return vectors of density ~ exp(-|z|_2): Gaussians of a random variance, as in ``l2``; in float64, not exact."""
    *others, d, columns = form
    z = float_gaussian(uniform, shape, form)
    return z * np.sqrt(2 * gammaincinv((d + 1) / 2, uniform((*others, 1, columns))))


def _integers(bits: Bits, shape: L2, scales: np.ndarray) -> np.ndarray:
    """Return rounded noise; a coordinate may have a scale of its own: a change Δ costs |Δ/t|_2."""
    for column in as_columns(checked_scale(scales, least=1.0)).T:
        checked_ball(shape.d, float(column.max()))
    return by_column(lambda t: l2(bits, shape.d, t), as_columns(scales).T, scales.shape)


SAMPLERS[L2] = Sampler(_integers, float_l2)
