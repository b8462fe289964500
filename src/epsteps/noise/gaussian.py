"""Rounded Gaussian noise, exactly.

Rounding is post-processing when the noise is added to an integer, so that ⌊σz + 1/2⌋ is as private as the real-valued
Gaussian: exactly Gaussian-DP. The discrete Gaussian (Canonne, Kamath and Steinke 2020) is not.
"""

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.special import ndtri

from epsteps.noise.bits import Again, Bits
from epsteps.noise.reals import FLAT, HIGH_BITS, LOG_ULPS, Ball, Point, Uniform, certain_floor, decide, low_part, split
from epsteps.noise.samplers import SAMPLERS, Sampler, Uniforms, as_columns, checked_scale, each_column
from epsteps.problem.grid import wrapped
from epsteps.problem.shapes import Ellipsoid, Elongated, Spherical


def rounded_gaussian(bits: Bits, sigmas: np.ndarray, widen: float = 1.0) -> np.ndarray:
    """Return ⌊σz + 1/2⌋ for independent standard Gaussians z, modulo 2^64, one for each σ of a vector."""
    return rounded_product(bits, *split(sigmas), lambda i: Ball.exact(float(sigmas[i])), widen)


def tilted_gaussian(
    bits: Bits, sigmas: np.ndarray, commons: np.ndarray, weights: np.ndarray, widen: float = 1.0
) -> np.ndarray:
    """Return ⌊σ_ij x_ij + w_i κ_j y_j + 1/2⌋ for independent standard Gaussians x and y, modulo 2^64.

    The column's y is known as precisely as any of its entries asks for. Three products round w κ y, by less than 2^-51
    of itself together.
    """
    shape, (reduced, shift) = sigmas.shape, split(sigmas.reshape(-1))
    y = Gaussians(bits, shape[1], widen)
    with np.errstate(all="ignore"):
        slopes = np.ldexp(np.outer(weights, commons).reshape(-1), -shift)
        values = slopes * np.tile(y.values, shape[0])
        errors = np.abs(slopes) * np.tile(y.errors, shape[0]) * (1 + 2.0**-20) + np.abs(values) * 2.0**-50

    def mean(i: int) -> Ball:
        row, column = divmod(i, shape[1])
        return Ball.exact(float(weights[row])) * Ball.exact(float(commons[column])) * y.exact(column)

    def sigma(i: int) -> Ball:
        return Ball.exact(float(sigmas[divmod(i, shape[1])]))

    return rounded_product(bits, reduced, shift, sigma, widen, Means(values, errors, mean)).reshape(shape)


@dataclass(frozen=True, eq=False)
class Means:
    """Real means m_i: m_i/2^shift in float64, bounds on their errors, and ``exact(i)`` to any precision."""

    values: np.ndarray
    errors: np.ndarray
    exact: Callable[[int], Ball]


_CENTRED = Means(np.zeros(1), np.zeros(1), lambda _: Ball.exact(0))


def rounded_product(
    bits: Bits,
    reduced: np.ndarray,
    shift: np.ndarray,
    sigma: Callable[[int], Ball],
    widen: float = 1.0,
    means: Means = _CENTRED,
) -> np.ndarray:
    """Return ⌊σz + m + 1/2⌋ for real numbers σ: ``sigma(i)`` to any precision, ``reduced`` σ/2^shift to 2^-51 of it.

    The high part is h = ⌊(σz + m + 1/2)/2^s⌋. Given h, x = σz has the Gaussian density on a cell of length 2^s. If n is
    its point nearest 0, a uniform x is accepted with probability exp(-(x² - n²)/(2σ²)), that is if -2σ² ln U > x² - n².
    As x² - n² <= 2^s 2 max|x| <= 2 (|σz| + 2^s) 2^s, the exponent is at most (|z| σ/2^s + 1) (2^s/σ)².
    """
    z = Gaussians(bits, len(reduced), widen)
    half = np.ldexp(0.5, -shift)
    with np.errstate(all="ignore"):
        x = reduced * z.values + half + means.values
        rounding = (np.abs(x) + np.abs(means.values)) * 2.0**-50
        high, open_at = certain_floor(x, widen * (reduced * z.errors + rounding + means.errors))
        flat = (reduced * (np.abs(z.values) + z.errors) + 1) / reduced**2 <= FLAT / 2  # half: this is rounded as well
    refined = {int(i): decide(partial(_exact_high, sigma, means, z, int(i), int(shift[i]))) for i in open_at}
    for i, h in refined.items():
        high[i] = wrapped(h)
    if not shift.any():
        return high

    def excess(i: int, position: Uniform, threshold: Uniform) -> Ball:
        h, cell, s = Ball.exact(refined.get(i, int(high[i]))), Ball.exact(2 ** int(shift[i])), sigma(i)
        first = cell * h - Ball.exact(0.5) - means.exact(i)
        x, nearest = first + cell * position.ball(), _nearest_zero(first, first + cell)
        return Ball.exact(2) * s * s * threshold.exponential() - (x * x - nearest * nearest)

    return (high << shift) + low_part(bits, bits.words(len(reduced)), shift, ~flat, excess, widen)


