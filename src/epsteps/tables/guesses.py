"""What can be said of a model's noise and error before it is fitted: guesses from public numbers, never from records.

They take records to fill what is declared evenly, and enter no guarantee.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from epsteps.budgets import Approximate, Pure
from epsteps.budgets.mechanisms import Mechanism
from epsteps.methods import (
    CurvaturePlan,
    ObjectivePlan,
    OutputPlan,
    PublishedPlan,
    StatisticsPlan,
    output,
    perturbing,
    statistics,
)
from epsteps.plans.planning import Plan
from epsteps.problem.losses import Logistic
from epsteps.problem.problem import Problem
from epsteps.tables.columns import Numeric
from epsteps.tables.schema import Schema

# Beyond this many numbers in a model, their covariance is not worth its time.
_LARGEST = 500
_MISSING = 0.1
_FACTORS = (1 / 8, 1 / 4, 1 / 2, 1.0, 2.0, 4.0, 8.0)


def expected_error(plan: Plan | PublishedPlan) -> float | None:
    """Return a public guess of how far the model's objective is above its minimum; None where there is none.

    There is none where it cannot be computed in floats, either: a guess is worth no error.
    """
    try:
        with np.errstate(all="ignore"):
            return finite(_guessed(plan))
    except (ArithmeticError, np.linalg.LinAlgError):
        return None


def finite(value: float | None) -> float | None:
    """Return the number, or None where there is none that JSON could hold."""
    return None if value is None or not math.isfinite(value) else float(value)


def _guessed(plan: Plan | PublishedPlan) -> float | None:
    if isinstance(plan, ObjectivePlan):
        return perturbing.predicted_risk(plan)
    if isinstance(plan, OutputPlan):
        return output.predicted_risk(plan)
    if isinstance(plan, StatisticsPlan):
        return statistics.predicted_risk(plan)
    return plan.error if isinstance(plan, Plan | CurvaturePlan) else None


def error_curve(
    budget: Pure | Approximate,
    replan: Callable[[Pure | Approximate], Plan | PublishedPlan],
    factors: Sequence[float] = _FACTORS,
) -> list[tuple[float, float]]:
    """Return guessed errors at other epsilons, as pairs: those of the plans that would have been made for them."""
    found = []
    for factor in factors:
        epsilon = budget.epsilon * factor
        try:
            with np.errstate(all="ignore"):
                error = expected_error(replan(replace(budget, epsilon=epsilon)))
        except (ValueError, ArithmeticError, RuntimeError):  # no plan of this method for so small, or large, a budget
            continue
        if error is not None:
            found.append((epsilon, error))
    return found


def model_deviations(plan: Plan | PublishedPlan, schema: Schema) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the standard deviation of the noise in each number of the model, as (output, coordinate): two guesses.

    Noise on gradients reaches the model through the inverse of the curvature. The first guess takes it to be that of
    records which fill the schema evenly; the second that of features which never occur, where the ridge is all there
    is. Noise on the model itself (output perturbation) is known and not guessed. None for models of very many numbers,
    and where floats do not hold the guesses.
    """
    if plan.problem.dimension > _LARGEST:
        return None
    try:
        with np.errstate(all="ignore"):
            return _deviations(plan, schema)
    except (ArithmeticError, np.linalg.LinAlgError):
        return None


def _deviations(plan: Plan | PublishedPlan, schema: Schema) -> tuple[np.ndarray, np.ndarray]:
    problem = plan.problem
    k = problem.loss.outputs
    shared = np.eye(k) - (np.ones((k, k)) / k if k > 1 else 0.0)  # as in ``fitting.centred``
    centre = np.kron(shared, np.eye(problem.width))
    ridge = getattr(plan, "minimised", problem).ridge * np.eye(problem.dimension)
    even, never = (
        np.sqrt(np.maximum(np.diag(centre @ _covariance(plan, curvature) @ centre), 0.0)).reshape(k, problem.width)
        for curvature in (_even_curvature(problem, schema) + ridge, ridge)
    )
    return even, never


