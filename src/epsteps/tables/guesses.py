"""What can be said of a model's error before it is fitted: from public numbers, never from records."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np

from epsteps.budgets import Budget
from epsteps.plans.plan import Plan

_FACTORS = (1 / 8, 1 / 4, 1 / 2, 1.0, 2.0, 4.0, 8.0)


def finite(value: float | None) -> float | None:
    """Return the number, or None where there is none that JSON could hold."""
    return None if value is None or not math.isfinite(value) else float(value)


def error_curve(
    budget: Budget, replan: Callable[[Any], Plan], factors: Sequence[float] = _FACTORS
) -> list[tuple[float, float]]:
    """Return expected errors at other epsilons of a budget that has one, as pairs: those of plans made for them."""
    curve = []
    for factor in factors:
        epsilon = budget.amount * factor
        try:
            with np.errstate(all="ignore"):
                error = finite(replan(replace(cast(Any, budget), epsilon=epsilon)).utility.expected)
        except (ValueError, ArithmeticError, RuntimeError):  # no plan of this method for so small, or large, a budget
            continue
        if error is not None:
            curve.append((epsilon, error))
    return curve