def _exact_high(sigma: Callable[[int], Ball], means: Means, z: "Gaussians", i: int, shift: int) -> int:
    x = sigma(i) * z.exact(i) + means.exact(i) + Ball.exact(0.5)
    return (x * Ball.exact(2.0**-shift)).floor()


def _nearest_zero(first: Ball, last: Ball) -> Ball:
    """Return the point of an interval that is nearest 0."""
    if first.is_positive():
        return first
    return Ball.exact(0) if last.is_positive() else last


class Gaussians:
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
            u = self.words.view(np.int64) * 2.0**-63
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

    def pair(self, point: int) -> tuple[Ball, Ball]:
        """Return both values of a point, as precisely as the context allows."""
        return self._point(int(self._columns[point])).gaussians()

    @property
    def words(self) -> np.ndarray:
        """The first words of the points' two coordinates, whose others are drawn when they are needed."""
        return self._words[:, self._columns]

    def _draw_points(self, widen: float) -> None:
        """Draw words of points of the square until enough of them lie in the disc."""
        self._words = np.empty((2, 0), np.uint64)
        self._columns = np.empty(0, np.int64)
        while len(self._columns) < self._half:
            missing = self._half - len(self._columns)
            words = self._bits.words(_words_of_points(missing)).reshape(2, -1)
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


def _words_of_points(count: int) -> int:
    """Return how many words to draw for so many points of the disc.

    4/π points of the square are needed for each; four roots more make a second round a rarity.
    """
    return 2 * (int(1.2733 * count + 4 * math.sqrt(count)) + 8) if count else 0


def tilted(
    bits: Bits,
    scale: np.ndarray | float,
    common: np.ndarray | float,
    form: tuple[int, ...],
    weights: np.ndarray | float = 1.0,
) -> np.ndarray:
    """Return ⌊x_j + w_j y + 1/2⌋ for Gaussians x_j of these scales and one y for each column, of scale ``common``.

    The form is (d,) or (d, R); scales broadcast to it, ``common`` (0 or more) to (R,), ``weights`` to (d,).
    Formal guarantee: exactly rounded, modulo 2^64. Added to an integer vector it is √(Δ'Σ⁻¹Δ)-Gaussian-DP with
    Σ = diag(scale²) + common² w w'.
    """
    if len(form) not in (1, 2):
        raise ValueError(f"shape must be (d,) or (d, columns), got {form}.")
    scales = as_columns(np.broadcast_to(checked_scale(scale), form))
    present = np.asarray(common) != 0
    shared = np.where(present, checked_scale(np.where(present, common, 1), name="common"), 0.0)
    factors = np.array(np.broadcast_to(np.asarray(weights, dtype=float), scales.shape[:1]))
    if not np.all(np.abs(factors) <= 1):
        raise ValueError(f"weights must lie between -1 and 1, got {weights!r}. Scale common up and weights down.")
    return tilted_gaussian(bits, scales, np.broadcast_to(shared, scales.shape[1:]), factors).reshape(form)


