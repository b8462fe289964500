"""What can be said of a model's noise and error before it is fitted: guesses from public numbers, never from records.

They take records to fill what is declared evenly, and enter no guarantee.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np

from epsteps.budgets import Budget
from epsteps.plans.plan import Plan
from epsteps.tables.schema import Schema

# Beyond this many numbers in a model, their covariance is not worth its time.
_LARGEST = 500
_FACTORS = (1 / 8, 1 / 4, 1 / 2, 1.0, 2.0, 4.0, 8.0)


def expected_error(plan: Plan) -> float | None:
    """Return a public guess of how far the model's objective is above its minimum; None where there is none.

    There is none where it cannot be computed in floats, either: a guess is worth no error.
    """
    try:
        with np.errstate(all="ignore"):
            return finite(plan.guessed_error)
    except (ArithmeticError, np.linalg.LinAlgError):
        return None


def finite(value: float | None) -> float | None:
    """Return the number, or None where there is none that JSON could hold."""
    return None if value is None or not math.isfinite(value) else float(value)


def error_curve(
    budget: Budget, replan: Callable[[Any], Plan], factors: Sequence[float] = _FACTORS
) -> list[tuple[float, float]]:
    """Return guessed errors at other epsilons of a budget that has one, as pairs: those of the plans made for them."""
    curve = []
    for factor in factors:
        epsilon = budget.amount * factor
        try:
            with np.errstate(all="ignore"):
                error = expected_error(replan(replace(cast(Any, budget), epsilon=epsilon)))
        except (ValueError, ArithmeticError, RuntimeError):  # no plan of this method for so small, or large, a budget
            continue
        if error is not None:
            curve.append((epsilon, error))
    return curve


def model_deviations(plan: Plan, schema: Schema) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the standard deviation of the noise in each number of the model, as (output, coordinate): two guesses.

    Noise on gradients reaches the model through the inverse of the curvature. The first guess takes it to be that of
    records which fill the schema evenly; the second that of features which never occur, where the ridge is all there
    is. Noise on the model itself (output perturbation) is known and not guessed. None for models of very many numbers,
    for plans that have no guess, and where floats do not hold the guesses.
    """
    if plan.problem.dimension > _LARGEST:
        return None
    try:
        with np.errstate(all="ignore"):
            return _deviations(plan, schema)
    except (ArithmeticError, np.linalg.LinAlgError):
        return None


def _deviations(plan: Plan, schema: Schema) -> tuple[np.ndarray, np.ndarray] | None:
    problem = plan.problem
    k = problem.loss.outputs
    shared = np.eye(k) - (np.ones((k, k)) / k if k > 1 else 0.0)  # as in ``model.centred``
    centre = np.kron(shared, np.eye(problem.width))
    ridge = getattr(plan, "minimised", problem).ridge * np.eye(problem.dimension)
    deviations = []
    for curvature in (schema.even_curvature() + ridge, ridge):
        if (covariance := plan.noise_covariance(curvature)) is None:
            return None
        variances = np.maximum(np.diag(centre @ covariance @ centre), 0.0)
        deviations.append(np.sqrt(variances).reshape(k, problem.width))
    return deviations[0], deviations[1]
