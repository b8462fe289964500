"""What intervals are computed from: published and public numbers alone, and the known laws of the noise in them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import Generator
from scipy import stats

# Draws of the tilt of a mean's gradient, one in each row, from a generator whose seed is public.
Tilts = Callable[[Generator, int], np.ndarray]


@dataclass(frozen=True, eq=False)
class Released:
    """Published and public numbers, and draws of the noise in them.

    Draws are made with a generator whose seed is public, which is handed over: they are no protection, and never come
    from the source that protects.

    Parameters
    ----------
    x : (D,) array
        The published model.
    n : int
        Number of records.
    ridge : float
        Of the objective that was minimised: the plan's.
    tilts : function of a generator and a count
        Draws of b/n, the tilt of the mean: (count, D).
    output_scale : float
        Scale t of the noise on the output, whose density is proportional to exp(-|z|_2/t).
    slack : float
        How far from the minimum the solver may have stopped.
    likelihood : bool
        Whether the loss is minus a log-likelihood, so that its slopes have the covariance H - ridge if the model holds.
    T : (D, k) array, optional
        H(x) >= T A T' + ridge at the published x, A being the mean of the records' a a'. It is no equation where
        records were shortened, or count as 0. None where no curvature was bought.
    matrix : (k, k) array, optional
        A with its noise.
    noise : "wishart" or "gaussian"
        Law of that noise: the difference of two Wishart matrices of k + 1 degrees of freedom, times ``scale``; or
        independent Gaussian entries of deviation ``scale`` on the diagonal, and scale/√2 off it.
    scale : float
        Of the noise in the mean.
    dispersion : (float, float), optional
        A released phi, such that slopes have the covariance phi (H - ridge), and the scale of its Laplace noise
        (deviation of its Gaussian noise, if ``noise`` is "gaussian").
    """

    x: np.ndarray
    n: int
    ridge: float
    tilts: Tilts
    output_scale: float
    slack: float
    likelihood: bool
    T: np.ndarray | None = None
    matrix: np.ndarray | None = None
    noise: str = "wishart"
    scale: float = 0.0
    dispersion: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        if self.noise not in ("wishart", "gaussian"):
            raise ValueError(f"noise must be 'wishart' or 'gaussian', got {self.noise!r}.")
        if not (self.ridge > 0 and self.n > 0):
            raise ValueError(f"ridge and n must be positive, got {self.ridge!r} and {self.n!r}.")
        if self.matrix is None or self.T is None:
            return
        k = len(self.matrix)
        if self.matrix.shape != (k, k) or self.T.shape != (self.dimension, k):
            raise ValueError(
                f"T {self.T.shape} and matrix {self.matrix.shape} do not fit {self.dimension} coefficients."
            )
        if not (np.all(np.isfinite(self.matrix)) and np.all(np.isfinite(self.T)) and 0 < self.scale < np.inf):
            raise ValueError("matrix, T and scale must be finite, and scale positive.")

    @property
    def dimension(self) -> int:
        """Number of coefficients."""
        return len(self.x)

    @property
    def has_sampling(self) -> bool:
        """Whether it is known how far the sample's minimum is from the population's."""
        return self.likelihood or self.dispersion is not None

    def matrices(self, generator: Generator, count: int) -> np.ndarray:
        """Return draws of the noise in the matrix."""
        k = 0 if self.matrix is None else len(self.matrix)
        if self.noise == "gaussian":
            whole = self.scale * generator.standard_normal((count, k, k))
            upper = np.triu(whole, 1) / np.sqrt(2)
            return upper + upper.transpose(0, 2, 1) + whole * np.eye(k)
        first, second = generator.standard_normal((2, count, k + 1, k))
        return self.scale * (first.transpose(0, 2, 1) @ first - second.transpose(0, 2, 1) @ second)

    def along(self, generator: Generator, count: int) -> np.ndarray:
        """Return draws of v'Ev, E the noise in the matrix and v a vector of length 1: all have the same law."""
        k = 0 if self.matrix is None else len(self.matrix)
        if self.noise == "gaussian":
            return self.scale * generator.standard_normal(count)
        first, second = generator.chisquare(k + 1, (2, count))
        return self.scale * (first - second)

    def outputs(self, generator: Generator, count: int) -> np.ndarray:
        """Return draws of the noise on the output: a Gamma(D) radius times a uniform direction."""
        directions = generator.standard_normal((count, self.dimension))
        radii = self.output_scale * generator.gamma(self.dimension, size=count)
        return directions * (radii / np.linalg.norm(directions, axis=1))[:, None]

    def dispersions(self, generator: Generator, count: int) -> np.ndarray:
        """Return what phi may be: the released number less its noise, given that this is positive; or 1."""
        if self.dispersion is None:
            return np.ones(count)
        law = self._dispersion_law
        return law.isf(generator.random(count) * law.sf(0.0))

    def most_dispersion(self, beta: float) -> float:
        """Return what phi exceeds with a probability of at most beta; or 1."""
        return 1.0 if self.dispersion is None else max(float(self._dispersion_law.isf(beta)), 0.0)

    @property
    def _dispersion_law(self) -> Any:
        """The law of the released phi less its noise."""
        return (stats.norm if self.noise == "gaussian" else stats.laplace)(*(self.dispersion or (1.0, 0.0)))
