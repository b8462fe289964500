"""What budgets share whose costs simply add up to their amount."""

import math

import numpy as np

from epsteps.bounds import Prediction
from epsteps.budgets.mechanisms import Mechanism
from epsteps.problem.sampling import Sampling

# Totals are rounded up by this much, far above the rounding error of the sums and logarithms in them.
_OUTWARD = 1 + 1e-13

FULL = Sampling(1, 1)


def total(costs: np.ndarray) -> float:
    """Return the sum of the costs, rounded up."""
    return math.fsum(np.asarray(costs, dtype=float)) * _OUTWARD


def allocate(
    available: float, weights: np.ndarray | None, T: int, mechanism: Mechanism, sampling: Sampling
) -> np.ndarray:
    """Split what is available over T steps: best for these weights, or evenly."""
    if available <= 0:
        raise ValueError(f"nothing is left for the steps: the expenses leave {mechanism.unit} = {available:.6g}.")
    return np.full(T, available / T) if weights is None else mechanism.split(weights, available, sampling)


def noise_by_horizon(
    available: float, prediction: Prediction, allocation: str, mechanism: Mechanism, sampling: Sampling
) -> np.ndarray:
    """Return the noise of the split of what is available, for every number of steps."""
    if available <= 0:
        raise ValueError(f"nothing is left for the steps: the expenses leave {mechanism.unit} = {available:.6g}.")
    return mechanism.noise_by_horizon(prediction, available, allocation, sampling)


def require_unit(budget: object, mechanism: Mechanism, unit: str, remedy: str) -> None:
    """Refuse a mechanism whose costs are not in the budget's unit."""
    if mechanism.unit != unit:
        raise ValueError(f"{budget} does not cover {mechanism.name} noise. Use {remedy}.")


def sampling_of(n: int | None, m: int | None) -> Sampling:
    """Return the sampling of m of n records; all of them when neither is given."""
    if (n is None) != (m is None):
        raise ValueError(f"n and m go together: got n={n!r}, m={m!r}.")
    return FULL if n is None or m is None else Sampling(n, m)
