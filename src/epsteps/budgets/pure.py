"""Pure epsilon-differential privacy: epsilons add over the steps (adaptive basic composition)."""

import math
from dataclasses import dataclass

import numpy as np

from epsteps import _validate
from epsteps.bounds import Bound
from epsteps.budgets import subsampled
from epsteps.sampling import Sampling

# Totals are rounded up by this much, far above the rounding error of the sums and logarithms in them.
_OUTWARD = 1 + 1e-13


@dataclass(frozen=True)
class Pure:
    """A budget of pure epsilon-differential privacy for replace-one neighbours.

    Noise of scale S/(m u) on a mean of m gradients, each of sensitivity S, has base loss u, and its variance falls
    as 1/u². So the best split of full-batch steps with error weights a_t is epsilon_t ~ a_t^(1/3).

    >>> Pure(1.0).split([1.0, 8.0, 27.0])
    array([0.16666667, 0.33333333, 0.5       ])
    """

    epsilon: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", _validate.positive("epsilon", self.epsilon))

    def split(self, weights: np.ndarray, n: int | None = None, m: int | None = None) -> np.ndarray:
        """Return the epsilons, one per step, that make ``sum weights_t scale_t²`` smallest.

        Exact: in closed form for full batches, by the convex dual when each step samples m of n records. A
        vanishing weight counts as 1e-36 of the largest, so that every step gets some epsilon.
        """
        weights = _checked_weights(weights)
        sampling = _sampling(n, m)
        if sampling is None or sampling.is_full:
            shares = np.cbrt(weights / weights.max())
            return self.epsilon * shares / shares.sum()
        return subsampled.split(weights, self.epsilon, sampling)

    def split_evenly(self, T: int) -> np.ndarray:
        """Return the same epsilon for each of T steps."""
        return np.full(_validate.integer("T", T), self.epsilon / T)

    def total(self, costs: np.ndarray) -> float:
        """Return what steps of these epsilons cost together, rounded up."""
        return math.fsum(np.asarray(costs, dtype=float)) * _OUTWARD

    def covers(self, costs: np.ndarray) -> bool:
        """Whether the budget is enough for steps of these epsilons."""
        return self.total(costs) <= self.epsilon

    def noise_by_horizon(self, bound: Bound, allocation: str, sampling: Sampling) -> np.ndarray:
        """Return ``sum_t weights_t / u_t²`` of the first T steps under the split, for every T at once."""
        if allocation == "uniform":
            T = np.arange(1, len(bound.gain) + 1)
            return bound.weight_sums(1.0) / sampling.base_epsilon(self.epsilon / T) ** 2
        if sampling.is_full:
            return bound.weight_sums(1 / 3) ** 3 / self.epsilon**2
        return subsampled.noise_by_horizon(bound, self.epsilon, sampling)


def epsilon_of(sensitivity: float, scale: float, n: int, m: int) -> float:
    """Return the epsilon of one step: m of n gradients of this sensitivity averaged, noise of this scale.

    >>> round(epsilon_of(40, 0.0575, n=100_000, m=1000), 9)
    0.009999996
    """
    base = _validate.positive("sensitivity", sensitivity) / (m * _validate.positive("scale", scale))
    return float(Sampling(n, m).amplified_epsilon(base))


def base_epsilon(epsilon: float, n: int, m: int) -> float:
    """Return the loss on its subset that a step may have if it is to cost ``epsilon``."""
    return float(Sampling(n, m).base_epsilon(_validate.positive("epsilon", epsilon)))


def required_scale(sensitivity: float, epsilon: float, n: int, m: int) -> float:
    """Return the Laplace scale with which one step costs ``epsilon``."""
    return _validate.positive("sensitivity", sensitivity) / (m * base_epsilon(epsilon, n, m))


def _checked_weights(weights: np.ndarray) -> np.ndarray:
    weights = np.asarray(weights, dtype=float)
    if weights.ndim != 1 or len(weights) == 0:
        raise ValueError(f"weights must be a sequence with one entry per step, got shape {weights.shape}.")
    if not (np.all(np.isfinite(weights)) and np.all(weights >= 0) and weights.max() > 0):
        raise ValueError("weights must be finite, not negative and not all zero.")
    return np.maximum(weights, 1e-36 * weights.max())


def _sampling(n: int | None, m: int | None) -> Sampling | None:
    if (n is None) != (m is None):
        raise ValueError(f"n and m go together: got n={n!r}, m={m!r}.")
    return None if n is None or m is None else Sampling(n, m)
