"""Noise of symmetric matrices, for a sum of outer products of records, exactly: Gaussian, and of Wishart matrices."""

from decimal import Decimal, getcontext
from functools import partial

import numpy as np

from epsteps.noise.bits import Bits
from epsteps.noise.gaussian import Gaussians, rounded_gaussian
from epsteps.noise.knorm import WORDS, Tape, gamma
from epsteps.noise.reals import LOG_ULPS, Ball, Undecided, decide
from epsteps.noise.samplers import SAMPLERS, Sampler
from epsteps.problem.shapes import Frobenius, Nuclear

_LARGEST_WISHART = 2.0**60

# The widest floats that processors compute with. Doubles, as which some platforms have them, leave all entries open.
_LONG = np.longdouble
_EPS = float(np.finfo(_LONG).eps)
_IS_LONG = np.finfo(_LONG).nmant in (63, 112)


def wishart_difference(bits: Bits, k: int, scale: float) -> np.ndarray:
    """Return ⌊Z + 1/2⌋ for the entries of Z = W - W' as Python integers; W, W' are Wishart(k + 1, c I), independent.

    W = c L L' for a lower triangle L of independent entries: standard Gaussians below the diagonal, on it the roots of
    chi-squared variables of k + 1, k, ..., 2 degrees of freedom (Bartlett 1933).
    """
    factors = [_Factor(bits, k) for _ in range(2)]
    noise, is_open = _rounded_quickly(factors, scale) if _IS_LONG else (np.zeros((k, k), object), np.ones((k, k), bool))
    rows = np.flatnonzero(is_open.any(axis=1))
    if len(rows):  # entries are known one by one: long doubles tell most, decimals the others
        known = decide(partial(_rounded, factors, scale, rows, is_open[np.ix_(rows, rows)]))
        noise[np.ix_(rows, rows)] = np.where(is_open[np.ix_(rows, rows)], known, noise[np.ix_(rows, rows)])
    return noise


