"""Noise vectors with P(z) ~ exp(-|z|/t) for a norm of the whole vector (Hardt and Talwar 2010), exactly.

A vector is a uniform point of a ball whose radius is drawn first. The radius must stay secret: a point that is known to
be uniform on a known ball protects nothing. So nothing that follows it is rejected on its account.
"""

from collections.abc import Callable
from functools import partial

import numpy as np

from epsteps.noise.bits import Bits
from epsteps.noise.fast import split
from epsteps.noise.gaussian import rounded_product
from epsteps.noise.radius import WORDS, Tape, gamma, integer_radius
from epsteps.noise.reals import Ball, Undecided, decide
from epsteps.noise.uniform import uniform_below


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
