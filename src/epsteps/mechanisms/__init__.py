"""Noise mechanisms: what a step of noise costs, in which unit, and how a total of that unit is best split over steps.

Costs of one mechanism add up over the steps: epsilons for Laplace noise, rhos of concentrated privacy for Gaussian
noise. What the sum means is the budget's business.
"""

from typing import Protocol

import numpy as np

from epsteps.bounds import Prediction
from epsteps.mechanisms.gaussian import Gaussian
from epsteps.mechanisms.laplace import Laplace
from epsteps.sampling import Sampling


class Mechanism(Protocol):
    """What planning asks of a mechanism. ``sensitivity`` is one record's, in the mechanism's norm."""

    @property
    def name(self) -> str:
        """Name, which also selects the sampler."""
        ...

    @property
    def norm(self) -> float:
        """Norm in which the sensitivity is needed."""
        ...

    @property
    def unit(self) -> str:
        """What costs are counted in: "epsilon" or "rho"."""
        ...

    def costs(self, sensitivity: float, scales: np.ndarray, sampling: Sampling) -> np.ndarray:
        """Return the costs of steps with noise of these scales on a mean of the sampled gradients."""
        ...

    def scales(self, sensitivity: float, costs: np.ndarray, sampling: Sampling) -> np.ndarray:
        """Return the scales at which steps have these costs."""
        ...

    def half_power(self, scales: np.ndarray, d: int) -> np.ndarray:
        """Return half of E|w|² in d dimensions."""
        ...

    def split(self, weights: np.ndarray, total: float, sampling: Sampling) -> np.ndarray:
        """Return the costs with this total that make ``sum weights_t half_power_t`` smallest."""
        ...

    def noise_by_horizon(self, prediction: Prediction, total: float, allocation: str, sampling: Sampling) -> np.ndarray:
        """Return ``sum weights_t half_power_t`` after T steps, for every T; sensitivity 1 and one dimension."""
        ...


def named(name: str) -> Mechanism:
    """Return the mechanism of this name."""
    return {"laplace": Laplace(), "gaussian": Gaussian()}[name]


NAMES = ("laplace", "gaussian")

__all__ = ["NAMES", "Gaussian", "Laplace", "Mechanism", "named"]
