"""Symmetric matrices made of released numbers: whatever the noise, their eigenvalues are held in a public range.

A matrix with noise may have no inverse, or a negative one. One whose eigenvalues are held between public bounds, which
those of the true matrix keep, always has; and holding them moves it nearer to the true one.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Definite:
    """A matrix by its eigenvalues, and the eigenvectors as columns."""

    values: np.ndarray
    vectors: np.ndarray

    @property
    def matrix(self) -> np.ndarray:
        """The matrix in full."""
        return (self.vectors * self.values) @ self.vectors.T

    @property
    def inverse(self) -> np.ndarray:
        """The inverse in full; finite where no eigenvalue is 0."""
        return (self.vectors / self.values) @ self.vectors.T

    def solved(self, b: np.ndarray) -> np.ndarray:
        """Return the solution of matrix @ x = b; finite where no eigenvalue is 0."""
        return self.vectors @ ((self.vectors.T @ b) / self.values)


def definite(matrix: np.ndarray, least: float, largest: float = np.inf) -> Definite:
    """Return a finite symmetric matrix with its eigenvalues held between these."""
    values, vectors = np.linalg.eigh(matrix)
    return Definite(np.clip(values, least, largest), vectors)


def held(x: np.ndarray, radius: float) -> np.ndarray:
    """Return x, shortened to this length if it is longer."""
    largest = float(np.max(np.abs(x), initial=0.0))
    if largest == 0.0:
        return x
    size = largest * float(np.linalg.norm(x / largest))  # of large numbers, too, without overflow
    return x if size <= radius else x / largest * (largest * (radius / size))
