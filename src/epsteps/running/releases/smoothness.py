"""A private estimate of the smoothness constant L, bought with a little budget."""

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtri

from epsteps.budgets import Concentrated, Expense, Pure, mechanisms
from epsteps.data.rows import Rows
from epsteps.ledger.accounts import Account
from epsteps.noise import Source, added
from epsteps.problem import validate
from epsteps.problem.problem import Problem
from epsteps.problem.sampling import Sampling

# The eigenvalue is released as a whole number of steps, so many of which one record can move it by.
_STEPS = 2**20


@dataclass(frozen=True)
class SmoothnessEstimate:
    """A private upper estimate of L: the problem that declares it, and the line of expense for its plan."""

    problem: Problem
    expense: Expense
    seeded: bool

    @property
    def L(self) -> float:
        """The estimated smoothness constant."""
        return self.problem.L


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
    if not 0.5 <= validate.number("confidence", confidence) < 1:
        raise ValueError(f"confidence must lie in [0.5, 1), got {confidence!r}.")
    if not isinstance(budget, Pure | Concentrated):
        raise TypeError(f"budget must be Pure(epsilon) or Concentrated(rho), got {budget!r}.")
    problem, full = data.problem, Sampling(1, 1)
    source = Source(None if seed is None else validate.integer("seed", seed, low=0))
    mechanism = mechanisms.named("laplace" if budget.unit(full) == "epsilon" else "gaussian")
    largest = problem.record_size(2) ** 2
    step = largest / problem.n / _STEPS
    sensitivity = _STEPS + 1 + math.ceil(2 * _eigenvalue_error(problem.dimension) * largest / step)
    scale = float(mechanism.scales(sensitivity, np.array(budget.amount), full)) * (1 + 1e-12)
    data.prepare()
    if ledger is not None:
        ledger.charge(budget, note="smoothness")

    noise = source.integers(mechanism, scale, (1,))
    top = np.linalg.eigvalsh(data.second_moment())[-1]
    released = float(added(np.array([math.floor(top / step + 0.5)], dtype=object), noise)[0]) * step
    scale *= step
    eigenvalue = float(np.clip(released + scale * _quantile(mechanism.name, confidence), 0.0, largest))
    smoothness = max(problem.loss.curvature * eigenvalue + problem.ridge, 1e-12)
    return SmoothnessEstimate(
        replace(problem, smoothness=smoothness),
        Expense("smoothness constant L", budget.amount, mechanism.unit),
        source.seeded,
    )


def _eigenvalue_error(d: int) -> float:
    """Bound the relative error of a symmetric matrix's largest computed eigenvalue.

    LAPACK's is backward stable: the error is a modest polynomial in d times the rounding unit. 16 d is generous.
    """
    return 16 * d * np.finfo(float).eps


def _quantile(name: str, confidence: float) -> float:
    """Return the quantile of the mechanism's noise of scale 1."""
    if name == "laplace":
        return -math.log(2 * (1 - confidence))
    return float(ndtri(confidence))
