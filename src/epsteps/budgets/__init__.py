"""Privacy budgets: what a run may spend, and what steps of noise cost together.

Every guarantee is for neighbours that differ in one replaced record.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from epsteps.bounds import Prediction
from epsteps.budgets.approximate import Approximate
from epsteps.budgets.concentrated import Concentrated
from epsteps.budgets.conversions import gaussian_delta, gaussian_mu, zcdp_epsilon, zcdp_rho
from epsteps.budgets.expense import Expense
from epsteps.budgets.mechanisms import Mechanism
from epsteps.budgets.pure import Pure, base_epsilon, epsilon_of, required_scale
from epsteps.problem.sampling import Sampling


class Budget(Protocol):
    """What planning asks of a budget. Costs are in the mechanism's unit, amounts in the budget's own."""

    @property
    def amount(self) -> float:
        """What may be spent: epsilon or rho."""
        ...

    @property
    def delta(self) -> float:
        """The chance with which nothing is promised; 0 where there is none."""
        ...

    def unit(self, sampling: Sampling) -> str:
        """Return the unit of the costs that this budget is best spent in: "epsilon" or "rho"."""
        ...

    def allocate(
        self, weights: np.ndarray | None, T: int, mechanism: Mechanism, sampling: Sampling, reserved: float = 0.0
    ) -> np.ndarray:
        """Return the costs of T steps: best for these error weights, or even ones if None; less what is reserved."""
        ...

    def noise_by_horizon(
        self, prediction: Prediction, allocation: str, mechanism: Mechanism, sampling: Sampling, reserved: float = 0.0
    ) -> np.ndarray:
        """Return ``sum weights_t scale_t²`` after T steps, for every T; sensitivity 1."""
        ...

    def spending(
        self, costs: np.ndarray, mechanism: Mechanism, expenses: Sequence[float] | np.ndarray = ()
    ) -> "Budget":
        """Return what these costs amount to together, rounded up, as a budget of the same kind.

        ``expenses`` are costs of releases that the others may have been planned by.
        """
        ...


__all__ = [
    "Approximate",
    "Budget",
    "Concentrated",
    "Expense",
    "Pure",
    "base_epsilon",
    "epsilon_of",
    "gaussian_delta",
    "gaussian_mu",
    "required_scale",
    "zcdp_epsilon",
    "zcdp_rho",
]
