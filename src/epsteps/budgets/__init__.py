"""Privacy budgets: what a run may spend, and what steps of noise cost together.

Every guarantee is for neighbours that differ in one replaced record.
"""

from epsteps.budgets.budget import Budget, Expense
from epsteps.budgets.conversions import gaussian_delta, gaussian_mu, zcdp_epsilon, zcdp_rho
from epsteps.budgets.costs import Cost, Epsilon, Mu, Rho
from epsteps.budgets.kinds import Approximate, Concentrated, Pure, base_epsilon, epsilon_of, required_scale

__all__ = [
    "Approximate",
    "Budget",
    "Concentrated",
    "Cost",
    "Epsilon",
    "Expense",
    "Mu",
    "Pure",
    "Rho",
    "base_epsilon",
    "epsilon_of",
    "gaussian_delta",
    "gaussian_mu",
    "required_scale",
    "zcdp_epsilon",
    "zcdp_rho",
]