class _Factor:
    """A triangle L, of which the entries are known to any precision."""

    def __init__(self, bits: Bits, k: int) -> None:
        self._k = k
        self._tapes = [Tape(bits, words) for words in bits.words(WORDS * k).reshape(k, WORDS)]
        self._gaussians = Gaussians(bits, k * (k - 1) // 2, 1.0)

    def integers(self, places: int, rows: np.ndarray) -> tuple[np.ndarray, int]:
        """Return these rows of 10^places L, rounded to Python integers, and a bound on their errors."""
        found, error = np.zeros((len(rows), self._k), dtype=object), Decimal(0)
        for place, i in enumerate(rows.tolist()):
            first, last = i * (i - 1) // 2, i * (i + 1) // 2  # the row's Gaussians: two of each point
            points = range(first // 2, (last + 1) // 2)
            below = [entry for point in points for entry in self._gaussians.pair(point)][first % 2 :][:i]
            for j, entry in enumerate([*below, self._root(i)]):
                found[place, j], error = int(entry.midpoint.scaleb(places)), max(error, entry.radius)
        return found, int(error.scaleb(places)) + 2  # both integer parts lose less than 1

    def floats(self) -> tuple[np.ndarray, np.ndarray]:
        """Return L in long doubles, and bounds on the errors of its entries, from the bits that are drawn already.

        Bounds of Gaussians are those of ``Gaussians``, for floats of another width: words are known to 2^-63 as there,
        and are converted without rounding. Near the disc's edge and its middle an entry is left open.
        """
        found, bounds = np.zeros((self._k,) * 2, dtype=_LONG), np.zeros((self._k,) * 2)
        u = self._gaussians.words.view(np.int64).astype(_LONG) * _LONG(2.0**-63)
        with np.errstate(all="ignore"):
            s = u[0] * u[0] + u[1] * u[1]
            log = -np.log(s)
            g = np.sqrt(2 * log / s)
            size = s.astype(float)
            of_z = 0.5 * (4 * _EPS + 2.0**-60 / np.sqrt(size)) * (1 + 1 / log.astype(float)) + (LOG_ULPS + 8) * _EPS
            of_z[~((size > 2.0**-40) & (size < 1 - 2.0**-30))] = np.inf
            z = u * g
            errors = np.abs(z.astype(float)) * of_z + 2.0**-62 * g.astype(float)
        below = np.tril_indices(self._k, -1)
        found[below], bounds[below] = (each.T.ravel()[: len(below[0])] for each in (z, errors))
        roots = decide(lambda: [self._root(i) for i in range(self._k)])
        np.fill_diagonal(found, [_LONG(str(root.midpoint)) for root in roots])
        np.fill_diagonal(bounds, [float(root.radius) + 4 * _EPS * float(root.midpoint) for root in roots])
        return found, bounds

    def _root(self, i: int) -> Ball:
        """Return the root of a chi-squared variable of k + 1 - i degrees of freedom."""
        self._tapes[i].rewind()
        return (Ball.exact(2) * gamma(self._tapes[i], self._k + 1 - i)).sqrt()


@np.errstate(all="ignore")  # where an entry is open, and its error infinite
def _rounded_quickly(factors: list[_Factor], scale: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the integers as long doubles tell them, and which of them their errors leave open.

    With errors of at most e, an entry of L L' is within that of |L| e' + e |L|' + e e', and its sum of k products, in
    whatever order, within (k + 1) eps of that of |L| |L|'. The difference, its product with the scale and the half that
    is added round by eps of their sizes each. A millionth covers the roundings of the bounds.
    """
    total, bound, sizes = 0, 0.0, np.zeros(1)
    for sign, factor in zip((1, -1), factors, strict=True):
        found, errors = factor.floats()
        size = np.abs(found).astype(float)
        crossed = size @ errors.T
        total = total + sign * (found @ found.T)
        bound = bound + crossed + crossed.T + errors @ errors.T
        sizes = sizes + size @ size.T
    middle = total * _LONG(scale) + _LONG(0.5)
    margin = (1 + 1e-6) * (scale * (bound + (len(sizes) + 5) * _EPS * sizes) + 4 * _EPS)
    low, high = np.floor(middle - margin), np.floor(middle + margin)
    is_open = ~((low == high) & (np.abs(low) < 2.0**62))
    is_open |= is_open.T
    return np.where(is_open, 0, low).astype(np.int64).astype(object), is_open


def _rounded(factors: list[_Factor], scale: float, rows: np.ndarray, is_open: np.ndarray) -> np.ndarray:
    """Return the integers of these rows and columns, if those that are open are certain.

    If every entry of L is within e of its integer l, an entry of L L' is within e (sum of |l_i| and |l_j|) + k e² of
    that of l l', summed over the row or the column of l.
    """
    places = getcontext().prec - 3
    (first, e), (second, f) = (factor.integers(places, rows) for factor in factors)
    middle = first.dot(first.T) - second.dot(second.T)
    sizes = e * np.abs(first).sum(axis=1) + f * np.abs(second).sum(axis=1)
    margin = sizes[:, None] + sizes[None, :] + first.shape[1] * (e * e + f * f)
    numerator, denominator = scale.as_integer_ratio()
    unit = denominator * 100**places
    low, high = ((2 * numerator * (middle + sign * margin) + unit) // (2 * unit) for sign in (-1, 1))
    if np.any((low != high) & is_open):
        raise Undecided
    return low


def _nuclear(bits: Bits, shape: Nuclear, scales: np.ndarray) -> np.ndarray:
    """Return the difference of two Wishart matrices; whole integers: int64 where that holds them all, else Python's."""
    scale = _one_scale(scales)
    if scale > _LARGEST_WISHART:
        raise ValueError(f"scale must be at most 2**60, got {scale!r}. Choose coarser units.")
    noise = wishart_difference(bits, shape.k, scale)
    return noise.astype(np.int64) if np.all(np.abs(noise) < 2**63) else noise


def _frobenius(bits: Bits, shape: Frobenius, scales: np.ndarray) -> np.ndarray:
    """Return rounded Gaussians with the standard deviation ``scale`` on the diagonal and ``scale``/√2 off it."""
    scale = _one_scale(scales)
    off = scale * np.sqrt(0.5)
    if shape.lower:
        rows, columns = np.tril_indices(shape.k)
    else:
        rows, columns = np.triu_indices(shape.k)
        off = np.nextafter(off, np.inf)
    noise = np.zeros(shape.array, dtype=np.int64)
    noise[rows, columns] = rounded_gaussian(bits, np.where(rows == columns, scale, off))
    noise[columns, rows] = noise[rows, columns]
    return noise


def _one_scale(scales: np.ndarray) -> float:
    if np.any(scales != scales.flat[0]):
        raise ValueError(f"scale must be one number for noise of a matrix, got {scales!r}.")
    return float(scales.flat[0])


SAMPLERS[Nuclear] = Sampler(_nuclear)
SAMPLERS[Frobenius] = Sampler(_frobenius)
