"""(epsilon, delta)-differential privacy: exact for Gaussian noise, by numerical composition for pure noise."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from epsteps.bounds import Prediction
from epsteps.budgets import filters
from epsteps.budgets.budget import Budget, Parts, Price, Tally, total
from epsteps.budgets.composition import composed_epsilon
from epsteps.budgets.concentrated import Concentrated
from epsteps.budgets.conversions import checked_delta, gaussian_epsilon, gaussian_mu
from epsteps.budgets.costs import Cost, Epsilon, Rho
from epsteps.budgets.mechanisms import Gaussian, Mechanism
from epsteps.problem import validate
from epsteps.problem.rounding import root_between, up
from epsteps.problem.sampling import FULL, Sampling

# Certificates are rounded up, so what may be spent is rounded down by more than that.
_INWARD = 1 - 1e-8


@dataclass(frozen=True)
class Approximate(Budget):
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

    kinds = (Epsilon, Rho)
    compositions = ("adaptive", "plain", "numerical")

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

    def kind(self, sampling: Sampling) -> type[Cost]:
        """Return rhos for full batches, and epsilons, whose amplification is known, for samples."""
        return Rho if sampling.is_full else Epsilon

    def capacity(self, kind: type[Cost]) -> float:
        """Return the epsilon, or the rho or mu of Gaussian noise that has it at this delta."""
        if kind is Epsilon:
            return self.epsilon
        return self.rho if kind is Rho else gaussian_mu(self.epsilon, self.delta)

    def of(self, cost: Cost) -> "Approximate":
        """Return the cost's epsilon at this delta as a budget."""
        return Approximate(cost.epsilon(self.delta), self.delta)

    def split(self, weights: np.ndarray) -> np.ndarray:
        """Return the rhos of Gaussian steps, one per step, that make ``sum weights_t variance_t`` smallest."""
        return Gaussian().split(weights, self.rho, FULL)

    def allocate(
        self, weights: np.ndarray | None, T: int, mechanism: Mechanism, sampling: Sampling, reserved: float = 0.0
    ) -> np.ndarray:
        """Return the costs of T steps, in the mechanism's unit."""
        if mechanism.kind is Rho:
            return Concentrated(self.rho * _INWARD).allocate(weights, T, mechanism, sampling, reserved)
        # Composed many times, a step of pure epsilon_t counts nearly as rho_t = epsilon_t²/2: so it is split as that.
        shape = np.ones(T) if weights is None else np.sqrt(Gaussian().split(weights, 1.0, FULL))
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
        root = root_between(excess, low, high, xtol=1e-4)
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
        if mechanism.kind is Rho:
            return Concentrated(self.rho).noise_by_horizon(prediction, allocation, mechanism, sampling, reserved)
        left = Concentrated(self._without(reserved).rho)
        return left.noise_by_horizon(prediction, allocation, Gaussian(), Sampling(sampling.n, sampling.n))

    def spending(
        self, costs: np.ndarray, kind: type[Cost], expenses: Sequence[float] | np.ndarray = ()
    ) -> "Approximate":
        """Return the epsilon of expenses, and of steps that were planned after them, at the declared delta: rounded up.

        Formal guarantee: let the expenses be e-DP with outcome o, and the steps (ε, δ)-DP for every o. For neighbours
        P(S) = ∫ P(do) P(S_o|o) <= ∫ P(do) min(1, e^ε P'(S_o|o)) + δ <= e^(e + ε) P'(S) + δ, however the steps depend
        on o. Gaussian expenses are √(2 rho)-Gaussian-DP, and so are the steps for every o: their rhos add.
        """
        if kind is Rho:
            epsilon = gaussian_epsilon(up(math.sqrt(2 * total(expenses, costs)), 2.0**-50), self.delta)
        else:
            epsilon = composed_epsilon(np.asarray(costs, dtype=float), self.delta)
            if len(expenses):
                epsilon = total(expenses, [epsilon])
        return Approximate(max(epsilon, 1e-12), self.delta)

    @property
    def parts(self) -> Parts:
        """Return a pure epsilon, except for a chance of delta (Kairouz, Oh, Viswanath 2015)."""
        return Parts(epsilon=self.epsilon, delta=self.delta)

    def tally(self, prices: Sequence[Price], composition: str, amounts: str) -> Tally:
        """Compose prices of every kind by the rule of this name: see ``epsteps.budgets.filters``."""
        return filters.tally(self, prices, composition, amounts)
