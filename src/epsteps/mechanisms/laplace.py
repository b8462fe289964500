"""Laplace noise: pure epsilon per step, amplified by sampling."""

from dataclasses import dataclass, field

import numpy as np

from epsteps.bounds import Prediction
from epsteps.mechanisms import subsampled
from epsteps.mechanisms.weights import checked_weights
from epsteps.sampling import Sampling


@dataclass(frozen=True)
class Laplace:
    """Independent Laplace noise of density ``exp(-|w|/b)/(2b)`` on each coordinate: variance 2b².

    Formal guarantee: added to a value of L1 sensitivity s it has privacy loss at most s/b (Dwork et al. 2006), and on
    the mean of a secret sample the amplified loss of ``Sampling``. The paper's published code draws scale b/√2 instead,
    and so spends √2 times its epsilon or more. The variance falls as 1/epsilon², so that full-batch steps with error
    weights a_t are best given epsilon_t ~ a_t^(1/3).
    """

    name: str = field(default="laplace", init=False)
    norm: float = field(default=1, init=False)
    unit: str = field(default="epsilon", init=False)

    def costs(self, sensitivity: float, scales: np.ndarray, sampling: Sampling) -> np.ndarray:
        """Return the epsilon of each step."""
        return sampling.amplified_epsilon(sensitivity / (sampling.m * np.asarray(scales, dtype=float)))

    def scales(self, sensitivity: float, costs: np.ndarray, sampling: Sampling) -> np.ndarray:
        """Return the scale b at which each step has its epsilon."""
        return sensitivity / (sampling.m * sampling.base_epsilon(costs))

    def half_power(self, scales: np.ndarray, d: int) -> np.ndarray:
        """Return d b²."""
        return d * np.asarray(scales, dtype=float) ** 2

    def split(self, weights: np.ndarray, total: float, sampling: Sampling) -> np.ndarray:
        """Return the best epsilons: in closed form for full batches, by the convex dual when records are sampled."""
        weights = checked_weights(weights)
        if sampling.is_full:
            shares = np.cbrt(weights / weights.max())
            return total * shares / shares.sum()
        return subsampled.split(weights, total, sampling)

    def noise_by_horizon(self, prediction: Prediction, total: float, allocation: str, sampling: Sampling) -> np.ndarray:
        """Return ``sum weights_t b_t²`` after T steps, for every T; sensitivity 1."""
        if allocation == "uniform":
            T = np.arange(1, len(prediction) + 1)
            noise = prediction.weight_sums(1.0) / sampling.base_epsilon(total / T) ** 2
        elif sampling.is_full:
            noise = prediction.weight_sums(1 / 3) ** 3 / total**2
        else:
            noise = subsampled.noise_by_horizon(prediction, total, sampling)
        return noise / sampling.m**2
