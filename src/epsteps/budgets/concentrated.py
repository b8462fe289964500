"""Zero-concentrated differential privacy: rhos add over the steps (Bun, Steinke 2016)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from epsteps.bounds import Prediction
from epsteps.budgets import additive
from epsteps.budgets.mechanisms import Gaussian, Mechanism
from epsteps.problem import validate
from epsteps.problem.sampling import Sampling


@dataclass(frozen=True)
class Concentrated:
    """A budget of rho-zero-concentrated differential privacy, spent through Gaussian noise.

    The noise variance of a step falls as 1/rho_t, so that the best split of steps with error weights a_t is
    rho_t ~ a_t^(1/2).

    >>> Concentrated(0.5).split([1.0, 4.0, 4.0])
    array([0.1, 0.2, 0.2])
    """

    rho: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "rho", validate.positive("rho", self.rho))

    def __str__(self) -> str:
        return f"rho = {self.rho:g} (zero-concentrated)"

    @property
    def amount(self) -> float:
        """Return rho."""
        return self.rho

    @property
    def delta(self) -> float:
        """Return 0: nothing is left to chance."""
        return 0.0

    def unit(self, sampling: Sampling) -> str:
        """Return "rho"."""
        return "rho"

    def split(self, weights: np.ndarray) -> np.ndarray:
        """Return the rhos, one per step, that make ``sum weights_t variance_t`` smallest."""
        return Gaussian().split(weights, self.rho, additive.FULL)

    def allocate(
        self, weights: np.ndarray | None, T: int, mechanism: Mechanism, sampling: Sampling, reserved: float = 0.0
    ) -> np.ndarray:
        """Return the rhos of T steps."""
        additive.require_unit(self, mechanism, "rho", "mechanism='auto', or an Approximate budget")
        return additive.allocate(self.rho - reserved, weights, T, mechanism, sampling)

    def noise_by_horizon(
        self, prediction: Prediction, allocation: str, mechanism: Mechanism, sampling: Sampling, reserved: float = 0.0
    ) -> np.ndarray:
        """Return the noise of the split, for every number of steps."""
        return additive.noise_by_horizon(self.rho - reserved, prediction, allocation, mechanism, sampling)

    def spending(
        self, costs: np.ndarray, mechanism: Mechanism, expenses: Sequence[float] | np.ndarray = ()
    ) -> "Concentrated":
        """Return the sum of the rhos, rounded up. It holds for steps that were planned after the expenses, too."""
        additive.require_unit(self, mechanism, "rho", "mechanism='auto', or an Approximate budget")
        return Concentrated(additive.total(np.concatenate([expenses, costs])))
