"""Choosing the plan of objective perturbation from public numbers."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from epsteps.budgets import Budget, Epsilon, Rho, mechanisms
from epsteps.budgets.corners import Corners
from epsteps.budgets.mechanisms import Mechanism
from epsteps.methods import minima
from epsteps.methods.minimum import LEAST_BITS, LONG, Minimised, least_tolerance, rounding, tilt_length
from epsteps.methods.objective.plan import SOLUTION_NORM, TILT_BITS, ObjectivePlan, composed_corners, saturation_of
from epsteps.plans.plan import OverspentError
from epsteps.problem import limits, validate
from epsteps.problem.problem import Problem
from epsteps.problem.rounding import down, up
from epsteps.problem.sampling import Sampling

# Share of a release's epsilon that hides the solver's tolerance.
_OUTPUT_SHARE = 0.005
# How much of the predicted error the noise on the output may add: little, and no less than rounding allows.
_WASTE, _MOST_WASTE = 1e-4, 1e-2
# What predictions assume of the size of the solution, for rounding errors. Never privacy.
_SOLUTION_SIZE = 10.0
# What scales are multiplied by until the certificate holds: hardly ever more than the first.
_GROWTHS = (1.0, 1 + 1e-6, 1 + 1e-5, 1 + 1e-4, 1 + 1e-3)
# From which share of the targets' bound on pseudo-Huber loss, in the place of squared loss, grows slowly.
HUBER_SHARE = 0.4


def plan_objective(
    problem: Problem, budget: Budget, *, mechanism: str = "auto", shares: Sequence[float] = (1.0,)
) -> ObjectivePlan:
    """Plan the release of a tilted objective's minimum, or of several with these shares of the budget.

    "auto" takes the noise whose public trace E|b|² is smallest. Under (epsilon, delta) a pure release is a candidate
    too: in few dimensions it often needs less noise than a Gaussian one. In the place of squared loss, whose slope has
    no bound, pseudo-Huber loss is minimised: nearly the same where residuals are small.
    """
    limits.require_hessian(problem)
    problem = replace(problem, loss=problem.loss.stand_in(HUBER_SHARE))
    validate.choice("mechanism", mechanism, ("auto", *mechanisms.NAMES))
    if not all(share > 0 for share in shares) or not math.isclose(math.fsum(shares), 1.0, rel_tol=1e-9):
        raise ValueError(f"shares must be positive and add up to 1, got {tuple(shares)!r}.")
    if mechanism != "auto":
        noises = [mechanisms.named(mechanism)]
    else:
        kinds = (Epsilon, Rho) if budget.delta else (Epsilon,)
        noises = [mechanisms.smallest(problem, kind) for kind in kinds]
    plans = [_planned(problem, budget, noise, tuple(shares)) for noise in noises]
    best = min(plans, key=lambda plan: plan.guessed_error)
    best.require_executable(LONG)
    return best


def minimax_ridge(problem: Problem, budget: Budget, noise: Mechanism) -> float:
    """Return the ridge, at least the problem's, that balances its bias against noise of the whole budget.

    For a solution of norm r the bias is at most ridge r²/2, and the noise costs at most E|w|²/(2 ridge): together least
    at √E|w|²/r. The norm is guessed, from nothing private.
    """
    total = budget.capacity(noise.kind)
    full = Sampling(problem.n, problem.n)
    scale = float(noise.scales(problem.typical_sensitivity(noise.norm), np.array(total), full))
    return max(problem.ridge, math.sqrt(2 * float(noise.half_power(scale, problem))) / SOLUTION_NORM)


def _planned(problem: Problem, budget: Budget, noise: Mechanism, shares: tuple[float, ...]) -> ObjectivePlan:
    mechanisms.require_fit(noise, problem)
    if noise.kind.is_pure:
        costs = [share * down(budget.capacity(Epsilon), 1e-9) for share in shares]
        ridge, scales = _pure_scales(problem, noise, costs)
    elif budget.delta:
        costs = [share * budget.amount for share in shares]
        ridge, scales = _gaussian_scales(problem, noise, budget, shares)
    else:
        raise ValueError(f"{budget} does not cover {noise.name} noise on an objective. Use mechanism='auto'.")
    outputs = [_OUTPUT_SHARE * cost for cost in costs]
    minimised = Minimised(problem, ridge)
    tolerance = _tolerance(minimised, noise, scales, outputs)
    radius = minimised.radius(tolerance)
    for growth in _GROWTHS:
        try:
            return ObjectivePlan(
                problem=problem,
                budget=budget,
                mechanism=noise.name,
                ridge=ridge,
                scales=tuple(growth * scale for scale in scales),
                output_scales=tuple(minima.output_scale(radius, output) * (1 + 1e-9) for output in outputs),
                tolerance=tolerance,
            )
        except OverspentError:  # corners are chosen again for the certificate, which is what counts
            if growth == _GROWTHS[-1]:
                raise
    raise AssertionError  # the loop returns or raises


def _pure_scales(problem: Problem, noise: Mechanism, costs: Sequence[float]) -> tuple[float, list[float]]:
    """Return the ridge that pays, and the scale of each tilt."""
    bounds = _least_ridge(problem)
    saturation, sensitivity, least = bounds.saturation, bounds.sensitivity(noise.norm), bounds.ridge
    size = problem.record_size(2)
    energy = 2 * float(noise.half_power(sensitivity, problem))
    cells = noise.cell(problem) * 2.0**-TILT_BITS
    tilts = [down((1 - _OUTPUT_SHARE) * cost - cells, 1e-9) for cost in costs]
    ridge = minima.paying_ridge(least, problem.n, size, max(tilts), saturation, energy, SOLUTION_NORM).ridge
    # A small share must be able to pay the Jacobian, too.
    ridge = max(ridge, *(1.01 * size**2 / (problem.n * minima.kappa_limit(tilt, saturation)) for tilt in tilts))
    kappa = minima.record_weight(size, problem.n, ridge)
    return ridge, [up(sensitivity / minima.noise_epsilon(tilt, kappa, saturation)) for tilt in tilts]


def _gaussian_scales(
    problem: Problem, noise: Mechanism, budget: Budget, shares: tuple[float, ...]
) -> tuple[float, list[float]]:
    """Return the ridge that pays, and the scale of each Gaussian tilt; shares are of mu²."""
    bounds = _least_ridge(problem)
    sensitivity, least = bounds.sensitivity(noise.norm), bounds.ridge
    energy = 2 * float(noise.half_power(sensitivity / problem.n, problem))
    best = (math.inf, least, 0.0)
    ridge = least
    # A larger ridge costs bias, and helps twice: noise is divided by it, and one record weighs less against it.
    while (ridge - least) * SOLUTION_NORM**2 / 2 < best[0]:
        mu = _largest_mu(Minimised(problem, ridge), budget, shares)
        if mu > 0:
            loss = (ridge - least) * SOLUTION_NORM**2 / 2 + energy / (2 * mu**2 * ridge)
            best = min(best, (loss, ridge, mu))
        ridge *= 1.25
    return best[1], [sensitivity / (best[2] * math.sqrt(share)) * (1 + 1e-9) for share in shares]


def _least_ridge(problem: Problem) -> Minimised:
    """Return the objective with the least ridge that it may have, or raise if it has no minimum to protect."""
    saturation_of(problem.loss)
    return Minimised(problem, max(problem.ridge, 1e-12))


def _largest_mu(minimised: Minimised, budget: Budget, shares: tuple[float, ...]) -> float:
    """Return the largest total mu of tilts with these shares; 0 if the Jacobians alone cost more than epsilon."""
    saturation, epsilon = minimised.saturation, down(budget.amount * (1 - _OUTPUT_SHARE), 1e-9)
    kappa = minimised.kappa
    single = minima.calibrated(epsilon, budget.delta, kappa, saturation)
    if single is None:
        return 0.0
    return _shared_mu(single.mu, shares, partial(composed_corners, kappa, saturation, epsilon), epsilon, budget.delta)


def _shared_mu(
    most: float,
    shares: tuple[float, ...],
    corners: Callable[[Sequence[float]], Corners],
    epsilon: float,
    delta: float,
) -> float:
    """Return the largest total mu, at most that of a single release, that is (epsilon, delta)-private when shared."""

    def excess(mu: float) -> float:
        return corners([mu * math.sqrt(share) for share in shares]).delta(1.0, epsilon) - delta

    if len(shares) == 1:
        return most
    low, high = most * 1e-3, most
    if excess(low) > 0:
        return 0.0
    while high / low > 1 + 1e-7:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if excess(middle) > 0 else (middle, high)
    return low


def _tolerance(minimised: Minimised, noise: Mechanism, scales: Sequence[float], outputs: Sequence[float]) -> float:
    """Return the gradient norm at which the solver stops: as small as pays, and as large as precision needs."""
    problem, scale, output = minimised.problem, max(scales), max(outputs)
    energy = 2 * float(noise.half_power(scale, problem))
    wanted, most = (
        minima.gradient_tolerance(energy, minimised.dimension, output, minimised.ridge, minimised.L, waste)
        for waste in (_WASTE, _MOST_WASTE)
    )
    cell = scale * 2.0**-35 * float(np.linalg.norm(np.maximum(problem.units, 1.0)))
    usual = 2 * rounding(minimised, _SOLUTION_SIZE, 0.0, 2.0**-52)
    # The noise on the output is 2 tolerance/(n ridge output), and its integers are as fine as its least bits ask for.
    finest = 2.0**LEAST_BITS * output * minimised.n * minimised.ridge
    # A scale may still grow a little until the certificate holds.
    needed = least_tolerance(minimised, 1.01 * tilt_length(minimised, noise, scale), finest)
    return max(wanted, min(usual, most), needed, 8 * cell)
