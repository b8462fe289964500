"""Noise vectors with P(z) ~ exp(-|z|/t) for a norm of the whole vector (Hardt and Talwar 2010), exactly.

A vector is a uniform point of a ball whose radius is drawn first. The radius must stay secret: a point that is known to
be uniform on a known ball protects nothing. So nothing that follows it is rejected on its account.

A radius is first computed in the processor's widest floats, and where their error leaves it open in decimals.
"""

import math
import sys
from collections.abc import Callable
from functools import cache, partial

import numpy as np
from scipy.special import gammaincinv

from epsteps.noise.bits import Bits
from epsteps.noise.gaussian import float_gaussian, rounded_product
from epsteps.noise.reals import LOG_ULPS, ONE, SQUEEZE, Ball, Point, Undecided, Uniform, decide, is_inside, polar, split
from epsteps.noise.samplers import SAMPLERS, Sampler, Uniforms, as_columns, by_column, checked_ball, checked_scale
from epsteps.noise.uniform import uniform_below
from epsteps.problem.shapes import L2

WORDS = 32  # what a radius reads, in almost all cases

# The widest floats that processors compute with: doubles on some platforms. Formats that are not IEEE's are not used.
_LONG = np.longdouble
_EPS = float(np.finfo(_LONG).eps)
_IS_IEEE = np.finfo(_LONG).nmant in (52, 63, 112)
_SIGN = np.uint64(2**63)
_SECOND_ORDER = 1 + 1e-6


