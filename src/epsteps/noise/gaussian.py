"""Rounded Gaussian noise, exactly.

Rounding is post-processing when the noise is added to an integer, so that ⌊σz + 1/2⌋ is as private as the real-valued
Gaussian: exactly Gaussian-DP. The discrete Gaussian (Canonne, Kamath and Steinke 2020) is not.
"""

from collections.abc import Callable
from functools import partial

import numpy as np

from epsteps.noise.bits import Bits
from epsteps.noise.fast import FLAT, LOG_ULPS, certain_floor, low_part, split, wrapped
from epsteps.noise.reals import Ball, Point, Uniform, decide


def rounded_gaussian(bits: Bits, sigmas: np.ndarray, widen: float = 1.0) -> np.ndarray:
    """Return ⌊σz + 1/2⌋ for independent standard Gaussians z, modulo 2^64, one for each σ of a vector."""
    return rounded_product(bits, *split(sigmas), lambda i: Ball.exact(float(sigmas[i])), widen)


def rounded_product(
    bits: Bits, reduced: np.ndarray, shift: np.ndarray, sigma: Callable[[int], Ball], widen: float = 1.0
) -> np.ndarray:
    """Return ⌊σz + 1/2⌋ for real numbers σ: ``sigma(i)`` to any precision, ``reduced`` σ/2^shift to 2^-52 of itself.

    The high part is h = ⌊(σz + 1/2)/2^s⌋. Given h, x = σz has the Gaussian density on a cell of length 2^s. If m is its
    point nearest 0, a uniform x is accepted with probability exp(-(x² - m²)/(2σ²)), that is if -2σ² ln U > x² - m².
    As x² - m² <= 2^s 2 max|x| <= 2 (|h| + 1) 4^s, the exponent is at most (|h| + 1) (2^s/σ)².
    """
    z = _Gaussians(bits, len(reduced), widen)
    half = np.ldexp(0.5, -shift)
    with np.errstate(all="ignore"):
        x = reduced * z.values + half
        tolerance = widen * (reduced * z.errors + np.abs(x) * 2.0**-50)
        high, open_at = certain_floor(x, tolerance)
    refined = {int(i): decide(partial(_exact_high, sigma, z, int(i), int(shift[i]))) for i in open_at}
    for i, h in refined.items():
        high[i] = wrapped(h)
    if not shift.any():
        return high

    def excess(i: int, position: Uniform, threshold: Uniform) -> Ball:
        h, cell, s = refined.get(i, int(high[i])), 2 ** int(shift[i]), sigma(i)
        x = Ball.exact(cell) * (Ball.exact(h) + position.ball()) - Ball.exact(0.5)
        nearest = Ball.exact(h * cell if h > 0 else (h + 1) * cell) - Ball.exact(0.5) if h else Ball.exact(0)
        return Ball.exact(2) * s * s * threshold.exponential() - (x * x - nearest * nearest)

    with np.errstate(all="ignore"):
        steep = ~((np.abs(high.astype(np.float64)) + 1) / reduced**2 <= FLAT / 2)  # half: this is rounded as well
    return (high << shift) + low_part(bits, bits.words(len(reduced)), shift, steep, excess, widen)


def _exact_high(sigma: Callable[[int], Ball], z: "_Gaussians", i: int, shift: int) -> int:
    return (sigma(i) * z.exact(i) * Ball.exact(2.0**-shift) + Ball.exact(2.0 ** -(shift + 1))).floor()


class _Gaussians:
    """Standard Gaussians of the polar method: float64 values, bounds on their errors, and their exact selves.

    A point (u, v) of the disc with s = u² + v² gives u g and v g, g = √(-2 ln s/s). Points outside are drawn again,
    which is independent of those inside. Errors, for words W with u in [W, W + 1] 2^-63:

    - u is off by 2^-53 of itself and 2^-63, hence s by (2^-51 + 2^-61/√s) s, roundings included, for s >= 2^-80;
    - ln g changes by (1 + 1/|ln s|)/2 of the relative change of s, and twice that covers the second order for
      1 - s >= 2^-44;
    - the logarithm, the quotient, the root and the products add less than (LOG_ULPS/2 + 3) 2^-52 of z.

    The bound below takes 2^-50 + 2^-60/√s and LOG_ULPS + 8. Elsewhere s is decided, or z is left open.
    """

    def __init__(self, bits: Bits, count: int, widen: float) -> None:
        self._bits, self._half = bits, (count + 1) // 2
        self._points: dict[int, Point] = {}
        self._draw_points(widen)
        with np.errstate(all="ignore"):
            u = self._words[:, self._columns].view(np.int64) * 2.0**-63
            s = np.square(u).sum(axis=0)
            log = -np.log(s)
            g = np.sqrt(2 * log / s)
            of_z = 0.5 * (2.0**-50 + 2.0**-60 / np.sqrt(s)) * (1 + 1 / log) + (LOG_ULPS + 8) * 2.0**-52
            of_z[(s < 2.0**-80) | (np.abs(s - 1) < 2.0**-44)] = np.inf
            z = u * g
            self.values = z.ravel()[:count]
            self.errors = (np.abs(z) * of_z + 2.0**-62 * g).ravel()[:count]

    def exact(self, i: int) -> Ball:
        """Return value i, as precisely as the context allows."""
        axis, column = divmod(i, self._half)
        return self._point(int(self._columns[column])).gaussian(axis)

    def _draw_points(self, widen: float) -> None:
        """Draw words of points of the square until enough of them lie in the disc."""
        self._words = np.empty((2, 0), np.uint64)
        self._columns = np.empty(0, np.int64)
        while len(self._columns) < self._half:
            missing = self._half - len(self._columns)
            # 4/π points are needed for each in the disc; four roots more make a second round a rarity.
            words = self._bits.words(2 * (int(1.2733 * missing + 4 * np.sqrt(missing)) + 8)).reshape(2, -1)
            seen = self._words.shape[1]
            self._words = np.concatenate([self._words, words], axis=1)
            s = np.square(words.view(np.int64) * 2.0**-63).sum(axis=0)
            inside = s < 1
            for i in np.flatnonzero(np.abs(s - 1) < widen * 2.0**-44):
                inside[i] = decide(self._point(seen + int(i)).is_inside)
            self._columns = np.concatenate([self._columns, seen + np.flatnonzero(inside)])
        self._columns = self._columns[: self._half]

    def _point(self, column: int) -> Point:
        """Return the point of a column; its two Gaussians share the bits that are drawn later."""
        if column not in self._points:
            # Two's complement counts from 0 up and then from -1 down: the other sign bit puts -1 at the beginning.
            first, second = (Uniform(self._bits, int(word) ^ 2**63, 64) for word in self._words[:, column])
            self._points[column] = Point(first, second)
        return self._points[column]
