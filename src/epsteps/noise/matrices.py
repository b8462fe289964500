"""Noise of symmetric matrices, for a sum of outer products of records, exactly: Gaussian, and of Wishart matrices."""

from decimal import Decimal, getcontext
from functools import partial
from itertools import chain

import numpy as np

from epsteps.noise.bits import Bits
from epsteps.noise.gaussian import Gaussians, rounded_gaussian
from epsteps.noise.knorm import WORDS, Tape, gamma
from epsteps.noise.reals import Ball, Undecided, decide
from epsteps.noise.samplers import SAMPLERS, Sampler
from epsteps.problem.shapes import Frobenius, Nuclear

_LARGEST_WISHART = 2.0**60


def wishart_difference(bits: Bits, k: int, scale: float) -> np.ndarray:
    """Return ⌊Z + 1/2⌋ for the entries of Z = W - W' as Python integers; W, W' are Wishart(k + 1, c I), independent.

    W = c L L' for a lower triangle L of independent entries: standard Gaussians below the diagonal, on it the roots of
    chi-squared variables of k + 1, k, ..., 2 degrees of freedom (Bartlett 1933).
    """
    factors = [_Factor(bits, k) for _ in range(2)]
    return decide(partial(_rounded, factors, scale))


class _Factor:
    """A triangle L, of which the entries are known to any precision."""

    def __init__(self, bits: Bits, k: int) -> None:
        self._k = k
        self._tapes = [Tape(bits, words) for words in bits.words(WORDS * k).reshape(k, WORDS)]
        self._gaussians = Gaussians(bits, k * (k - 1) // 2, 1.0)

    def integers(self, places: int) -> tuple[np.ndarray, int]:
        """Return 10^places L, rounded to Python integers, and a bound on their errors."""
        below = chain.from_iterable(self._gaussians.pairs())
        found = np.zeros((self._k, self._k), dtype=object)
        error = Decimal(0)
        for i in range(self._k):
            for j in range(i + 1):
                entry = next(below) if j < i else self._root(i)
                found[i, j], error = int(entry.midpoint.scaleb(places)), max(error, entry.radius)
        return found, int(error.scaleb(places)) + 2  # both integer parts lose less than 1

    def _root(self, i: int) -> Ball:
        """Return the root of a chi-squared variable of k + 1 - i degrees of freedom."""
        self._tapes[i].rewind()
        return (Ball.exact(2) * gamma(self._tapes[i], self._k + 1 - i)).sqrt()


def _rounded(factors: list[_Factor], scale: float) -> np.ndarray:
    """Return the integers, if they are certain.

    If every entry of L is within e of its integer l, an entry of L L' is within e (sum of |l_i| and |l_j|) + k e² of
    that of l l', summed over the row or the column of l.
    """
    places = getcontext().prec - 3
    (first, e), (second, f) = (factor.integers(places) for factor in factors)
    middle = first.dot(first.T) - second.dot(second.T)
    rows = e * np.abs(first).sum(axis=1) + f * np.abs(second).sum(axis=1)
    margin = rows[:, None] + rows[None, :] + len(first) * (e * e + f * f)
    numerator, denominator = scale.as_integer_ratio()
    unit = denominator * 100**places
    low, high = ((2 * numerator * (middle + sign * margin) + unit) // (2 * unit) for sign in (-1, 1))
    if np.any(low != high):
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
