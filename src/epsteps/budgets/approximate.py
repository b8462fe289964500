"""(epsilon, delta)-differential privacy: exact for Gaussian noise, by numerical composition for pure noise."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import root_scalar

from epsteps.bounds import Prediction
from epsteps.budgets import additive
from epsteps.budgets.composition import composed_epsilon
from epsteps.budgets.conversions import checked_delta, gaussian_epsilon, gaussian_mu
from epsteps.budgets.mechanisms import Gaussian, Mechanism
from epsteps.problem import validate
from epsteps.problem.sampling import Sampling

# Certificates are rounded up, so what may be spent is rounded down by more than that.
_INWARD = 1 - 1e-8
_UPWARD = 1 + 2.0**-50


@dataclass(frozen=True)
class Approximate:
    """A budget of (epsilon, delta)-differential privacy.

    Gaussian noise is accounted for exactly: steps whose rhos sum to rho are √(2 rho)-Gaussian-DP. Pure noise, which
    samples may amplify, is composed numerically from the pure epsilon of each step.

    A plan may depend on what was bought before it (``expenses``). Its rhos may: given what was bought, the steps are
    √(2 rho)-Gaussian-DP for the rho that is left, however it is split, and such parts compose (Dong, Roth, Su 2022).
    Numerically composed epsilons may not: splits differ in their whole curve of (epsilon, delta), of which the plan
    fixes one point. There the expenses are added to the epsilon of the steps, which holds for any plan that is
    (epsilon, delta)-private whatever was bought: see ``spending``.

    >>> round(Approximate(1.0, 1e-5).rho, 6)
    0.035926
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", validate.positive("epsilon", self.epsilon))
        object.__setattr__(self, "delta", checked_delta(self.delta))

    def __str__(self) -> str:
        return f"epsilon = {self.epsilon:g}, delta = {self.delta:g}"

    @property
    def amount(self) -> float:
        """Return epsilon, at the declared delta."""
        return self.epsilon

    @property
    def rho(self) -> float:
        """Rhos of Gaussian steps may sum to this much."""
        return gaussian_mu(self.epsilon, self.delta) ** 2 / 2

    def unit(self, sampling: Sampling) -> str:
        """Return "rho" for full batches, and "epsilon", whose amplification is known, for samples."""
        return "rho" if sampling.is_full else "epsilon"

    def split(self, weights: np.ndarray) -> np.ndarray:
        """Return the rhos of Gaussian steps, one per step, that make ``sum weights_t variance_t`` smallest."""
        return Gaussian().split(weights, self.rho, additive.FULL)

    def allocate(
        self, weights: np.ndarray | None, T: int, mechanism: Mechanism, sampling: Sampling, reserved: float = 0.0
    ) -> np.ndarray:
        """Return the costs of T steps, in the mechanism's unit."""
        if mechanism.unit == "rho":
            return additive.allocate(self.rho * _INWARD - reserved, weights, T, mechanism, sampling)
        # Composed many times, a step of pure epsilon_t counts nearly as rho_t = epsilon_t²/2: so it is split as that.
        shape = np.ones(T) if weights is None else np.sqrt(Gaussian().split(weights, 1.0, additive.FULL))
        return shape * self._without(reserved)._stretch(shape)

    def _without(self, reserved: float) -> "Approximate":
        """Return what expenses of this epsilon leave."""
        left = (self.epsilon - reserved) * _INWARD if reserved else self.epsilon
        if left <= 0:
            raise ValueError(f"nothing is left for the steps: the expenses take epsilon = {reserved:.6g}.")
        return Approximate(left, self.delta)

    def _stretch(self, shape: np.ndarray) -> float:
        """Return the largest factor (to 1e-4) with which epsilons of this shape are covered."""

        def excess(log_factor: float) -> float:
            return composed_epsilon(shape * math.exp(log_factor), self.delta) - self.epsilon

        # The sum of the epsilons may always be spent; Gaussian noise of the same variance tells where to look beyond.
        low = math.log(self.epsilon / shape.sum()) - 1e-9
        high = max(low, 0.5 * math.log(2 * self.rho / np.sum(shape**2))) + 0.1
        while excess(high) <= 0:
            high += 0.5
        root = root_scalar(excess, bracket=(low, high), xtol=1e-4).root
        while excess(root) > 0:
            root -= 1e-4
        return math.exp(root) * _INWARD

    def noise_by_horizon(
        self, prediction: Prediction, allocation: str, mechanism: Mechanism, sampling: Sampling, reserved: float = 0.0
    ) -> np.ndarray:
        """Return the noise of the split, for every number of steps: exact for Gaussian noise.

        For pure noise it is an estimate that only serves to choose the number of steps: epsilon_t² counts as
        2 rho_t, and amplification as perfect.
        """
        if mechanism.unit == "rho":
            return additive.noise_by_horizon(self.rho - reserved, prediction, allocation, mechanism, sampling)
        full = Sampling(sampling.n, sampling.n)
        return additive.noise_by_horizon(self._without(reserved).rho, prediction, allocation, Gaussian(), full)

    def spending(
        self, costs: np.ndarray, mechanism: Mechanism, expenses: Sequence[float] | np.ndarray = ()
    ) -> "Approximate":
        """Return the epsilon of expenses, and of steps that were planned after them, at the declared delta: rounded up.

        Formal guarantee: let the expenses be e-DP with outcome o, and the steps (ε, δ)-DP for every o. For neighbours
        P(S) = ∫ P(do) P(S_o|o) <= ∫ P(do) min(1, e^ε P'(S_o|o)) + δ <= e^(e + ε) P'(S) + δ, however the steps depend
        on o. Gaussian expenses are √(2 rho)-Gaussian-DP, and so are the steps for every o: their rhos add.
        """
        if mechanism.unit == "rho":
            rho = additive.total(np.concatenate([expenses, costs]))
            epsilon = gaussian_epsilon(math.sqrt(2 * rho) * _UPWARD, self.delta)
        else:
            epsilon = composed_epsilon(np.asarray(costs, dtype=float), self.delta)
            if len(expenses):
                epsilon = additive.total(np.append(expenses, epsilon))
        return Approximate(max(epsilon, 1e-12), self.delta)
