"""Pure epsilon-differential privacy: epsilons add over the steps (adaptive basic composition)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from epsteps.bounds import Prediction
from epsteps.budgets import additive
from epsteps.budgets.mechanisms import KNorm, Mechanism
from epsteps.problem import validate
from epsteps.problem.sampling import Sampling

LAPLACE = KNorm("laplace")


@dataclass(frozen=True)
class Pure:
    """A budget of pure epsilon-differential privacy, spent through noise of a norm, such as Laplace noise.

    The noise variance of a step falls as 1/epsilon_t², so that the best split of full-batch steps with error weights
    a_t is epsilon_t ~ a_t^(1/3).

    >>> Pure(1.0).split([1.0, 8.0, 27.0])
    array([0.16666667, 0.33333333, 0.5       ])
    """

    epsilon: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", validate.positive("epsilon", self.epsilon))

    def __str__(self) -> str:
        return f"pure epsilon = {self.epsilon:g}"

    @property
    def amount(self) -> float:
        """Return epsilon."""
        return self.epsilon

    @property
    def delta(self) -> float:
        """Return 0: nothing is left to chance."""
        return 0.0

    def unit(self, sampling: Sampling) -> str:
        """Return "epsilon"."""
        return "epsilon"

    def split(self, weights: np.ndarray, n: int | None = None, m: int | None = None) -> np.ndarray:
        """Return the epsilons, one per step, that make ``sum weights_t scale_t²`` smallest.

        Exact: in closed form for full batches, by the convex dual when each step samples m of n records.
        """
        return LAPLACE.split(weights, self.epsilon, additive.sampling_of(n, m))

    def allocate(
        self, weights: np.ndarray | None, T: int, mechanism: Mechanism, sampling: Sampling, reserved: float = 0.0
    ) -> np.ndarray:
        """Return the epsilons of T steps."""
        additive.require_unit(self, mechanism, "epsilon", "mechanism='auto', or an Approximate budget")
        return additive.allocate(self.epsilon - reserved, weights, T, mechanism, sampling)

    def noise_by_horizon(
        self, prediction: Prediction, allocation: str, mechanism: Mechanism, sampling: Sampling, reserved: float = 0.0
    ) -> np.ndarray:
        """Return the noise of the split, for every number of steps."""
        return additive.noise_by_horizon(self.epsilon - reserved, prediction, allocation, mechanism, sampling)

    def spending(self, costs: np.ndarray, mechanism: Mechanism, expenses: Sequence[float] | np.ndarray = ()) -> "Pure":
        """Return the sum of the epsilons, rounded up. It holds for steps that were planned after the expenses, too."""
        additive.require_unit(self, mechanism, "epsilon", "mechanism='auto', or an Approximate budget")
        return Pure(additive.total(np.concatenate([expenses, costs])))


def epsilon_of(sensitivity: float, scale: float, n: int, m: int) -> float:
    """Return the epsilon of one step: m of n gradients of this sensitivity averaged, noise of this scale.

    >>> round(epsilon_of(40, 0.0575, n=100_000, m=1000), 9)
    0.009999996
    """
    validate.positive("sensitivity", sensitivity)
    validate.positive("scale", scale)
    return float(LAPLACE.costs(sensitivity, np.array(scale), Sampling(n, m)))


def base_epsilon(epsilon: float, n: int, m: int) -> float:
    """Return the loss on its subset that a step may have if it is to cost ``epsilon``."""
    return float(Sampling(n, m).base_epsilon(validate.positive("epsilon", epsilon)))


def required_scale(sensitivity: float, epsilon: float, n: int, m: int) -> float:
    """Return the Laplace scale with which one step costs ``epsilon``."""
    validate.positive("sensitivity", sensitivity)
    validate.positive("epsilon", epsilon)
    return float(LAPLACE.scales(sensitivity, np.array(epsilon), Sampling(n, m)))
