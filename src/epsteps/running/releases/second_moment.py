"""The second moment of whitened records, released with noise of a matrix: integers in a ball, exactly."""

from dataclasses import dataclass

import numpy as np

from epsteps.budgets.mechanisms import Gaussian
from epsteps.data.rows import Rows
from epsteps.methods.designs import MATRIX_ROWS, MATRIX_STEPS, Whitening
from epsteps.noise import Source
from epsteps.problem.domain import Ball

STEPS = MATRIX_STEPS
# A scale in integers is rounded up by this much, far above its rounding error.
_OUTWARD = 1 + 1e-12


@dataclass(frozen=True, eq=False)
class SecondMomentRelease:
    """The mean of a a' over whitened records a with their constant coordinate, to be released with integer noise.

    Formal guarantee: every a is an integer vector of norm at most 2^16, so that replacing one moves the sum by at most
    2^33 in the nuclear norm and √2 2^32 in Frobenius'. The noise is exact: a difference of two Wishart matrices, whose
    density changes by at most the nuclear norm over 2c (``Source.wishart_difference``), costs epsilon with
    c = 2^32/epsilon; a Gaussian matrix costs rho with a standard deviation of 2^32/√rho on the diagonal and √2 times
    less off it, which is Frobenius' geometry.
    """

    whitening: Whitening
    unit: str
    n: int
    cost: float

    @property
    def k(self) -> int:
        """Number of rows of the matrix."""
        return len(self.whitening.columns) + 1

    def noise(self, source: Source) -> np.ndarray:
        """Draw what is added, in integers. Sees no records."""
        if self.unit == "epsilon":
            return source.wishart_difference(self.k, STEPS**2 / self.cost * _OUTWARD)
        lower = np.tril_indices(self.k)
        scales = np.where(lower[0] == lower[1], 1.0, np.sqrt(0.5)) * (STEPS**2 / np.sqrt(self.cost) * _OUTWARD)
        found = np.zeros((self.k, self.k), dtype=np.int64)
        found[lower] = source.integers(Gaussian(), scales, scales.shape)
        return found + np.tril(found, -1).T

    def sums(self, data: Rows) -> np.ndarray:
        """Return the sum over the records, UNPROTECTED, in integers: the one place that reads them."""
        kind = np.int64 if self.n <= MATRIX_ROWS else object
        total = np.zeros((self.k, self.k), dtype=kind)
        for features, _ in data.blocks():
            a = self.encode(features)
            total += (a.T @ a).astype(np.int64).astype(kind)
        return total

    @np.errstate(all="ignore")  # a warning would tell something about a record
    def encode(self, features: np.ndarray) -> np.ndarray:
        """Return each whitened record in integers, which are floats, of norm at most 2^16, exactly."""
        whitening = self.whitening
        a = np.full((len(features), self.k), whitening.constant)
        a[:, :-1] = (features[:, whitening.columns] - whitening.mean) * whitening.weights
        a[:, :-1] *= np.minimum(1.0, np.sqrt(whitening.length / np.sum(a[:, :-1] ** 2, axis=1)))[:, None]
        return Ball(np.sqrt(whitening.whole)).integers(a, STEPS)

    def published(self, sums: np.ndarray, noise: np.ndarray) -> np.ndarray:
        """Return the released mean in real units."""
        return (sums + noise).astype(float) * (self.whitening.whole / (STEPS**2 * self.n))
