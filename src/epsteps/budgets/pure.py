"""Pure epsilon-differential privacy: epsilons add over the steps (adaptive basic composition)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from epsteps.budgets.budget import Budget, Parts, Price, Tally, exact, exact_total, require_parts
from epsteps.budgets.costs import Cost, Epsilon
from epsteps.budgets.mechanisms import KNorm
from epsteps.problem import validate
from epsteps.problem.sampling import FULL, Sampling

LAPLACE = KNorm("laplace")


@dataclass(frozen=True)
class Pure(Budget):
    """A budget of pure epsilon-differential privacy, spent through noise of a norm, such as Laplace noise.

    The noise variance of a step falls as 1/epsilon_t², so that the best split of full-batch steps with error weights
    a_t is epsilon_t ~ a_t^(1/3).

    >>> Pure(1.0).split([1.0, 8.0, 27.0])
    array([0.16666667, 0.33333333, 0.5       ])
    """

    epsilon: float

    delta = 0.0
    kinds = (Epsilon,)

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", validate.positive("epsilon", self.epsilon))

    def __str__(self) -> str:
        return f"pure epsilon = {self.epsilon:g}"

    @property
    def amount(self) -> float:
        """Return epsilon."""
        return self.epsilon

    def capacity(self, kind: type[Cost]) -> float:
        """Return epsilon, of which no Gaussian noise can be had."""
        return self.epsilon if kind is Epsilon else 0.0

    def of(self, cost: Cost) -> "Pure":
        """Return a pure cost as a budget."""
        if cost.pure is None:
            raise ValueError(f"{self!r} does not cover Gaussian noise. Use mechanism='auto', or an Approximate budget.")
        return Pure(cost.pure)

    def split(self, weights: np.ndarray, n: int | None = None, m: int | None = None) -> np.ndarray:
        """Return the epsilons, one per step, that make ``sum weights_t scale_t²`` smallest.

        Exact: in closed form for full batches, by the convex dual when each step samples m of n records.
        """
        if (n is None) != (m is None):
            raise ValueError(f"n and m go together: got n={n!r}, m={m!r}.")
        sampling = FULL if n is None or m is None else Sampling(n, m)
        return LAPLACE.split(weights, self.epsilon, sampling)

    @property
    def parts(self) -> Parts:
        """Return the epsilon."""
        return Parts(epsilon=self.epsilon)

    def tally(self, prices: Sequence[Price], composition: str, amounts: str) -> Tally:
        """Add up epsilons, which also holds for prices chosen by earlier releases (Rogers et al. 2016)."""
        require_parts(self, prices, {"epsilon"}, "Plan with Pure(epsilon), or use a dataset with another budget")
        epsilons = [price.parts.epsilon or 0.0 for price in prices]
        return Tally(exact_total(epsilons, amounts), exact(self.epsilon, amounts))


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
