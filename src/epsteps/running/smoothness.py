"""A private estimate of the smoothness constant L, bought with a little budget."""

from epsteps.budgets import Concentrated, Pure
from epsteps.data.rows import Rows
from epsteps.ledger.accounts import Account
from epsteps.methods.smoothness import SmoothnessEstimate, SmoothnessPlan
from epsteps.running.run import run


def estimate_smoothness(
    data: Rows,
    budget: Pure | Concentrated,
    *,
    confidence: float = 0.999,
    seed: int | None = None,
    ledger: Account | None = None,
) -> SmoothnessEstimate:
    """Estimate L = curvature x λ_max(U'U/n) + ridge from the records, privately, from above.

    Formal guarantee: the largest eigenvalue of U'U/n moves by at most (largest record)²/n when a record is replaced,
    since uu' - vv' has its eigenvalues between -|v|² and |u|². It is computed from exact integer sums, released as an
    integer, and the sensitivity includes what the eigenvalue's rounding may add. Laplace noise of that sensitivity
    makes it epsilon-DP, Gaussian noise rho-zCDP. What follows is post-processing: with the given confidence the
    estimate is not below the true L, and it is never above the public one. Too small an L harms convergence, never
    privacy.

    Parameters
    ----------
    data : Rows
        The private records.
    budget : Pure or Concentrated
        The price. One hundredth of what the plan may spend is usually plenty. A plan in epsilon (Laplace noise) takes a
        Pure price, a plan in rho (Gaussian noise) a Concentrated one.
    confidence : float
        Probability that the estimate is large enough.
    seed, ledger
        As for :func:`epsteps.run`: a seeded estimate is not private; an account is charged before noise is drawn.
    """
    plan = SmoothnessPlan(data.problem, budget, confidence)
    bought = run(plan, data, seed=seed, ledger=ledger)
    return plan.estimate(float(bought.path[0, 0]), bought.seeded)