def float_gaussian(uniform: Uniforms, shape: object, form: tuple[int, ...]) -> np.ndarray:
    """Return independent standard Gaussians, by inversion in float64: not exact."""
    return ndtri(uniform(form))


def float_ellipsoid(uniform: Uniforms, shape: Ellipsoid, form: tuple[int, ...]) -> np.ndarray:
    """Return Gaussian vectors with the covariance of the ellipsoid."""
    *others, _, columns = form
    z = float_gaussian(uniform, shape, form) * np.array(shape.scales)[:, None]
    z[..., list(shape.hull), :] += shape.common * float_gaussian(uniform, shape, (*others, 1, columns))
    return z


def _spherical(bits: Bits, shape: Spherical, scales: np.ndarray) -> np.ndarray:
    return quick_gaussian(bits, scales.reshape(-1)).reshape(scales.shape)


def quick_gaussian(bits: Bits, sigmas: np.ndarray) -> np.ndarray:
    """Return what ``rounded_gaussian`` does, compiled where numba is there already."""
    if "numba" not in sys.modules:
        return rounded_gaussian(bits, sigmas)
    from epsteps.noise import _compiled

    found = np.empty(len(sigmas), np.int64)
    points = bits.words(_words_of_points((len(sigmas) + 1) // 2)).reshape(2, -1)
    large = len(sigmas) and sigmas.max() >= 2.0**HIGH_BITS
    low = bits.words(len(sigmas) if large else 0)
    if _compiled.gaussian(points, low, sigmas, found):
        return found
    return rounded_gaussian(Again(bits, points, low), sigmas)


def _ellipsoid(bits: Bits, shape: Ellipsoid, scales: np.ndarray) -> np.ndarray:
    """Return noise with the covariance σ²Σ of an ellipsoid; products are rounded up."""
    sigmas = each_column(scales)
    own, common = (np.nextafter(np.multiply.outer(x, sigmas), np.inf) for x in (shape.scales, shape.common))
    weights = np.zeros(shape.d)
    weights[list(shape.hull)] = 1.0
    return tilted(bits, own.reshape(scales.shape), common, scales.shape, weights)


# What noise along an axis is grown by: it covers the rounding of its products, up to the longest axis.
_GROWN = 1 + 2.0**-40


def _elongated(bits: Bits, shape: Elongated, scales: np.ndarray) -> np.ndarray:
    """Return noise of the covariance σ_i σ_j (I + a a')_ij, for a scale σ_i of each coordinate, and a little more.

    Products with the axis are off by less than 2^-51 of themselves: they are those of another axis, â. By the
    inequality of the means (1 + η)(I + â â') is no less than I + a a' where η is 2^-50 times its length, or more.
    """
    grown = as_columns(scales) * _GROWN
    blocks = grown.reshape(shape.outputs, len(shape.axis), -1)
    noise = [_along(bits, np.array(shape.axis), block) for block in blocks]
    return np.concatenate(noise).reshape(scales.shape)


def _along(bits: Bits, axis: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Return the noise of one output, in columns."""
    products = scales * axis[:, None]
    common = np.max(np.abs(products), axis=0)
    columns = [
        tilted(bits, scales[:, [j]], common[j], (len(axis), 1), products[:, j] / common[j]) for j in range(len(common))
    ]
    return np.concatenate(columns, axis=1)


def float_elongated(uniform: Uniforms, shape: Elongated, form: tuple[int, ...]) -> np.ndarray:
    """Return Gaussian vectors with the covariance of the shape."""
    *others, _, columns = form
    z = float_gaussian(uniform, shape, (*others, shape.outputs, len(shape.axis), columns))
    z += np.array(shape.axis)[:, None] * float_gaussian(uniform, shape, (*others, shape.outputs, 1, columns))
    return z.reshape(form)


SAMPLERS[Spherical] = Sampler(_spherical, float_gaussian)
SAMPLERS[Ellipsoid] = Sampler(_ellipsoid, float_ellipsoid)
SAMPLERS[Elongated] = Sampler(_elongated, float_elongated)
