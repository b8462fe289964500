"""Choosing a plan of curvature first: the noise, the ridge and what may be spent on what, from public numbers alone."""

import math

import numpy as np

from epsteps.budgets import Budget, mechanisms
from epsteps.budgets.mechanisms import Mechanism
from epsteps.methods.curvature import UndrawableError
from epsteps.methods.curvature.plan import CurvaturePlan, require_covered
from epsteps.problem import limits, validate
from epsteps.problem.problem import Problem
from epsteps.problem.sampling import FULL

# Share of the budget that means and squares of the columns get.
_MOMENTS = 0.03
# How long the solution is taken to be when the ridge is chosen: noise/length is the ridge that is worth its bias. Pure
# noise is divided over steps at a higher price, and counts double.
_LENGTHS = (1.5, 3.0)  # pure, Gaussian; as in the pairs below
# Certificates are rounded up, so what may be spent is rounded down by more than that.
_INWARD = (1 - 1e-11, 1 - 1e-8)
# Above this share of the start's error, noise leaves nothing for a curvature to improve.
_HOPELESS = (0.012, 0.05)
# And above this share no gradient of the curvature method is followed, so that it ends at 0; descent ends above it.
_LOST = 0.35
# Gaussian noise is taken where it is guessed to be better by this much: the guesses are rough.
_MARGINS = (1.0, 0.9)


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
    validate.choice("mechanism", mechanism, ("auto", *mechanisms.NAMES))
    limits.require_moments(problem)
    require_covered(problem)
    if mechanism == "auto":
        noises = [mechanisms.smallest(problem, kind) for kind in budget.kinds]
    else:
        noises = [mechanisms.named(mechanism)]
        if noises[0].kind not in budget.kinds:
            raise ValueError(f"{budget} does not cover {mechanism} noise. Use mechanism='auto'.")
    plans = [_plan(problem, budget, noise) for noise in noises]
    return min(plans, key=lambda plan: plan.error / plan.noise.kind.either(*_MARGINS))


def prefers_descent(problem: Problem, budget: Budget) -> bool:
    """Whether noise dominates so much that a plan of steps, such as ``nesterov``, is the better one.

    The test: were features spread evenly over their domain, one gradient with the whole budget would leave an error of
    more than a share of what a start at 0 is known to have: 1.2 percent for pure noise. It was chosen on adult, bank,
    ijcnn1 and synthetic records, against Nesterov's method with the same noise, ridge and a public L: the curvature's
    error was 1.1 to 2.4 times the other's at shares of 2.4 percent and more, 0.6 to 2.4 times between 0.6 and 1.7
    percent, and 0.1 to 1.1 times below. For Gaussian noise the share is 5 percent, and untested. Noise that does not
    even fit the integers of the curvature's releases is not for it. Above a share of 35 percent nothing can be learnt:
    curvature first then stays at the model 0 (``CurvaturePlan.is_followed``), and descent was 1 to 165 percent worse
    than 0 in 10 of 12 synthetic cases.
    """
    try:
        plan = plan_curvature(problem, budget)
    except UndrawableError:
        return True
    limit = mechanisms.risk(plan.noise, plan.scale(plan.moments + plan.rest), plan.minimised)
    return plan.noise.kind.either(*_HOPELESS) < limit / problem.start_gap <= _LOST


def _plan(problem: Problem, budget: Budget, noise: Mechanism) -> CurvaturePlan:
    total = budget.capacity(noise.kind) * noise.kind.either(*_INWARD)
    return CurvaturePlan(
        problem=problem,
        budget=budget,
        mechanism=noise.name,
        ridge=_paying_ridge(problem, noise, total),
        moments=_MOMENTS * total,
        rest=(1 - _MOMENTS) * total,
    )


def _paying_ridge(problem: Problem, noise: Mechanism, total: float) -> float:
    """Return the ridge, at least the problem's, that is worth its bias."""
    sensitivity = problem.typical_sensitivity(noise.norm)
    scale = float(noise.scales(sensitivity, np.array(total), FULL))
    size = math.sqrt(2 * float(noise.half_power(scale, problem))) / problem.n
    return max(problem.ridge, size / noise.kind.either(*_LENGTHS))


__all__ = ["CurvaturePlan", "plan_curvature", "prefers_descent"]