class Tape:
    """Uniform numbers that an algorithm reads in order, and again from the start when it needs more precision."""

    def __init__(self, bits: Bits, words: np.ndarray) -> None:
        self._bits, self.words, self._read = bits, words.reshape(-1, 2), 0
        self._uniforms: dict[int, Uniform] = {}

    def rewind(self) -> None:
        """Start from the first number."""
        self._read = 0

    def next(self) -> Uniform:
        """Return the next number."""
        place, self._read = self._read, self._read + 1
        if place not in self._uniforms:
            high, low = self.words[place].tolist() if place < len(self.words) else (0, 0)
            self._uniforms[place] = Uniform(self._bits, high << 64 | low, 128 if place < len(self.words) else 0)
        return self._uniforms[place]

    def skip(self, count: int) -> None:
        """Go on after so many numbers from the first."""
        self._read = count

    def floats(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the first 64 bits of numbers U in long doubles: of 2U - 1, and as whole words 2^64 U."""
        first = self.words[:, 0]
        return (first ^ _SIGN).view(np.int64).astype(_LONG) * _LONG(2.0**-63), first.astype(_LONG)


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


def quick_gamma(points: np.ndarray, words: np.ndarray, twice_shape: int) -> tuple[np.floating, float, int] | None:
    """Return the variable of ``gamma`` in long doubles, a bound on its relative error, and how many numbers it reads.

    None if a decision is open, or not made by the shortcut. The bound, with ε the distance from 1 to the next long
    double, so that operations and a word's conversion round by ε/2 of their results, and up to a millionth:

    - x is off by e = |x| (½ (4ε + 2^-60/√s) (1 + 1/|ln s|) + 16ε) + 2^-62 g for 2^-40 < s < 1 - 2^-30, as in
      ``gaussian.Gaussians`` with ε for 2^-52;
    - 9a is exact and 1/√(9a) off by ε of itself, hence 1 + y by δ = (e + 2ε|x|)/√(9a) + ½ε(1 + y);
    - a is off by ½ε of itself and three products round, hence a(1 + y)³ by 3δ/(1 + y) + 2ε of itself;
    - 1 - U - 0.016 x⁴/a, in doubles, by less than 2^-20 if e < 2^-24: where it is positive its last term is at most 1,
      and off by at most 4e (0.016/a)^¼ < 2e; the bits to come and all roundings add less than 2^-47.
    """
    (a, slope), read = _constants(twice_shape), 0
    while read + 2 < len(words):
        u, v = points[read], points[read + 1]
        s = u * u + v * v
        size = float(s)
        if size > 1 + 2.0**-30:
            read += 2
            continue
        if not 2.0**-40 < size < 1 - 2.0**-30:
            return None
        log = -np.log(s)
        g = np.sqrt(2 * log / s)
        x = u * g
        root = 1 + slope * x
        far, last = abs(float(x)), float(root)
        e = far * (0.5 * (4 * _EPS + 2.0**-60 / math.sqrt(size)) * (1 + 1 / float(log)) + 16 * _EPS)
        e += 2.0**-62 * float(g)
        spare = 1 - float(words[read + 2]) * 2.0**-64 - SQUEEZE * far**4 / float(a)
        if min(last - 0.5, spare) <= 2.0**-20 or e >= 2.0**-24:
            return None
        delta = float(slope) * (e + 2 * _EPS * far) + 0.5 * _EPS * last
        return a * root * root * root, 3 * delta / last + 2 * _EPS, read + 3
    return None


@cache
def _constants(twice_shape: int) -> tuple[np.floating, np.floating]:
    """Return a and 1/√(9a), 9a = 9 shape - 3."""
    nine_a = _LONG(4.5 * twice_shape - 3)
    return nine_a / 9, 1 / np.sqrt(nine_a)


def integer_radius(tape: Tape, power: int, offset: float, scale: float, widen: float = 1.0) -> int:
    """Return r >= 0 with P(r) ~ (r + a)^D e^(-r/t), for the power D >= 1, an offset 0 < a <= 1 and the scale t.

    Y = t Gamma(D) has density ~ y^(D-1) e^(-y/t). Round it up to k + a, accept with probability e^(-(k + a - Y)/t), and
    add a geometric variable of scale t. The accepted mass of k is e^(-(k + a)/t) times the integral of y^(D-1) over the
    cell that is rounded up to it, ((k + a)^D - max(k + a - 1, 0)^D)/D: the sum over k <= r telescopes.

    One exponential E serves for both: accept if tE > k + a - Y; the rest of tE is then exponential again, and its
    integer part geometric.
    """
    if "numba" in sys.modules and widen == 1:
        from epsteps.noise import _compiled

        found, read = _compiled.radius(tape.words, power, offset, scale)
        if read:
            tape.skip(read)
            return found
    found = quick_radius(tape, power, offset, scale, widen) if _IS_IEEE else None
    return decide(partial(_integer_radius, tape, power, offset, scale)) if found is None else found


def quick_radius(tape: Tape, power: int, offset: float, scale: float, widen: float) -> int | None:
    """Return the radius if long doubles tell it, from the same numbers of the tape.

    With y = tG - a it is ⌊y + tE⌋ if that is above y, and not negative: k of ``_integer_radius`` is ⌊y⌋ + 1, or 0. E is
    off by 2ε + 1/w + (LOG_ULPS + 8)ε E, its product and sums included, as in ``laplace``. What is computed of G rounds
    four times at most, the ends of the interval included: by 2ε tG, and by 2ε as a <= 1.
    """
    points, words = tape.floats()
    found = quick_gamma(points, words, 2 * power)
    if found is None or found[2] == len(words) or not words[found[2]]:
        return None
    gamma, error, read = found
    exponential = -np.log(words[read] * _LONG(2.0**-64))
    y = scale * gamma - offset
    total = y + scale * exponential
    later = 2 * _EPS + 1 / float(words[read]) + (LOG_ULPS + 8) * _EPS * float(exponential)
    tolerance = widen * _SECOND_ORDER * (scale * ((error + 2 * _EPS) * float(gamma) + later) + 2 * _EPS)
    low = np.floor(total - tolerance)
    if low != np.floor(total + tolerance) or low < 0 or not y + tolerance < low:
        return None
    tape.skip(read + 1)
    return int(low)


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
    if "numba" in sys.modules and widen == 1:
        from epsteps.noise import _compiled

        found = np.empty(d, np.int64)
        if _compiled.linf(words, WORDS, scale, found):
            return found
    r = integer_radius(Tape(bits, words[:WORDS]), d, 0.5, scale, widen)
    return uniform_below(bits, words[WORDS:].reshape(2, -1), 2 * r + 1, widen) - _int64(r)


def hull(bits: Bits, d: int, scale: float, widen: float = 1.0) -> np.ndarray:
    """Return integers with P(z) ~ exp(-|z|/t), |z| = range(0, z_1, ..., z_d)/2, modulo 2^64.

    This is the norm whose unit ball is [-1, 1]^d + [-1, 1](1, ..., 1), the shadow of a cube. If P(R = r) ~
    (r + 1)^(d+1) e^(-r/2t), w is uniform on {0, ..., R}^(d+1) and z_j = w_j - w_0, then a z of range k comes from
    max(r - k + 1, 0) points w, and the sum of (r - k + 1) e^(-r/2t) over r >= k is ~ e^(-k/2t).
    """
    words = bits.words(WORDS + 2 * (d + 1))
    r = integer_radius(Tape(bits, words[:WORDS]), d + 1, 1.0, 2 * scale, widen)
    w = uniform_below(bits, words[WORDS:].reshape(2, -1), r + 1, widen)
    return w[1:] - w[:1]


def l2(bits: Bits, d: int, scales: np.ndarray | float, widen: float = 1.0, free: int | None = None) -> np.ndarray:
    """Return ⌊z_j + 1/2⌋ for a real vector z of density ~ exp(-|z/t|_2), modulo 2^64, for one scale t or one each.

    A Gaussian vector with variances 2t_j² Gamma((d+1)/2) has this density (the subordination integral of a stable law).
    With ``free`` in the place of d in the shape, z is such that its projection on a subspace of that dimension has it.
    """
    free = d if free is None else free
    tape, each = Tape(bits, bits.words(WORDS)), np.broadcast_to(np.asarray(scales, dtype=np.float64), (d,))

    def root() -> Ball:
        tape.rewind()
        return (Ball.exact(2) * gamma(tape, free + 1)).sqrt()

    # Shifts come from public numbers, near which the σ_j are. float(...) and the product add 2^-53 of σ_j each.
    _, shift = split(each * np.sqrt(free + 1.0))
    quick = quick_root(tape, free + 1, widen) if _IS_IEEE else None
    reduced = np.ldexp(each, -shift) * (decide(partial(_nearest_float, root)) if quick is None else quick)
    return rounded_product(bits, reduced, shift, lambda i: Ball.exact(float(each[i])) * root(), widen)


def quick_root(tape: Tape, twice_shape: int, widen: float) -> float | None:
    """Return the double next to √(2G) if long doubles tell it; a root halves the error, and rounds as the ends do."""
    found = quick_gamma(*tape.floats(), twice_shape)
    if found is None:
        return None
    middle, error, _ = np.sqrt(2 * found[0]), *found[1:]
    tolerance = widen * _SECOND_ORDER * (0.5 * error + 2 * _EPS) * float(middle)
    low, high = float(middle - tolerance), float(middle + tolerance)
    return low if low == high else None


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
