"""Gaussian noise: zero-concentrated privacy per step, over all records."""

from dataclasses import dataclass, field

import numpy as np

from epsteps.bounds import Prediction
from epsteps.mechanisms.weights import checked_weights
from epsteps.sampling import Sampling


@dataclass(frozen=True)
class Gaussian:
    """Independent Gaussian noise of standard deviation σ on each coordinate.

    Formal guarantee: added to a value of L2 sensitivity s it is ρ-zCDP with ρ = s²/(2σ²) (Bun, Steinke 2016), and
    composed steps are exactly √(2 sum ρ)-Gaussian-DP (Dong, Roth, Su 2022). The variance falls as 1/ρ, so that steps
    with error weights a_t are best given ρ_t ~ a_t^(1/2). Sampling is refused: no closed form is known for samples of
    fixed size.
    """

    name: str = field(default="gaussian", init=False)
    norm: float = field(default=2, init=False)
    unit: str = field(default="rho", init=False)

    def costs(self, sensitivity: float, scales: np.ndarray, sampling: Sampling) -> np.ndarray:
        """Return the rho of each step."""
        self._require_full(sampling)
        return 0.5 * (sensitivity / (sampling.m * np.asarray(scales, dtype=float))) ** 2

    def scales(self, sensitivity: float, costs: np.ndarray, sampling: Sampling) -> np.ndarray:
        """Return the standard deviation at which each step has its rho."""
        self._require_full(sampling)
        return sensitivity / (sampling.m * np.sqrt(2 * np.asarray(costs, dtype=float)))

    def half_power(self, scales: np.ndarray, d: int) -> np.ndarray:
        """Return d σ²/2."""
        return 0.5 * d * np.asarray(scales, dtype=float) ** 2

    def split(self, weights: np.ndarray, total: float, sampling: Sampling) -> np.ndarray:
        """Return the best rhos, proportional to √weights."""
        weights = checked_weights(weights)
        self._require_full(sampling)
        shares = np.sqrt(weights / weights.max())
        return total * shares / shares.sum()

    def noise_by_horizon(self, prediction: Prediction, total: float, allocation: str, sampling: Sampling) -> np.ndarray:
        """Return ``sum weights_t σ_t²/2`` after T steps, for every T; sensitivity 1."""
        self._require_full(sampling)
        if allocation == "uniform":
            noise = prediction.weight_sums(1.0) * np.arange(1, len(prediction) + 1)
        else:
            noise = prediction.weight_sums(1 / 2) ** 2
        return noise / (4 * total * sampling.m**2)

    @staticmethod
    def _require_full(sampling: Sampling) -> None:
        if not sampling.is_full:
            raise ValueError(
                f"Gaussian noise reads all n={sampling.n} records, got batch={sampling.m}: its amplification by "
                "sampling without replacement is not accounted for. Use batch=None, or mechanism='laplace'."
            )
