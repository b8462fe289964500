"""Choosing a plan of curvature first: the noise, the ridge and what may be spent on what, from public numbers alone."""

import math

import numpy as np

from epsteps import _validate, designs, mechanisms
from epsteps.budgets import Approximate, Budget, Concentrated, Pure
from epsteps.designs.whitening import error_of, spreads
from epsteps.mechanisms import Mechanism
from epsteps.plans.curvature_plan import CurvaturePlan, require_covered
from epsteps.problem import Problem
from epsteps.sampling import Sampling

# Share of the budget that means and squares of the columns get.
_MOMENTS = 0.03
# How long the solution is taken to be when the ridge is chosen: noise/length is the ridge that is worth its bias. Pure
# noise is divided over steps at a higher price, and counts double.
_LENGTHS = {"epsilon": 1.5, "rho": 3.0}
# Certificates are rounded up, so what may be spent is rounded down by more than that.
_INWARD = {"epsilon": 1 - 1e-11, "rho": 1 - 1e-8}
_HOPELESS = 1.5


def plan_curvature(problem: Problem, budget: Budget, *, mechanism: str = "auto") -> CurvaturePlan:
    """Decide a run of curvature first from public numbers alone.

    Parameters
    ----------
    problem, budget
        What is solved, with the Logistic or the Squared loss over a Ball or a Box, and what may be spent.
    mechanism : "auto" or a name
        The gradients' noise; "auto" is the one whose guessed error is smallest. An (epsilon, delta) budget is spent on
        Gaussian noise or on pure noise, whichever is guessed to be better.

    >>> import epsteps as es
    >>> problem = es.Problem(es.Logistic(), es.Box(0, 1), ridge=0.02, n=100_000, d=20)
    >>> p = plan_curvature(problem, es.Pure(1.0))
    >>> p.mechanism, len(p.expected.gradients), p.spent <= 1.0
    ('hull', 3, True)
    """
    _validate.choice("mechanism", mechanism, ("auto", *mechanisms.NAMES))
    require_covered(problem)
    units = [unit for unit in ("epsilon", "rho") if _amount(budget, unit) > 0]
    if mechanism == "auto":
        noises = [mechanisms.smallest(problem, unit) for unit in units]
    else:
        noises = [mechanisms.named(mechanism)]
        if noises[0].unit not in units:
            raise ValueError(f"{budget} does not cover {mechanism} noise. Use mechanism='auto'.")
    return min((_plan(problem, budget, noise) for noise in noises), key=lambda plan: plan.error)


def prefers_descent(problem: Problem, budget: Budget) -> bool:
    """Whether noise dominates so much that a plan of steps is the better one: no use of a curvature is to be expected.

    The test: if features were spread evenly over their domain, then even the whole budget would leave a released
    Hessian with a relative error above 1.5.
    """
    require_covered(problem)
    unit = "rho" if _amount(budget, "rho") > 0 else "epsilon"
    total = _amount(budget, unit)
    ridge = _paying_ridge(problem, mechanisms.smallest(problem, unit), total)
    _, variance = problem.domain.even_moments(problem.d)
    curvature = designs.typical_curvature(problem.loss)
    spread = float(spreads(variance, curvature, ridge).sum())
    return error_of(unit, problem.d, spread, curvature, problem.n, total) > _HOPELESS


def _plan(problem: Problem, budget: Budget, noise: Mechanism) -> CurvaturePlan:
    total = _amount(budget, noise.unit)
    return CurvaturePlan(
        problem=problem,
        budget=budget,
        mechanism=noise.name,
        ridge=_paying_ridge(problem, noise, total),
        moments=_MOMENTS * total,
        rest=(1 - _MOMENTS) * total,
    )


def _amount(budget: Budget, unit: str) -> float:
    """Return what may be spent in this unit; 0 if the budget does not cover it."""
    if unit == "rho":
        return budget.rho * _INWARD[unit] if isinstance(budget, Approximate | Concentrated) else 0.0
    return budget.epsilon * _INWARD[unit] if isinstance(budget, Approximate | Pure) else 0.0


def _paying_ridge(problem: Problem, noise: Mechanism, total: float) -> float:
    """Return the ridge, at least the problem's, that is worth its bias."""
    sensitivity = problem.typical_sensitivity(noise.norm)
    scale = float(noise.scales(sensitivity, np.array(total), Sampling(1, 1)))
    size = math.sqrt(2 * float(noise.half_power(scale, problem))) / problem.n
    return max(problem.ridge, size / _LENGTHS[noise.unit])


__all__ = ["CurvaturePlan", "plan_curvature", "prefers_descent"]