def _covariance(plan: Plan | PublishedPlan, curvature: np.ndarray) -> np.ndarray:
    """Return the covariance of the noise in the last published point, if this is the curvature."""
    problem = plan.problem
    if isinstance(plan, OutputPlan):
        return _of_norm(plan.noise, plan.scale, problem)
    if isinstance(plan, ObjectivePlan):
        squares = plan.weights**2
        tilt = float(np.sqrt(squares @ np.square(plan.scales)))
        output_noise = float(squares @ np.square(plan.output_scales)) * (problem.dimension + 1)
        through = _through(curvature, _of_norm(plan.noise, tilt / problem.n, problem))
        return through + output_noise * np.eye(problem.dimension)
    if isinstance(plan, CurvaturePlan):
        scale = plan.scale(plan.expected.gradients[-1]) / problem.n
        return _through(curvature, _of_norm(plan.noise, scale, problem))
    if isinstance(plan, StatisticsPlan):
        return _of_statistics(plan, curvature)
    if isinstance(plan, Plan):
        return _of_steps(plan, curvature)
    raise TypeError(f"plan must come from epsteps.plan, got {type(plan).__name__}.")


def _even_curvature(problem: Problem, schema: Schema) -> np.ndarray:
    """Return the loss's Hessian for even records: half of what it is where all classes are equally probable."""
    k, most = problem.loss.outputs, problem.loss.curvature
    if k > 1:
        return np.kron((np.eye(k) - np.ones((k, k)) / k) / (2 * k), _even_moment(schema))
    return (most / 2 if isinstance(problem.loss, Logistic) else most) * _even_moment(schema)


def _even_moment(schema: Schema) -> np.ndarray:
    """Return E uu' of records that fill ranges and categories evenly, the intercept's 1 last.

    Columns are independent; categories exclude each other, and a value is missing in one record of ten.
    """
    means, blocks = [], []
    for column in schema.features.values():
        here = np.full(column.width, 1 / max(column.width, 2))
        block = np.diag(here)
        if isinstance(column, Numeric):
            known = 1 - _MISSING * column.missing
            here[0], block[0, 0] = known / 2, known / 3
            here[1:], block[1:, 1:] = _MISSING, _MISSING
        means.append(here)
        blocks.append(block)
    mean = np.append(np.concatenate(means), 1.0)
    moment, start = np.outer(mean, mean), 0
    for block in blocks:
        place = slice(start, start + len(block))
        moment[place, place] = block
        start += len(block)
    return moment


def _of_norm(noise: Mechanism, scale: float, problem: Problem) -> np.ndarray:
    """Return the covariance of a mechanism's noise of this scale, in real units."""
    covariance, units = noise.covariance(problem)
    return scale**2 * covariance.matrix * np.outer(units, units)


def _through(curvature: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    inverse = np.linalg.inv(curvature)
    return inverse @ covariance @ inverse


def _of_statistics(plan: StatisticsPlan, curvature: np.ndarray) -> np.ndarray:
    """Return H⁻¹ T' E[Nθθ'N] T H⁻¹ for noise N on the moments, as ``statistics.predicted_risk`` weighs it.

    Small eigenvalues of H are raised as the plan raises those of the sums.
    """
    vectors, problem = plan.vectors, plan.problem
    units, slopes = vectors.model_units, vectors.slopes
    values, directions = np.linalg.eigh(curvature * np.outer(units, units))
    raised = np.hypot(values, plan.floor / problem.n)
    length = 2 * (statistics.squared(problem).bound / vectors.weights[-1]) ** 2
    moments = (plan.deviation / problem.n) ** 2 / 2 * length * slopes.T @ slopes
    weighed = _through((directions * raised) @ directions.T, moments)
    return weighed * np.outer(units, units)


def _of_steps(plan: Plan, curvature: np.ndarray) -> np.ndarray:
    """Return the covariance of x_T when the steps run on a quadratic of this curvature.

    In its eigenvectors a step is x+ = a x - b x_previous - alpha w, so that covariances follow a recursion.
    """
    values, directions = np.linalg.eigh(curvature)
    noise = directions.T @ _of_norm(plan.mechanism, 1.0, plan.problem) @ directions
    now, cross, before = (np.zeros_like(noise) for _ in range(3))
    steps = plan.steps
    for t in range(plan.iterations):
        alpha, momentum = steps.alpha[t], 0.0 if t == 0 or steps.restart[t] else 1.0
        b = momentum * (steps.beta[t] - alpha * values * steps.gamma[t])
        a = 1 + b - alpha * values
        mixed = np.outer(a, b) * cross
        after = np.outer(a, a) * now - mixed - mixed.T + np.outer(b, b) * before
        after += (alpha * plan.scales[t]) ** 2 * noise
        after = (after + after.T) / 2  # else its rounding errors grow
        now, cross, before = after, a[:, None] * now - b[:, None] * cross.T, now
    return directions @ now @ directions.T
