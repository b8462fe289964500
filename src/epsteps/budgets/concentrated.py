"""Zero-concentrated differential privacy: rhos add over the steps (Bun, Steinke 2016)."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from epsteps.budgets.budget import Budget, Parts, Price, Tally, exact, exact_total, require_parts
from epsteps.budgets.costs import Cost, Rho
from epsteps.budgets.mechanisms import Gaussian
from epsteps.problem import validate
from epsteps.problem.sampling import FULL


@dataclass(frozen=True)
class Concentrated(Budget):
    """A budget of rho-zero-concentrated differential privacy, spent through Gaussian noise.

    The noise variance of a step falls as 1/rho_t, so that the best split of steps with error weights a_t is
    rho_t ~ a_t^(1/2).

    >>> Concentrated(0.5).split([1.0, 4.0, 4.0])
    array([0.1, 0.2, 0.2])
    """

    rho: float

    delta = 0.0
    kinds = (Rho,)
    unit = "rho"

    def __post_init__(self) -> None:
        object.__setattr__(self, "rho", validate.positive("rho", self.rho))

    def __str__(self) -> str:
        return f"rho = {self.rho:g} (zero-concentrated)"

    @property
    def amount(self) -> float:
        """Return rho."""
        return self.rho

    def capacity(self, kind: type[Cost]) -> float:
        """Return rho, or the mu or the pure epsilon √(2 rho) that has it."""
        return self.rho if kind is Rho else math.sqrt(2 * self.rho)

    def of(self, cost: Cost) -> "Concentrated":
        """Return the cost's rho as a budget."""
        return Concentrated(cost.rho)

    def split(self, weights: np.ndarray) -> np.ndarray:
        """Return the rhos, one per step, that make ``sum weights_t variance_t`` smallest."""
        return Gaussian().split(weights, self.rho, FULL)

    @property
    def parts(self) -> Parts:
        """Return the rho."""
        return Parts(rho=self.rho)

    def tally(self, prices: Sequence[Price], composition: str, amounts: str) -> Tally:
        """Add up rhos, where a pure price counts epsilon²/2 (Bun, Steinke 2016).

        It also holds for prices chosen by earlier releases (Feldman, Zrnic 2021).
        """
        remedy = "Plan with Concentrated(rho), or use an Approximate dataset"
        require_parts(self, prices, {"epsilon", "rho"}, remedy)
        parts = [price.parts for price in prices]
        epsilons = Counter(part.epsilon for part in parts if part.epsilon is not None)
        halves = sum((count * exact(epsilon, amounts) ** 2 / 2 for epsilon, count in epsilons.items()), Fraction(0))
        rhos = exact_total((part.rho for part in parts if part.rho is not None), amounts)
        return Tally(halves + rhos, exact(self.rho, amounts))
