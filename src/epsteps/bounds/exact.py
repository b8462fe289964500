"""The exact error on an assumed quadratic, in the form that planning reads."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from epsteps.bounds.quadratic import exact_by_horizon, exact_quadratic
from epsteps.bounds.steps import Steps


@dataclass(frozen=True, eq=False)
class ExactError:
    """E F(x_T) - F* on quadratics with this spectrum, for a start whose gap has these shares along the eigenvectors.

    No bound but the error itself where the assumption holds; for other objectives a prediction, which has been closer
    to the truth than the theorems. Privacy never depends on it. A spectrum of k eigenvalues stands for any number of
    dimensions: noise power is spread evenly over it, and so is the gap of the start unless
    ``start_shares`` tell otherwise.
    """

    steps: Steps
    spectrum: np.ndarray
    start_shares: np.ndarray | None = None

    def __post_init__(self) -> None:
        spectrum = np.array(self.spectrum, dtype=float)
        if spectrum.ndim != 1 or len(spectrum) == 0 or not np.all(np.isfinite(spectrum)) or np.any(spectrum <= 0):
            raise ValueError("spectrum must be a sequence of positive eigenvalues.")
        object.__setattr__(self, "spectrum", spectrum)

    @cached_property
    def _shares(self) -> np.ndarray:
        shares = np.array(np.ones_like(self.spectrum) if self.start_shares is None else self.start_shares, dtype=float)
        valid = shares.shape == self.spectrum.shape and np.all(np.isfinite(shares)) and np.all(shares >= 0)
        if not valid or not shares.any():
            raise ValueError(f"start_shares must be {len(self.spectrum)} numbers, one per eigenvalue, none negative.")
        return shares / shares.sum()

    def __len__(self) -> int:
        return len(self.steps)

    @cached_property
    def _by_horizon(self) -> tuple[np.ndarray, np.ndarray]:
        transfers, weights = exact_by_horizon(self.steps, self.spectrum)
        return transfers**2 @ self._shares, weights / len(self.spectrum)

    @cached_property
    def _final(self) -> tuple[float, np.ndarray]:
        transfer, weights = exact_quadratic(self.steps, self.spectrum)
        return float(transfer**2 @ self._shares), weights / len(self.spectrum)

    @property
    def weights(self) -> np.ndarray:
        """What multiplies each step's half noise power after all steps."""
        return self._final[1]

    def error(self, start_gap: float, power: np.ndarray | float) -> float:
        """Return the error after all steps."""
        return float(self._final[0] * start_gap + np.sum(self.weights * power))

    def start_errors(self, start_gap: float) -> np.ndarray:
        """Return what is left of the start after T steps, for every T."""
        return self._by_horizon[0] * start_gap

    def weight_sums(self, exponent: float) -> np.ndarray:
        """Return ``sum_t weights_{T,t}**exponent``, for every T."""
        return np.sum(self._by_horizon[1] ** exponent, axis=1)

    def log_weight_rows(self) -> Iterator[np.ndarray]:
        """Yield the logarithms of the T weights, for T = 1, 2, ..."""
        for T, row in enumerate(self._by_horizon[1], start=1):
            yield np.log(np.maximum(row[:T], np.finfo(float).tiny))
