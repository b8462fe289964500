"""What noise of one kind costs, as a budget of the kind that was asked for."""

import math

from epsteps.budgets import Approximate, Budget, Concentrated, Pure
from epsteps.budgets.conversions import gaussian_epsilon

_OUTWARD = 1 + 1e-12


def of_pure(budget: Budget, epsilon: float) -> Budget:
    """Return pure epsilon as a budget of the given kind; rho = epsilon²/2 (Bun, Steinke 2016)."""
    if isinstance(budget, Concentrated):
        return Concentrated(epsilon**2 / 2 * _OUTWARD)
    return Approximate(epsilon, budget.delta) if isinstance(budget, Approximate) else Pure(epsilon)


def of_gaussian(budget: Budget, mu: float) -> Budget:
    """Return mu-Gaussian privacy as a budget of the given kind: rho = mu²/2, or its exact epsilon at the same delta."""
    if isinstance(budget, Concentrated):
        return Concentrated(mu**2 / 2 * _OUTWARD)
    if isinstance(budget, Approximate):
        return Approximate(gaussian_epsilon(mu, budget.delta), budget.delta)
    raise ValueError(f"{budget!r} does not cover Gaussian noise. Use mechanism='auto', or an Approximate budget.")


def pure_epsilon(budget: Budget) -> float:
    """Return the pure epsilon that the budget allows, rounded down."""
    inward = 1 - 1e-9
    return (math.sqrt(2 * budget.amount) if isinstance(budget, Concentrated) else budget.amount) * inward
